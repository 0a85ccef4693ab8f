"""The PySpark side: options, writing, reading, the data source, table services."""
