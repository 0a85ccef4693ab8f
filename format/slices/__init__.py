"""A table's file slices: which there are at a moment, in which partitions, and what the file index knows of them."""
