"""What a table does, without Spark."""
