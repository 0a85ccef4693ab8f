"""SQL statements that name a table of ours, carried out through `Table`; all others are Spark's."""

from lakelatch.spark.sql.statements import statement

__all__ = ["statement"]
