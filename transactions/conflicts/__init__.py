"""Conflicts between concurrent writes: how they are decided, and what they cost."""
