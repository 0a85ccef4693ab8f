"""`format("lakelatch")`: a thin adapter of PySpark's data source interface over the function API.

Spark runs `writer()` and `commit()` in two short-lived processes and gives only messages from one to the other, so the
transaction travels as its state, and its heartbeat beats in the tasks and around the commit. Errors lose their type on
the way; `lakelatch.errors.reraise` gives it back. There is no shuffle: each task writes a log file for each bucket that
it meets. For large writes prefer `lakelatch.write`, which shuffles by bucket and retries every kind of conflict.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.format.avro import META_COLUMNS
from lakelatch.heartbeat.beat import TaskHeartbeat
from lakelatch.spark.open_manager import open_manager
from lakelatch.spark.open_table import open_for_write
from lakelatch.spark.options import OPERATION
from lakelatch.spark.read.pruning import Condition
from lakelatch.spark.read.pushed_filters import conditions_of
from lakelatch.spark.read.reader import ReadPlan, plan_read, read_schema
from lakelatch.spark.service_options import ServiceOptions
from lakelatch.spark.services.keeping.inline import after_commit
from lakelatch.spark.spark_types import to_arrow, to_spark
from lakelatch.spark.table import OpenedTable
from lakelatch.spark.write.attempt import Lost, attempted, retried
from lakelatch.spark.write.columns import check_columns
from lakelatch.spark.write.commit import commit_files, write_task
from lakelatch.spark.write.rebase import LostFiles
from lakelatch.spark.write.relocation import relocate_here
from lakelatch.spark.write.result import CommitResult
from lakelatch.spark.write.rows import parse_write
from lakelatch.spark.write.streaming.batch import refuse_batch
from lakelatch.spark.write.task import FileReport, write_token
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.actions import INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE
from lakelatch.transactions.context import TransactionState
from lakelatch.transactions.manager import TransactionManager

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("lakelatch.spark")
_TASK_BYTES = 32 * 1024 * 1024  # compressed, of a base file; about as many rows as tasks of Spark's own get


class LakelatchDataSource(DataSource):
    """`df.write.format("lakelatch").options(...).mode("append").save(path)`, and `spark.read.format("lakelatch")`."""

    @classmethod
    def name(cls) -> str:
        return "lakelatch"

    def schema(self) -> StructType:
        return to_spark(read_schema(self._path(), self._given()))

    def reader(self, schema: StructType) -> DataSourceReader:
        return LakelatchReader(self._path(), self._given())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise InvalidRequest(
                'mode("overwrite") is not supported: use mode("append"), which upserts, or with it the option '
                f"{OPERATION}={INSERT_OVERWRITE} (the partitions that the frame touches) or {INSERT_OVERWRITE_TABLE}"
            )
        return LakelatchWriter(self._path(), self._given(), schema)

    def _path(self) -> str:
        if "path" not in self.options:
            raise InvalidRequest("the option 'path' is missing: name the table's folder in save() or load()")
        return str(self.options["path"])

    def _given(self) -> dict[str, object]:
        return dict(self.options)


@dataclass
class SlicePartition(InputPartition):
    """One file slice to read, or of its row groups every one whose number leaves a remainder by a count."""

    index: int
    share: tuple[int, int] = (0, 1)


class LakelatchReader(DataSourceReader):
    """Reads the slices of one moment, one task for each, and several for a large one without logs.

    Planned when Spark asks for its partitions, or ships it.
    """

    def __init__(self, path: str, options: dict[str, object]) -> None:
        self._path = path
        self._options = options
        self._conditions: tuple[Condition, ...] = ()
        self.pushFilters = PushedFilters(self)  # type: ignore[method-assign]

    def use(self, conditions: Iterable[Condition]) -> None:
        """Leaves out what these show to be without rows."""
        self._conditions = (*self._conditions, *conditions)

    @cached_property
    def plan(self) -> ReadPlan:
        return plan_read(self._path, self._options, conditions=self._conditions)

    def partitions(self) -> list[InputPartition]:
        return [
            SlicePartition(index, (number, count))
            for index, count in enumerate(self.plan.task_counts(_TASK_BYTES))
            for number in range(count)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if isinstance(partition, SlicePartition):  # Spark calls with None where there is no partition
            yield from self.plan.read(self.plan.slices[partition.index], partition.share)

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan}  # before Spark asks for partitions, which are numbers of its slices


class PushedFilters:
    """The `pushFilters` of a reader, which takes filters as hints and leaves them all to Spark.

    Spark refuses a reader that has a method of its own by this name where `spark.sql.python.filterPushdown.enabled` is
    off, so that no filter is passed over unseen. Nothing is lost here if they are, so this shows Spark the method that
    it knows. Versions before 4.1 have none, and never ask.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", None) or (lambda *_: None))

    def __init__(self, reader: LakelatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Any]) -> list[Any]:
        self._reader.use(conditions_of(filters))
        return filters


@dataclass
class FilesMessage(WriterCommitMessage):
    """What one task has written."""

    reports: list[FileReport]


class LakelatchWriter(DataSourceArrowWriter):
    """One write. Made in a process that ends before the tasks run; everything in it pickles."""

    def __init__(self, path: str, options: dict[str, object], schema: StructType) -> None:
        write_options = parse_write(options)
        refuse_batch(write_options.batch, 'format("lakelatch")')
        columns = to_arrow(schema)
        self._meta = tuple(name for name in columns.names if name in META_COLUMNS)
        data_schema = pa.schema([field for field in columns if field.name not in META_COLUMNS])
        self._options, self._services = write_options, ServiceOptions.parse(options)
        storage = open_storage(path, write_options.manager.storage)
        with open_manager(storage, write_options.manager) as manager:  # first, so that wrong lock options make no table
            self._table: OpenedTable = open_for_write(storage, write_options, data_schema)
            check_columns(self._table, data_schema, write_options)
            manager.recover()
            transaction = manager.begin(write_options.action)
            transaction.hand_over()
            self._state: TransactionState = transaction.state
            if transaction.asks_for_marker_server:
                _log.warning("the data source has no driver that could serve markers: those of this write are direct")
            self._task = write_task(self._table, write_options, transaction)
            self._interval_ms = manager.settings.heartbeat.interval_ms

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = self._task
        token = write_token()
        heartbeat = TaskHeartbeat(self._table.storage, self._state.instant, token, self._interval_ms)
        heartbeat.start()
        try:
            tagged = (task.tag(batch.drop_columns(list(self._meta))) for batch in iterator if batch.num_rows)
            return FilesMessage(list(task.write(tagged, token)))
        finally:
            heartbeat.stop()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        reports = [report for message in messages if isinstance(message, FilesMessage) for report in message.reports]
        with open_manager(self._table.storage, self._options.manager) as manager:
            result = retried(manager, partial(self._attempt, manager, reports))
            after_commit(result, self._table, manager, self._services, None)

    def _attempt(
        self, manager: TransactionManager, reports: list[FileReport], lost: LostFiles | None, again: bool
    ) -> CommitResult | Lost:
        """Spark gives the rows once, so a further try lives on the files of the one before."""
        transaction = manager.resume(self._state) if lost is None else manager.begin(self._options.action)

        def work() -> CommitResult | Lost:
            files = reports
            if lost is not None:
                files = lost.rewrite(write_task(self._table, self._options, transaction), relocate_here)
            return commit_files(transaction, self._table, self._options, files, keep_files=again)

        return attempted(transaction, work)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called after a failed commit as well, which may have succeeded: the log decides, a committed write stays."""
        with open_manager(self._table.storage, self._options.manager) as manager:
            try:
                transaction = manager.resume(self._state)
                transaction.abort(transaction.found_early())
            except LakelatchError:
                return  # left to the next writer's rollback; Spark shows the error that brought us here


DefaultSource = LakelatchDataSource
