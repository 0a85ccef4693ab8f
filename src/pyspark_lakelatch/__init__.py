"""Found by PySpark."""
