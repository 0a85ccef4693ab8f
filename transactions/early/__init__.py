"""Early conflict detection (RFC-56): conflicts that are found while a write is at work."""
