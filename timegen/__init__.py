"""Strictly increasing times for a table, and instants: the same times as Hudi writes them."""
