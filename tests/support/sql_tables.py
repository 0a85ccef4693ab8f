"""Statements of one session in tests, and tables with names in Spark's catalog."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from spark_session import local_frame

from lakelatch import Table
from lakelatch.spark.sql import statement

COLUMNS = "id long, day string, v double"
ROWS = [(1, "mon", 1.0), (2, "tue", 2.0), (3, "tue", None), (4, "it's", 4.5)]


@dataclass
class Sql:
    """Statements of one session, and the tables that they are about."""

    spark: SparkSession
    folder: Path
    made: list[str] = field(default_factory=list)

    def __call__(self, text: str, args: Any = None, **frames: DataFrame) -> list[tuple[Any, ...]]:
        """The sorted rows of a statement that is ours."""
        found = statement(self.spark, text, args, **frames)
        assert found is not None, f"this is no statement of ours: {text}"
        return sorted((tuple(row) for row in found.collect()), key=repr)

    def of_spark(self, text: str, args: Any = None) -> list[tuple[Any, ...]]:
        """The sorted rows that Spark itself gives."""
        assert statement(self.spark, text, args) is None
        return sorted((tuple(row) for row in self.spark.sql(text, args).collect()), key=repr)

    def table(self, name: str, rows: list[tuple[Any, ...]] = ROWS, columns: str = COLUMNS, more: str = "") -> Table:
        """A table of ours in Spark's catalog, in two buckets by `id`."""
        path = self.folder / name
        types = columns.replace(" string", " STRING")
        self(
            f"CREATE TABLE {name} ({types}) USING lakelatch {more} LOCATION '{path}' "
            "TBLPROPERTIES (primaryKey = 'id', 'hoodie.bucket.index.num.buckets' = '2')"
        )
        self.made.append(name)
        table = Table.for_path(self.spark, str(path))
        if rows:
            table.upsert(local_frame(self.spark, rows, columns))
        return table

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of a table, by its path."""
        found = Table.for_path(self.spark, str(self.folder / name)).to_df().collect()
        return sorted((tuple(row) for row in found), key=repr)
