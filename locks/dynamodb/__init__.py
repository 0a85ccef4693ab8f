"""Locks by DynamoDB."""
