"""Log files: the framing of their blocks, and the contents of these."""
