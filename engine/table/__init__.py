"""A table as it is opened and made: its properties, its schema, its columns."""
