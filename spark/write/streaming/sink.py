"""Structured Streaming: the batches of a query, each written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelatch.errors import InvalidRequest
from lakelatch.spark.options import normalise
from lakelatch.spark.write.result import CommitResult
from lakelatch.spark.write.streaming.batch import BATCH_APPLICATION, BATCH_NUMBER
from lakelatch.spark.write.writer import write
from lakelatch.system import REAL_SYSTEM, System

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"  # Spark keeps it in the query's checkpoint


def write_batch(
    df: DataFrame,
    number: int,
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Writes one batch of a streaming query, for `foreachBatch`; once, also if Spark repeats it after a crash.

    `stream.writeStream.foreachBatch(lambda df, number: lakelatch.write_batch(df, number, path, options))`

    The query is known by its id, which lives in its checkpoint, or by
    `hoodie.datasource.write.streaming.checkpoint.identifier`, which two queries must not share and which has to change
    when a query begins anew with a new checkpoint. A batch that was committed before is not evaluated again: the result
    is that of its commit, with `repeated`. So a second write of one batch to one table, as of deletes after rows, needs
    a name of its own, or it is taken for a repetition. A try that is still under way, as that of a driver which was
    only paused, is rolled back. Errors: those of `write`.
    """
    values = normalise(options)
    application = values.get(BATCH_APPLICATION) or _query_id(df)
    if not application:
        raise InvalidRequest(
            f"{BATCH_APPLICATION} is not set, and the frame is not a batch of a streaming query, whose id would do: "
            "name the application whose batch this is",
            option=BATCH_APPLICATION,
        )
    return write(df, path, {**values, BATCH_APPLICATION: application, BATCH_NUMBER: number}, system)


def _query_id(df: DataFrame) -> str | None:
    from pyspark.errors import PySparkException

    try:
        return df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    except PySparkException:  # Spark Connect has no context
        return None
