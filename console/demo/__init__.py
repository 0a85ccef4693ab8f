"""The demo: several Spark jobs write one table of real flights at once, and every row is checked."""
