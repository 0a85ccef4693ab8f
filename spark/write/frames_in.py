"""Writing a frame: begin, tag, shuffle by bucket, write on the executors, commit."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lakelatch.engine.options.calls.arguments import Options
from lakelatch.engine.options.write import UPDATE, WriteOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport, ensure_none_refused, or_refusal, refusal_error, refusal_text
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.write.tasks.sorted_runs import RUN_COLUMN, RUN_SCHEMA, from_runs, to_runs
from lakelatch.engine.write.tasks.task import BUCKET_COLUMN, PARTITION_COLUMN, WriteTask
from lakelatch.engine.writing import write_rows
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import META_COLUMNS, RECORD_KEY_COLUMN
from lakelatch.spark.session.executor import SparkExecutor, collected, row_batch, row_type, write_token
from lakelatch.spark.session.marker_server import ended_when_lost, served
from lakelatch.spark.session.spark_types import default_parallelism, renamings, to_arrow
from lakelatch.spark.write.known_keys import SKIPPED, Counted, with_new_keys, without_skipped
from lakelatch.spark.write.rows_in_place import in_place
from lakelatch.spark.write.small_frames import has_required_in_nullable, rows_in_driver
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_BYTES_OPTION = "spark.sql.execution.arrow.maxBytesPerBatch"
_PYTHON_MEMORY_OPTION = "spark.executor.pyspark.memory"
_BATCH_BYTES_MAX = 256 * 1024 * 1024
_REFUSALS_MAX = 1024


def write(
    df: DataFrame | Callable[[], DataFrame],
    path: str,
    options: Options | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Writes a frame into the table at `path`, all of it or nothing, and makes the table if there is none.

    A frame that was computed from this table speaks of the moment at which it was read, also when a conflict makes it
    be written again. To change what is there, pass a function that reads and returns the frame: it is called anew
    inside each try, so that nothing which others commit in between is overwritten unseen.

    What is written comes from one evaluation of a frame, unless early detection stops it on its way: after a conflict
    at its commit the files that are there are taken for the next try. Rows come to the driver only if they are there
    already (a local relation, or a Python list of up to 10,000 rows), if `lakelatch.write.small.rows` says that the
    frame is that small, or up to 10,001 of them if Spark's optimizer takes it for small; with more rows it is evaluated
    anew, on the executors. Under a bucket index an `insert` of a key that exists updates it, as in Hudi, unless
    hoodie.datasource.insert.dup.policy says otherwise: what it leaves out is counted in the result's `rows_skipped`.

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

    return write_as("", df, path, options, system)


def write_as(
    called: str,
    df: DataFrame | Callable[[], DataFrame],
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """As `write`, for a change that has a name of its own: the result and the table's history call it so."""

    def rows(parsed: WriteOptions) -> FrameRows:
        if parsed.known_keys == UPDATE:
            return FrameRows(df)
        source = df if callable(df) else lambda: df
        return FrameRows(with_new_keys(source, path, options, parsed), may_skip=True)

    return write_rows(rows, path, options, system, called)


class FrameRows:
    """The rows of a frame, or of each frame that a function returns, written on the executors."""

    def __init__(self, df: DataFrame | Callable[[], DataFrame], may_skip: bool = False) -> None:
        self._source = df if callable(df) else None
        self._may_skip = may_skip
        self._frame = _without_meta(self._source() if self._source is not None else cast("DataFrame", df))
        self._local: bool | None = None
        self.schema = self._schema()
        self.skipped = 0

    @property
    def read_anew(self) -> bool:
        """Whether the rows may differ at the next try: a function may read others, and a frame's stay the same."""
        return self._source is not None

    def use_names_of(self, table: pa.Schema) -> None:
        renamed = renamings(self._frame.columns, table.names, self._frame.sparkSession)
        if renamed:
            self._frame, self._local = self._frame.withColumnsRenamed(renamed), None
            self.schema = pa.schema([one.with_name(renamed.get(one.name, one.name)) for one in self.schema])

    def are_here(self, options: WriteOptions) -> bool:
        refused = self._source is not None or options.small_rows is not None or has_required_in_nullable(self.schema)
        return not refused and self._is_local()

    def partitions(self, config: TableConfig) -> Collection[str]:
        return ()

    def begin(self) -> None:
        if self._source is not None:
            self._frame, self._local = _without_meta(self._source()), None
            self.schema = self._schema()

    def write(self, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
        here = transaction.own_files is not None  # then no task may write
        rows = self._collected() if here else rows_in_driver(self._frame, task, options, self._is_local)
        if rows is not None:
            rows, self.skipped = without_skipped(rows) if self._skips else (rows, 0)
            return replace(task, own=transaction.own_files).write_here(rows)
        lost = threading.Event()
        with served(self._frame.sparkSession, transaction, task, lost.set) as task:
            reports = _run_on_executors(self._frame, task, options, lost, self._skips)
        self.skipped = sum(report.skipped for report in reports)
        return [report for report in reports if report.file_name]

    @property
    def executor(self) -> Executor:
        return SparkExecutor.of(self._frame.sparkSession)

    @property
    def _skips(self) -> bool:
        return self._may_skip and SKIPPED in self._frame.columns

    def _schema(self) -> pa.Schema:
        found = to_arrow(self._frame.schema)
        return found.remove(found.get_field_index(SKIPPED)) if self._skips else found

    def _collected(self) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = self._frame.toArrow().to_batches()
        return found

    def _is_local(self) -> bool:
        if self._local is None:  # under Spark Connect a request
            self._local = self._frame.isLocal()
        return self._local


def _without_meta(df: DataFrame) -> DataFrame:
    """The frame itself if it has none of the table's own: under Spark Connect each new frame's schema is a request."""
    own = [name for name in df.columns if name in META_COLUMNS]
    return df.drop(*own) if own else df


def _run_on_executors(
    df: DataFrame, task: WriteTask, options: WriteOptions, lost: threading.Event, skips: bool
) -> list[FileReport]:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    untagged = None if skips else in_place(df, task, options)
    if untagged is not None:
        with ended_when_lost(df.sparkSession, task, lost):
            return _reports_of(untagged.mapInArrow(partial(_tag_and_write, task), row_type(FileReport)), task)
    keys = (PARTITION_COLUMN, BUCKET_COLUMN)
    in_runs = task.by_key and sends_runs(df.sparkSession)
    if in_runs:
        tagged_schema = from_arrow_schema(RUN_SCHEMA)
    else:
        added = [(RECORD_KEY_COLUMN, StringType()), (PARTITION_COLUMN, StringType()), (BUCKET_COLUMN, IntegerType())]
        given = [(field.name, field.dataType) for field in df.schema.fields]
        tagged_schema = StructType([StructField(name, kind) for name, kind in (*given, *added)])
    tagged = df.mapInArrow(partial(_tag_batches, task, in_runs), tagged_schema)
    shuffled = _by_bucket(tagged, task, options)
    if task.by_bucket:
        shuffled = shuffled.sortWithinPartitions(*keys, *([RECORD_KEY_COLUMN] if task.by_key and not in_runs else []))
    with ended_when_lost(df.sparkSession, task, lost):
        written = shuffled.mapInArrow(partial(_write_batches, task, in_runs, skips), row_type(FileReport))
        return _reports_of(written, task)


def _reports_of(written: DataFrame, task: WriteTask) -> list[FileReport]:
    what = f"lakelatch: {task.operation} into {task.config.name!r} ({task.instant})"
    reports: list[FileReport] = collected(written, FileReport, what)
    ensure_none_refused(reports)
    return reports


def _by_bucket(tagged: DataFrame, task: WriteTask, options: WriteOptions) -> DataFrame:
    """Shuffled so that the rows of a partition and bucket are in one task."""
    keys = (PARTITION_COLUMN, BUCKET_COLUMN)
    if options.parallelism is None and task.config.partition_fields:
        return tagged.repartition(*keys)  # adaptive execution joins small partitions
    tasks = options.parallelism or min(task.config.bucket_count or 1, default_parallelism(tagged))
    if task.config.partition_fields or not hasattr(tagged, "repartitionById"):
        return tagged.repartition(tasks, *keys)
    return tagged.repartitionById(tasks, BUCKET_COLUMN)  # a hash would give some tasks several buckets, and some none


def sends_runs(session: SparkSession) -> bool:
    """Whether rows may be shuffled as runs: if tasks are given so many bytes at once, and not ten thousand values.

    Nor if the memory of Python's processes is limited, since a file that one of them maps counts.
    """
    from pyspark.errors import PySparkException

    try:
        limit = session.conf.get(_BATCH_BYTES_OPTION) or ""
        if session.conf.get(_PYTHON_MEMORY_OPTION, None):
            return False
    except PySparkException:  # earlier than 4.1
        return False
    found = re.fullmatch(r"([0-9]+)([kmg]?)b?", limit.strip().lower())
    return found is not None and int(found[1]) * 1024 ** " kmg".index(found[2] or " ") <= _BATCH_BYTES_MAX


def _tag_batches(task: WriteTask, in_runs: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tagged rows, or runs of them. Where the task refuses rows, the last ones say so to those that write."""
    schemas: list[pa.Schema] = [RUN_SCHEMA]

    def tagged() -> Iterator[pa.RecordBatch]:
        with task.attempt(f"tag-{write_token()}") as files:
            for batch in files.watched(batches):
                if not in_runs:
                    schemas[:] = [batch.schema]
                yield task.tag(batch)

    try:
        yield from to_runs(tagged(), task.config.plain_key_field) if in_runs else tagged()
    except InvalidRequest as error:
        yield _refusal(error, schemas[0], task.config.bucket_count or 1)
        _drain(batches)


def _refusal(error: InvalidRequest, schema: pa.Schema, buckets: int) -> pa.RecordBatch:
    """Rows without a partition path, which no other row is, for as many tasks as possible: who has one writes nothing.

    They sort before all others.
    """
    count, text = min(buckets, _REFUSALS_MAX), refusal_text(error)
    columns = {field.name: pa.nulls(count, field.type) for field in schema}
    if RUN_COLUMN in columns:
        columns[RUN_COLUMN] = pa.repeat(text.encode(), count)
    else:
        columns[RECORD_KEY_COLUMN] = pa.repeat(text, count)
    columns[PARTITION_COLUMN] = pa.nulls(count, pa.string())
    columns[BUCKET_COLUMN] = pa.array(range(count), pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def _not_refused(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Errors: `InvalidRequest` where a row says that others were refused."""
    for batch in batches:
        paths = batch[PARTITION_COLUMN]
        if paths.null_count:
            text = batch[RUN_COLUMN if RUN_COLUMN in batch.schema.names else RECORD_KEY_COLUMN]
            raise refusal_error(text.filter(paths.is_null())[0].as_py())
        yield batch


def _write_batches(
    task: WriteTask, in_runs: bool, skips: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows = _not_refused(batches)
    if in_runs:
        rows = from_runs(rows, task.config.plain_key_field)
    counted = Counted(rows) if skips else None  # behind the runs, which have the mark within
    if counted is not None:
        rows = iter(counted)
    for report in or_refusal(task.write(rows, write_token())):
        yield row_batch(report)
    _drain(batches)
    if counted is not None and counted.skipped:
        yield row_batch(FileReport("", "", "", 0, 0, 0, 0, skipped=counted.skipped))


def _tag_and_write(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    tagged = (task.tag(batch) for batch in batches if batch.num_rows)
    for report in or_refusal(task.write(tagged, write_token())):
        yield row_batch(report)
    _drain(batches)


def _drain(batches: Iterator[pa.RecordBatch]) -> None:
    """Takes the rest of the batches: Spark fails while it sends rows that are not taken."""
    for _ in batches:
        pass
