"""Writing a frame: begin, tag, shuffle by bucket, write on the executors, commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lakelatch.format.avro import META_COLUMNS
from lakelatch.spark.options import WriteOptions
from lakelatch.spark.services.plans import Runner, runner_of
from lakelatch.spark.spark_types import default_parallelism, renamings, to_arrow
from lakelatch.spark.write.cancellation import ended_when_lost
from lakelatch.spark.write.marker_server import served
from lakelatch.spark.write.relocation import Relocator, relocator_of
from lakelatch.spark.write.result import CommitResult
from lakelatch.spark.write.rows import write_rows
from lakelatch.spark.write.task import (
    BUCKET_COLUMN,
    PARTITION_COLUMN,
    FileReport,
    WriteTask,
    collect_reports,
    report_type,
    reports_to_batch,
    write_token,
)
from lakelatch.system import REAL_SYSTEM, System
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

    Table services that the options ask for and that are due run after the commit: cleaning and archiving unless they
    are turned off, compaction and clustering with their `.inline` options. The result's `services` names them; one that
    fails leaves the commit as it is.

    With `hoodie.datasource.write.streaming.checkpoint.identifier` and `lakelatch.write.batch.number` the write is a
    batch, which is committed once: if it has been, the result is that of its commit. `write_batch` sets both.

    Errors: `InvalidRequest` (nothing happened), `WriteConflict` (rolled back; tried again as often as
    hoodie.write.num.retries.on.conflict.failures says), `CommitUnknown` (look before doing it again), `LockTimeout`
    and `Unavailable` (rolled back).
    """
    return write_rows(lambda: FrameRows(df), path, options, system)


class FrameRows:
    """The rows of a frame, or of each frame that a function returns, written on the executors."""

    def __init__(self, df: DataFrame | Callable[[], DataFrame]) -> None:
        self._source = df if callable(df) else None
        self._frame = _without_meta(self._source() if self._source is not None else cast("DataFrame", df))
        self.schema = to_arrow(self._frame.schema)

    @property
    def read_anew(self) -> bool:
        """What a function has read may be different now; a frame's rows are the same."""
        return self._source is not None

    def use_names_of(self, table: pa.Schema) -> None:
        renamed = renamings(self._frame.columns, table.names, self._frame.sparkSession)
        if renamed:
            self._frame = self._frame.withColumnsRenamed(renamed)
            self.schema = pa.schema([one.with_name(renamed.get(one.name, one.name)) for one in self.schema])

    def begin(self) -> None:
        if self._source is not None:
            self._frame = _without_meta(self._source())
            self.schema = to_arrow(self._frame.schema)

    def write(self, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
        return _run(self._frame, task, options, transaction)

    def relocator(self) -> Relocator:
        return relocator_of(self._frame.sparkSession)

    def runner(self) -> Runner:
        return runner_of(self._frame.sparkSession)


def _without_meta(df: DataFrame) -> DataFrame:
    """The frame itself if it has none of the table's own: under Spark Connect each new frame's schema is a request."""
    own = [name for name in df.columns if name in META_COLUMNS]
    return df.drop(*own) if own else df


def _run(df: DataFrame, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
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
    with ended_when_lost(df.sparkSession, task, lost):
        return collect_reports(shuffled.mapInArrow(partial(_write_batches, task), report_type()))


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
