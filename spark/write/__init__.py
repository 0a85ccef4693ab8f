"""Writing: from a frame to a commit."""
