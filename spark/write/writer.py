"""Writing a frame: begin, tag, shuffle by bucket, write on the executors, commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.failpoints import failpoint
from lakelatch.format.avro import META_COLUMNS
from lakelatch.spark.open_manager import open_manager
from lakelatch.spark.open_table import open_for_write
from lakelatch.spark.options import OPERATION, WriteOptions
from lakelatch.spark.spark_types import default_parallelism, to_arrow
from lakelatch.spark.table import Table
from lakelatch.spark.write.attempt import Lost, attempted, retried
from lakelatch.spark.write.cancellation import ended_when_lost
from lakelatch.spark.write.columns import check_columns
from lakelatch.spark.write.commit import commit_files, write_task
from lakelatch.spark.write.marker_server import served
from lakelatch.spark.write.rebase import LostFiles
from lakelatch.spark.write.relocation import relocator_of
from lakelatch.spark.write.result import CommitResult
from lakelatch.spark.write.streaming.register import BatchRegister, written_once
from lakelatch.spark.write.task import (
    BUCKET_COLUMN,
    PARTITION_COLUMN,
    REPORT_SCHEMA,
    FileReport,
    WriteTask,
    reports_to_batch,
    write_token,
)
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import DELETE_PARTITION
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(
    df: DataFrame | Callable[[], DataFrame],
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Writes a frame into the table at `path`, all of it or nothing, and makes the table if there is none.

    A frame that was computed from this table speaks of the moment at which it was read, also when a conflict makes it
    be written again. To change what is there, pass a function that reads and returns the frame: it is called anew
    inside each try, so that nothing which others commit in between is overwritten unseen.

    A frame is evaluated once, on the executors, unless early detection stops it on its way: after a conflict at its
    commit the files that are there are taken for the next try. Rows come to the driver only if they are there already
    (a local relation) or if `lakelatch.write.small.rows` says that the frame is that small. Under a bucket index an
    `insert` of a key that exists updates it, as in Hudi.

    `insert_overwrite` takes away all that is in the partitions which the frame touches when it commits, and
    `insert_overwrite_table` all that is in the table, also what others committed while the frame was written.

    With `hoodie.datasource.write.streaming.checkpoint.identifier` and `lakelatch.write.batch.number` the write is a
    batch, which is committed once: if it has been, the result is that of its commit. `write_batch` sets both.

    Errors: `InvalidRequest` (nothing happened), `WriteConflict` (rolled back; tried again as often as
    hoodie.write.num.retries.on.conflict.failures says), `CommitUnknown` (look before doing it again), `LockTimeout`
    and `Unavailable` (rolled back).
    """
    write_options = parse_write(options)
    source = df if callable(df) else None
    frame = _without_meta(source() if source is not None else cast("DataFrame", df))
    storage = open_storage(path)
    data_schema = to_arrow(frame.schema)
    # The manager first, so that wrong lock options make no table.
    with open_manager(storage, write_options.manager, system) as manager:
        table = open_for_write(storage, write_options, data_schema)
        check_columns(table, data_schema, write_options)
        manager.recover()

        def attempt(register: BatchRegister | None, lost: LostFiles | None, again: bool) -> CommitResult | Lost:
            # What a function has read may be different now; a frame's rows are the same.
            keep_files = again and source is None
            return _attempt(source or (lambda: frame), table, write_options, manager, lost, keep_files, register)

        return written_once(manager, write_options.batch, lambda register: retried(manager, partial(attempt, register)))


def parse_write(options: Mapping[str, object] | None) -> WriteOptions:
    """The options of a write that has rows. Errors: `InvalidRequest`."""
    write_options = WriteOptions.parse(options)
    if write_options.operation == DELETE_PARTITION:
        raise InvalidRequest(
            f"{OPERATION}={DELETE_PARTITION} writes no rows: call lakelatch.delete_partitions(path, partitions)",
            option=OPERATION,
        )
    return write_options


def _without_meta(df: DataFrame) -> DataFrame:
    return df.drop(*[name for name in df.columns if name in META_COLUMNS])


def _attempt(
    source: Callable[[], DataFrame],
    table: Table,
    options: WriteOptions,
    manager: TransactionManager,
    lost: LostFiles | None,
    keep_files: bool,
    register: BatchRegister | None,
) -> CommitResult | Lost:
    transaction = manager.begin(options.action)

    def work() -> CommitResult | Lost:
        if register is not None:
            register.register(transaction)
        task = write_task(table, options, transaction)
        df = _without_meta(source())
        relocator = relocator_of(df.sparkSession)
        reports = _run(df, task, options, transaction) if lost is None else lost.rewrite(task, relocator)
        return commit_files(transaction, table, options, reports, relocator, keep_files=keep_files)

    return attempted(transaction, work)


def _run(df: DataFrame, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
    failpoint("write.before_rows")
    small = _small_frame(df, options)
    if small is not None:
        batches = [task.tag(batch) for batch in small.to_batches() if batch.num_rows]
        return list(task.write(iter(batches), "0-0-0"))
    lost = threading.Event()
    with served(df.sparkSession, transaction, task, lost.set) as task:
        return _run_on_executors(df, task, options, lost)


def _run_on_executors(df: DataFrame, task: WriteTask, options: WriteOptions, lost: threading.Event) -> list[FileReport]:
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    added = [(META_COLUMNS[2], StringType()), (PARTITION_COLUMN, StringType()), (BUCKET_COLUMN, IntegerType())]
    tagged_schema = StructType([*df.schema.fields, *(StructField(name, kind) for name, kind in added)])
    tagged = df.mapInArrow(partial(_tag_batches, task), tagged_schema)
    keys = (PARTITION_COLUMN, BUCKET_COLUMN)
    if options.parallelism is not None:
        shuffled = tagged.repartition(options.parallelism, *keys)
    elif not task.config.partition_fields:
        shuffled = tagged.repartition(min(task.config.bucket_count or 1, default_parallelism(df)), *keys)
    else:
        shuffled = tagged.repartition(*keys)  # adaptive execution joins small partitions
    from pyspark.sql.pandas.types import from_arrow_schema

    with ended_when_lost(df.sparkSession, task, lost):
        rows = shuffled.mapInArrow(partial(_write_batches, task), from_arrow_schema(REPORT_SCHEMA)).collect()
    return [FileReport(**row.asDict()) for row in rows]


def _small_frame(df: DataFrame, options: WriteOptions) -> pa.Table | None:
    """The rows, if they are in the driver already or the caller said that they are few; else None."""
    if options.small_rows is None:
        return df.toArrow() if df.isLocal() else None
    if options.small_rows == 0:
        return None
    rows = df.limit(options.small_rows + 1).toArrow()
    return rows if rows.num_rows <= options.small_rows else None


def _tag_batches(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with task.attempt(f"tag-{write_token()}") as files:
        for batch in files.watched(batches):
            yield task.tag(batch)


def _write_batches(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for report in task.write(batches, write_token()):
        yield reports_to_batch([report])
