"""A table as frames: what Spark reads by itself, and what is merged for it."""
