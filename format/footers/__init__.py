"""Footers of parquet files, changed after they were written: values that would mislead readers are removed."""
