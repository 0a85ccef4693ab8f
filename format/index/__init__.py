"""The file index: which files of a table are live, as of a moment, in one object."""
