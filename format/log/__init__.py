"""Log files: the framing of their blocks, and what the blocks hold."""
