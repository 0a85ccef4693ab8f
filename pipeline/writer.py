"""Writing a frame: begin, tag, shuffle by bucket, write on the executors, commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.pipeline.batch_register import BatchRegister, written_once
from lakelatch.pipeline.committing import CommitResult, aborting, commit_files, retried, write_task
from lakelatch.pipeline.coordination import open_manager
from lakelatch.pipeline.losing import ended_when_lost
from lakelatch.pipeline.marker_serving import served
from lakelatch.pipeline.moving import mover_of
from lakelatch.pipeline.options import DELETE, DELETE_PARTITION, OPERATION, SMALL_ROWS, WriteOptions
from lakelatch.pipeline.partial_writes import required_columns
from lakelatch.pipeline.salvage import Salvage
from lakelatch.pipeline.schemas import META_COLUMNS
from lakelatch.pipeline.spark_types import default_parallelism, to_arrow
from lakelatch.pipeline.tables import Table, open_for_write
from lakelatch.pipeline.write_task import (
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
from lakelatch.timeline.column_groups import COLUMN_GROUPS
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NO_GROUPS = f", or write to a table that was made with {COLUMN_GROUPS}, of which a write may fill some columns only"


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
    asked = parse_write(options)
    source = df if callable(df) else None
    frame = _without_meta(source() if source is not None else cast("DataFrame", df))
    storage = open_storage(path)
    data_schema = to_arrow(frame.schema)
    with open_manager(storage, asked.raw, system) as manager:  # first, so that wrong lock options make no table
        table = open_for_write(storage, asked, data_schema)
        check_columns(table, data_schema, asked)
        manager.heal()

        def work(register: BatchRegister | None, salvage: Salvage) -> CommitResult:
            # What a function has read may be different now; a frame's rows are the same.
            kept = salvage if source is None else None
            return _write_once(source or (lambda: frame), table, asked, manager, kept, register)

        return written_once(manager, asked.raw, lambda register: retried(manager, system, partial(work, register)))


def parse_write(options: Mapping[str, object] | None) -> WriteOptions:
    """The options of a write that has rows. Errors: `InvalidRequest`."""
    asked = WriteOptions.parse(options)
    if asked.operation == DELETE_PARTITION:
        raise InvalidRequest(
            f"{OPERATION}={DELETE_PARTITION} writes no rows: call lakelatch.delete_partitions(path, partitions)",
            option=OPERATION,
        )
    return asked


def _without_meta(df: DataFrame) -> DataFrame:
    return df.drop(*[name for name in df.columns if name in META_COLUMNS])


def check_columns(table: Table, data_schema: pa.Schema, asked: WriteOptions) -> None:
    """The frame's columns must be the table's (a delete needs only those that name the row); order does not matter."""
    config = table.config
    required = set(table.schema.names)
    if config.column_groups:
        required = required_columns(config, table.schema.names, data_schema.names, asked)
    elif asked.operation == DELETE:
        required = {*config.record_key_fields, *config.partition_fields}
        if asked.non_blocking and config.ordering_field:  # without a time of its own it would win by chance
            required.add(config.ordering_field)
    missing = sorted(required - set(data_schema.names))
    if missing:
        raise InvalidRequest(
            f"the data lacks the column(s) {', '.join(missing)} of the table {config.name!r}: add them"
            + ("; a write fills a column group whole or not at all" if config.column_groups else _NO_GROUPS)
        )
    strangers = sorted(set(data_schema.names) - set(table.schema.names))
    if strangers:
        raise InvalidRequest(
            f"the column(s) {', '.join(strangers)} are not in the table {config.name!r} "
            f"({', '.join(table.schema.names)}): drop or rename them"
        )
    for field in data_schema:
        stored = table.schema.field(field.name).type
        if not _fits(field.type, stored):
            raise InvalidRequest(
                f"the column {field.name!r} is {field.type}, and in the table {config.name!r} it is {stored}: cast it"
            )


def _write_once(
    source: Callable[[], DataFrame],
    table: Table,
    asked: WriteOptions,
    manager: TransactionManager,
    salvage: Salvage | None,
    register: BatchRegister | None,
) -> CommitResult:
    transaction = manager.begin(asked.action)
    with aborting(transaction):
        if register is not None:
            register.register(transaction)
        task = write_task(table, asked, transaction)
        df = _without_meta(source())
        mover = mover_of(df.sparkSession)
        found = salvage is not None and salvage.found
        reports = salvage.reissue(task, mover) if salvage is not None and found else _run(df, task, asked, transaction)
        return commit_files(transaction, table, asked, reports, manager.writer, mover, salvage=salvage)


def _run(df: DataFrame, task: WriteTask, asked: WriteOptions, transaction: Transaction) -> list[FileReport]:
    small = _small_frame(df, asked)
    if small is not None:
        batches = [task.tag(batch) for batch in small.to_batches() if batch.num_rows]
        return list(task.write(iter(batches), "0-0-0"))
    lost = threading.Event()
    with served(df.sparkSession, transaction, task, lost.set) as task:
        return _run_on_executors(df, task, asked, lost)


def _run_on_executors(df: DataFrame, task: WriteTask, asked: WriteOptions, lost: threading.Event) -> list[FileReport]:
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    added = [(META_COLUMNS[2], StringType()), (PARTITION_COLUMN, StringType()), (BUCKET_COLUMN, IntegerType())]
    tagged_schema = StructType([*df.schema.fields, *(StructField(name, kind) for name, kind in added)])
    tagged = df.mapInArrow(partial(_tag_batches, task), tagged_schema)
    keys = (PARTITION_COLUMN, BUCKET_COLUMN)
    if asked.parallelism is not None:
        shuffled = tagged.repartition(asked.parallelism, *keys)
    elif not task.config.partition_fields:
        shuffled = tagged.repartition(min(task.config.bucket_count or 1, default_parallelism(df)), *keys)
    else:
        shuffled = tagged.repartition(*keys)  # adaptive execution joins small partitions
    from pyspark.sql.pandas.types import from_arrow_schema

    with ended_when_lost(df.sparkSession, task, lost):
        rows = shuffled.mapInArrow(partial(_write_batches, task), from_arrow_schema(REPORT_SCHEMA)).collect()
    return [FileReport(**row.asDict()) for row in rows]


def _small_frame(df: DataFrame, asked: WriteOptions) -> pa.Table | None:
    """The rows, if they are in the driver already or the caller said that they are few; else None."""
    if SMALL_ROWS in asked.raw and asked.small_rows > 0:
        rows = df.limit(asked.small_rows + 1).toArrow()
        return rows if rows.num_rows <= asked.small_rows else None
    return df.toArrow() if asked.small_rows > 0 and df.isLocal() else None


def _tag_batches(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with task.attempt(f"tag-{write_token()}") as files:
        for batch in files.watched(batches):
            yield task.tag(batch)


def _write_batches(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for report in task.write(batches, write_token()):
        yield reports_to_batch([report])


def _fits(given: pa.DataType, stored: pa.DataType) -> bool:
    """Equal but for what a cast cannot lose: integer and float widths, time zones of one instant, large strings."""
    if given == stored:
        return True
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(stored):
        return (given.tz is None) == (stored.tz is None)
    widening = {"int8": 1, "int16": 2, "int32": 3, "int64": 4}
    if str(given) in widening and str(stored) in widening:
        return widening[str(given)] <= widening[str(stored)]
    if pa.types.is_floating(given) and pa.types.is_floating(stored):
        return bool(given.bit_width <= stored.bit_width)
    text = (pa.types.is_string, pa.types.is_large_string)
    if any(is_kind(given) for is_kind in text) and any(is_kind(stored) for is_kind in text):
        return True
    nested = (pa.types.is_list, pa.types.is_map, pa.types.is_struct)
    same_kind = any(bool(is_kind(given)) and bool(is_kind(stored)) for is_kind in nested)
    return same_kind and _same_shape(given, stored)


def _same_shape(given: pa.DataType, stored: pa.DataType) -> bool:
    if given.num_fields != stored.num_fields:
        return False
    inner = [(given.field(index), stored.field(index)) for index in range(given.num_fields)]
    by_name = pa.types.is_struct(given)
    return all((not by_name or a.name == b.name) and _fits(a.type, b.type) for a, b in inner)
