"""Tables of one module with names in Spark's catalog, and the same rows under names that Spark reads by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

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
            table.upsert(self.spark.createDataFrame(rows, columns))
        return table

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of a table, by its path."""
        found = Table.for_path(self.spark, str(self.folder / name)).to_df().collect()
        return sorted((tuple(row) for row in found), key=repr)


@pytest.fixture(scope="module")
def sql(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sql]:
    made = Sql(spark, tmp_path_factory.mktemp("sql"))
    yield made
    for name in made.made:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="module")
def view_of(spark: SparkSession) -> Iterator[Callable[[str, list[tuple[Any, ...]], str], None]]:
    """Makes a temporary view that is none of ours."""
    names = []

    def make(name: str, rows: list[tuple[Any, ...]] = ROWS, columns: str = COLUMNS) -> None:
        spark.createDataFrame(rows, columns).createOrReplaceTempView(name)
        names.append(name)

    yield make
    for name in names:
        spark.catalog.dropTempView(name)
