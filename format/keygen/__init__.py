"""Partition folders, including those that Hudi's timestamp-based key generators make of times."""
