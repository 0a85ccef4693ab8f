"""Several tables at once: one moment of all of them, and transactions that are seen in all of them or in none."""
