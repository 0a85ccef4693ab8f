"""Tables at whatever fsspec has a file system for that creates objects exclusively."""
