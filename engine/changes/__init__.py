"""Changes of a table of Arrow: rows that are given, rows that follow from those that are there, and merges."""
