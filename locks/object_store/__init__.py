"""Locks in an object store: S3, GCS, Azure, or a folder."""
