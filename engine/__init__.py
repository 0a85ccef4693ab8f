"""Tables without Spark: opening, writing, reading, services."""
