"""Rounds one after the other, each from a new table to the checker's verdict."""
