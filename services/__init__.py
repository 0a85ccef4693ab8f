"""Table services that need no Spark: what to keep, what to take away, what to put into the history."""
