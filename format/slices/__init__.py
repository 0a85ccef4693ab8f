"""A table's file slices at a moment, its partitions, and the file index."""
