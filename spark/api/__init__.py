"""What Spark users hold: a table, and what is done with it."""
