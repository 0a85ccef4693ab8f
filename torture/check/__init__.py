"""The checker: what must hold of a round, by its files and its history. It shares nothing with the product."""
