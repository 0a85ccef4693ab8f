"""Structured Streaming: the batches of a query, each written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelatch.engine.options.batch import BATCH_APPLICATION, BATCH_NUMBER
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services import archiving, cleaning
from lakelatch.engine.options.table_services.inline import (
    ARCHIVE_ASYNC,
    CLUSTER_ASYNC,
    COMPACT_ASYNC,
    REWRITE_AUTOMATIC,
)
from lakelatch.engine.run.result import CommitResult
from lakelatch.errors import InvalidRequest
from lakelatch.option_values import flag, text_of
from lakelatch.spark.streams.query_services import wake_beside
from lakelatch.spark.write.frames_in import write
from lakelatch.system import REAL_SYSTEM, System

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

_BESIDE = (COMPACT_ASYNC, CLUSTER_ASYNC, cleaning.ASYNCHRONOUS, ARCHIVE_ASYNC)
_NOT_SEEN = "under Spark Connect this process cannot see whether the query runs"
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
    only paused, is rolled back.

    Each batch wakes a thread that compacts the table when that is due (`hoodie.datasource.compaction.async.enable`,
    on as in Hudi), and runs the other services that are due while the query runs. The thread ends with the query, after
    the service that it is running. Without a query that can be watched, as under Spark Connect, there is no thread, and
    options that ask for services are refused. Errors: those of `write`.
    """
    call = Call(options)
    context = _context_of(df)
    if context is None:
        ensure_nothing_beside(call)
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    application = call.get(BATCH_APPLICATION) or query
    if not application:
        raise InvalidRequest(
            f"{BATCH_APPLICATION} is not set, and the frame is not a batch of a streaming query, whose id would do: "
            "name the application whose batch this is",
            option=BATCH_APPLICATION,
        )
    batch = {BATCH_APPLICATION: application, BATCH_NUMBER: text_of(BATCH_NUMBER, number)}
    if query is None:
        return write(df, path, call.having(batch), system)
    service_options = call.services()
    if service_options.cleaning.asynchronous:
        batch[cleaning.AUTOMATIC] = "false"
    if service_options.inline.archive_in_background:
        batch[archiving.AUTOMATIC] = "false"
    if service_options.inline.compaction.background:
        batch[REWRITE_AUTOMATIC] = "false"
    result = write(df, path, call.having(batch), system)
    wake_beside(df.sparkSession, query, path, service_options, system)
    return result


def ensure_nothing_beside(values: Mapping[str, str], why: str = _NOT_SEEN) -> None:
    """`InvalidRequest` for options that ask for services during the query, where it cannot be seen whether it runs."""
    for key in _BESIDE:
        if key in values and flag(key, values[key]):
            raise InvalidRequest(
                f"{key}=true asks for a service beside the query, which ends with it, and {why}: leave it out, and set "
                "the service's inline option, call lakelatch.maintain, or keep the table with `lakelatch service run`",
                option=key,
            )


def _context_of(df: DataFrame) -> SparkContext | None:
    from pyspark.errors import PySparkException

    try:
        return df.sparkSession.sparkContext
    except PySparkException:  # Spark Connect has none
        return None
