"""SQL without a database: the types, conditions and values of a text, on rows of Arrow."""
