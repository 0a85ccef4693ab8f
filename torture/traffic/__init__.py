"""The clients of a round: what they do to its table."""
