"""The PySpark side: frames in and out, executors, the data source, streams, tables as users hold them."""
