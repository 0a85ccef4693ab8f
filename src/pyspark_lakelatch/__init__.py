"""PySpark finds the data source `lakelatch` by this module's name, with no registration."""

from lakelatch.spark.data_source import DefaultSource

__all__ = ["DefaultSource"]
