"""The marker server: many markers with one put, announced over HTTP."""
