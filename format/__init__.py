"""Hudi's data files without Spark: names, buckets, keys, log blocks, file slices, merging."""
