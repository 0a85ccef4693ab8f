"""The clients of a round and their work on its table."""
