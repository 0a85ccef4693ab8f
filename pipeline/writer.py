"""Writing a frame: begin, tag, shuffle by bucket, write on the executors, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lakelatch.errors import CommitUnknown, InvalidRequest, LakelatchError, WriteConflict, from_text
from lakelatch.pipeline.coordination import open_manager
from lakelatch.pipeline.options import BULK_INSERT, DELETE, INSERT, SMALL_ROWS, UPSERT, WriteOptions
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
)
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.metadata import SCHEMA_KEY, WRITER_KEY, CommitMetadata
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("lakelatch.pipeline")
OPERATION_TYPES = {UPSERT: "UPSERT", INSERT: "INSERT", BULK_INSERT: "BULK_INSERT", DELETE: "DELETE"}
_RETRY_WAIT_S = 0.1
_RETRY_WAIT_MAX_S = 10.0


@dataclass(frozen=True)
class CommitResult:
    """What was committed: visible to every reader from `completion` on. Counts are rows of this write."""

    instant: str
    completion: str
    operation: str
    rows_written: int
    rows_deleted: int
    files: tuple[str, ...]
    bytes_written: int
    conflicts_retried: int = 0


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

    A frame is evaluated once for each try, on the executors; rows come to the driver only if they are there already
    (a local relation) or if `lakelatch.write.small.rows` says that the frame is that small. Under a bucket index an
    `insert` of a key that exists updates it, as in Hudi.

    Errors: `InvalidRequest` (nothing happened), `WriteConflict` (rolled back; tried again as often as
    hoodie.write.num.retries.on.conflict.failures says), `CommitUnknown` (look before doing it again), `LockTimeout`
    and `Unavailable` (rolled back).
    """
    asked = WriteOptions.parse(options)
    source = df if callable(df) else None
    frame = _without_meta(source() if source is not None else cast("DataFrame", df))
    storage = open_storage(path)
    data_schema = to_arrow(frame.schema)
    with open_manager(storage, asked.raw, system) as manager:  # first, so that wrong lock options make no table
        table = open_for_write(storage, asked, data_schema)
        check_columns(table, data_schema, asked)
        manager.heal()
        retries = manager.settings.conflict_retries
        for attempt in range(retries + 1):
            try:
                return _write_once(source or (lambda: frame), table, asked, manager, attempt)
            except WriteConflict as conflict:
                if attempt == retries:
                    raise
                _log.info("try %d of %d: %s", attempt + 1, retries + 1, conflict)
                system.sleep(min(_RETRY_WAIT_S * 2**attempt, _RETRY_WAIT_MAX_S) * system.random())
    raise AssertionError("unreachable")


def _without_meta(df: DataFrame) -> DataFrame:
    return df.drop(*[name for name in df.columns if name in META_COLUMNS])


def check_columns(table: Table, data_schema: pa.Schema, asked: WriteOptions) -> None:
    """The frame's columns must be the table's (a delete needs only those that name the row); order does not matter."""
    config = table.config
    required = set(table.schema.names)
    if asked.operation == DELETE:
        required = {*config.record_key_fields, *config.partition_fields}
        if asked.non_blocking and config.ordering_field:  # without a time of its own it would win by chance
            required.add(config.ordering_field)
    missing = sorted(required - set(data_schema.names))
    if missing:
        raise InvalidRequest(
            f"the data lacks the column(s) {', '.join(missing)} of the table {config.name!r}: add them"
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


def commit_metadata(
    table: Table, operation: str, reports: list[FileReport], instant: str, writer: str
) -> CommitMetadata:
    """The commit's metadata from its tasks' reports."""
    stats = tuple(report.to_stat(instant) for report in sorted(reports, key=lambda report: report.file_name))
    return CommitMetadata(stats, OPERATION_TYPES[operation], {SCHEMA_KEY: table.avro_schema, WRITER_KEY: writer})


def _write_once(
    source: Callable[[], DataFrame], table: Table, asked: WriteOptions, manager: TransactionManager, attempt: int
) -> CommitResult:
    transaction = manager.begin("deltacommit")
    try:
        task = WriteTask(
            table.storage,
            table.config,
            table.schema,
            table.avro_schema,
            transaction.instant,
            asked.operation,
            asked.block_format,
        )
        reports = _run(_without_meta(source()), task, asked)
        committed = transaction.commit(
            commit_metadata(table, asked.operation, reports, transaction.instant, manager.writer)
        )
    except CommitUnknown:
        raise
    except BaseException as error:
        try:
            transaction.abort()
        except LakelatchError as left:
            _log.warning("instant %s is left to the next writer's rollback: %s", transaction.instant, left)
        typed = None if isinstance(error, LakelatchError) else from_text(str(error))
        if typed is not None:
            raise typed from error
        raise
    return _result(committed, asked.operation, reports, attempt)


def _run(df: DataFrame, task: WriteTask, asked: WriteOptions) -> list[FileReport]:
    small = _small_frame(df, asked)
    if small is not None:
        batches = [task.tag(batch) for batch in small.to_batches() if batch.num_rows]
        return list(task.write(iter(batches), "0-0-0"))
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

    rows = shuffled.mapInArrow(partial(_write_batches, task), from_arrow_schema(REPORT_SCHEMA)).collect()
    return [FileReport(**row.asDict()) for row in rows]


def _small_frame(df: DataFrame, asked: WriteOptions) -> pa.Table | None:
    """The rows, if they are in the driver already or the caller said that they are few; else None."""
    if SMALL_ROWS in asked.raw and asked.small_rows > 0:
        rows = df.limit(asked.small_rows + 1).toArrow()
        return rows if rows.num_rows <= asked.small_rows else None
    return df.toArrow() if asked.small_rows > 0 and df.isLocal() else None


def _tag_batches(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield task.tag(batch)


def _write_batches(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for report in task.write(batches, write_token()):
        yield reports_to_batch([report])


def write_token() -> str:
    """This task attempt's part of a file name: partition, stage, attempt; no other attempt has the same."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return "0-0-0"
    return f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"


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


def _result(committed: Committed, operation: str, reports: list[FileReport], attempt: int) -> CommitResult:
    return CommitResult(
        instant=committed.instant,
        completion=committed.completion,
        operation=operation,
        rows_written=sum(report.records for report in reports),
        rows_deleted=sum(report.deletes for report in reports),
        files=tuple(sorted(report.file_name for report in reports)),
        bytes_written=sum(report.size_bytes for report in reports),
        conflicts_retried=attempt,
    )
