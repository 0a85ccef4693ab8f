"""Merging a file slice: the base file and its logs become one row for each key."""
