"""What is undone: by its owner, by the next writer, and on request."""
