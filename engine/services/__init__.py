"""Table services: when they are due, how they are planned, and how plans are executed."""
