"""Where `spark.sql` of an enabled session asks whether a statement is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def statement(spark: SparkSession, text: str, args: Any = None) -> DataFrame | None:
    """The result of a statement of ours; None for all others, which Spark is given as they are."""
    return None
