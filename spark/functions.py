"""A table's rows, history and details in one call, by its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelatch.engine.read.plan import read_schema
from lakelatch.engine.table.history import TableDetail, detail_of
from lakelatch.engine.table.opening import open_existing_storage, open_table
from lakelatch.spark.history import history_of
from lakelatch.spark.read.frames_out import read
from lakelatch.spark.session.spark_types import to_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


def show(
    spark: SparkSession,
    path: str,
    options: Mapping[str, object] | None = None,
    where: str | Column | None = None,
    n: int = 20,
    truncate: bool | int = True,
) -> None:
    """Prints `n` rows of what `read` with these options and this condition gives, as Spark's `show` does."""
    read(spark, path, options, where).show(n, truncate)


def history(
    spark: SparkSession, path: str, options: Mapping[str, object] | None = None, limit: int | None = 100
) -> DataFrame:
    """The completed instants, newest first, and those that restores undid; see `Table.history`."""
    return history_of(spark, open_table(open_existing_storage(path, options)), limit)


def detail(path: str, options: Mapping[str, object] | None = None) -> TableDetail:
    """The properties that were fixed when the table was made. Errors: `InvalidRequest` if there is none."""
    return detail_of(open_table(open_existing_storage(path, options)))


def schema(path: str, options: Mapping[str, object] | None = None) -> StructType:
    """The columns of a read with these options, as Spark has them, without planning it. Errors: as for `read`."""
    open_existing_storage(path, options)
    return to_spark(read_schema(path, options))
