"""The inputs of each step of a transaction (settings, clocks, context), and the values in which it ends."""
