"""Folders that Hudi's timestamp-based key generators make of times."""
