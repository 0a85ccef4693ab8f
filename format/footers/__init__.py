"""Rewriting parquet footers: values that would mislead readers are removed."""
