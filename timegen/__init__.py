"""timegen."""
