"""Keeping a table: what is due, in the right order, in one call, after a commit, or beside a query."""
