"""Footers of parquet files, changed after they were written: what would mislead readers is taken out."""
