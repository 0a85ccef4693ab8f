"""What each step of a transaction is given: its settings, clocks and context, and the values in which it ends."""
