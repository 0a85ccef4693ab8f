"""Writes that make base files: one in the making, and the tasks of copy-on-write tables."""
