"""From a table to what is read of it: plans, pruning, and the rows of file slices."""
