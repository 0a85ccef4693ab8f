"""Locks by Redis or Valkey."""
