"""Reading a table: plans, pruning, and the rows of file slices."""
