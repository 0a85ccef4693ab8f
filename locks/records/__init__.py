"""Locks over conditional puts of small records, for services without locks of their own."""
