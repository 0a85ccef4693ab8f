"""Rows in another order: which one, and how it is made where they do not fit into memory."""
