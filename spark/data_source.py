"""`format("lakelatch")`: a thin adapter of PySpark's data source interface over the function API.

Spark runs `writer()` and `commit()` in two short-lived processes and gives only messages from one to the other, so the
transaction travels as its state, and its heartbeat beats in the tasks and around the commit. Errors lose their type on
the way; `lakelatch.errors.reraise` gives it back. There is no shuffle: each task writes a log file for each bucket that
it meets. For large writes prefer `lakelatch.write`, which shuffles by bucket and retries every kind of conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from lakelatch.engine.distributed_write import begin_write
from lakelatch.engine.options.batch import refuse_batch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.read import COLUMNS, READ_META
from lakelatch.engine.options.write import OPERATION
from lakelatch.engine.read.plan import ReadPlan, plan_query, read_schema
from lakelatch.engine.read.rows.images import ImagePlan
from lakelatch.engine.read.rows.tasks import ReadTask
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.writing import parse_write
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.spark.read.wanted import Wanted
from lakelatch.spark.session.executor import write_token
from lakelatch.spark.session.shown_errors import shown_plainly
from lakelatch.spark.session.spark_types import to_arrow, to_spark
from lakelatch.storage.options import KNOWN_STORAGE_KEYS
from lakelatch.timeline.actions import DELETE, INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_CHECKPOINT = "checkpointlocation"  # Spark's own; it is among the options of a sink
_OF_CATALOGS = {"owner", "provider"}  # what Spark's catalog adds to the options of a table, where it hands them over
_NO_PLACE = (
    "Spark hands a data source in Python neither the LOCATION nor the OPTIONS of a table of its catalog, nor its name, "
    "when it is read or written"
)
_ANY_PATH = "/data/trips"


class LakelatchDataSource(DataSource):
    """`df.write.format("lakelatch").options(...).mode("append").save(path)`, and `spark.read.format("lakelatch")`."""

    @classmethod
    def name(cls) -> str:
        return "lakelatch"

    @shown_plainly
    def schema(self) -> StructType:
        if _OF_CATALOGS & set(self.options):
            raise InvalidRequest(self._without_columns())
        return to_spark(read_schema(self._path(), self._given()))

    @shown_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        return LakelatchReader(self._path(), self._given(), schema)

    @shown_plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        given = self._given()
        return LakelatchWriter(self._path(writes=True), overwriting(given) if overwrite else given, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from lakelatch.spark.streams.stream_reader import LakelatchStreamReader

        try:
            return LakelatchStreamReader(self._path(), self._given(), schema)
        except LakelatchError as error:
            return RefusedStream(error)

    @shown_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            raise InvalidRequest("writeStream needs PySpark 4.1 or later: use foreachBatch with lakelatch.write_batch")
        from lakelatch.spark.streams.stream_writer import LakelatchStreamWriter

        given = {key: value for key, value in self._given().items() if key != _CHECKPOINT}
        return LakelatchStreamWriter(self._path(writes=True), overwriting(given) if overwrite else given, schema)

    def _path(self, writes: bool = False) -> str:
        if "path" in self.options:
            return str(self.options["path"])
        if "paths" in self.options:  # as of load([...])
            Call({"paths": self.options["paths"]})
        at = f"WITH ('path' = '{_ANY_PATH}')"
        if writes:
            ways = f"INSERT INTO t {at} SELECT ..., or df.writeTo('t').option('path', '{_ANY_PATH}').append()"
            ways += f". In the place of saveAsTable, use df.write.format('lakelatch')...save('{_ANY_PATH}')"
        else:
            ways = f"SELECT * FROM t {at}, or once for all CREATE VIEW trips AS SELECT * FROM t {at}"
        raise InvalidRequest(
            f"the option 'path' is missing: name the table's folder, {'save' if writes else 'load'}('{_ANY_PATH}'). If "
            f"this is a table t of Spark's catalog: {_NO_PLACE}. Say where it lies in the statement: {ways}. Or call "
            "lakelatch.enable(spark): then spark.table, saveAsTable, insertInto and writeTo find it by its name",
            option="path",
        )

    def _without_columns(self) -> str:
        """Why `CREATE TABLE` without columns is refused, and the statements that work, for this table."""
        path = self.options.get("path")
        columns = "..."
        if path is not None:
            reached = {key: value for key, value in self.options.items() if key in KNOWN_STORAGE_KEYS}
            fields = to_spark(read_schema(path, reached))
            columns = ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in fields)
        at = f"WITH ('path' = '{path or _ANY_PATH}')"
        return (
            f"{_NO_PLACE}, so this name would be of no use. Name the columns, and say the path once for all in a view: "
            f"CREATE TABLE t ({columns}) USING lakelatch; CREATE VIEW trips AS SELECT * FROM t {at}; and INSERT INTO t "
            f"{at} SELECT ... Or use lakelatch.Table.for_path(spark, path).create_view(name) in this session"
        )

    def _given(self) -> dict[str, object]:
        return dict(self.options)


def overwriting(options: dict[str, object]) -> dict[str, object]:
    """The options of a write in the mode `overwrite`: all that is in the table goes, unless they name partitions."""
    operation = Call(options).get(OPERATION)
    if operation == DELETE:
        raise InvalidRequest(
            f'{OPERATION}={DELETE} and mode("overwrite"): a deletion overwrites nothing, use mode("append")',
            option=OPERATION,
        )
    return options if operation == INSERT_OVERWRITE else {**options, OPERATION: INSERT_OVERWRITE_TABLE}


@dataclass
class SlicePartition(InputPartition):
    """The slices that one task reads, or its share of one."""

    task: ReadTask


class LakelatchReader(DataSourceReader):
    """Reads the slices of one moment: small ones together, and large ones without logs by several tasks.

    Planned when Spark asks for its partitions, or ships it.

    Spark may use it for several scans of one frame, whose filters differ, so it takes no filters (`pushFilters`).
    """

    def __init__(self, path: str, options: dict[str, object], schema: StructType) -> None:
        self._path, self._schema = path, schema
        self._options = {**options, COLUMNS: ",".join(schema.names), READ_META: False}

    @cached_property
    def plan(self) -> ReadPlan | ImagePlan:
        return plan_query(self._path, self._options)

    @cached_property
    def wanted(self) -> Wanted:
        return Wanted.of(self._schema, self.plan.schema)

    @shown_plainly
    def partitions(self) -> list[InputPartition]:
        return [SlicePartition(task) for task in self.plan.tasks()]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if isinstance(partition, SlicePartition):  # Spark calls with None where there is no partition
            found = self.plan.read_task(partition.task)
            yield from map(self.wanted.batch, found)

    def __getstate__(self) -> dict[str, Any]:
        # Before Spark asks for partitions, which are numbers of its slices.
        return {"plan": self.plan, "wanted": self.wanted}


class RefusedStream(DataSourceStreamReader):
    """A table that no query can follow. It says why when it is asked: Spark loses an error that is raised earlier."""

    def __init__(self, error: LakelatchError) -> None:
        self._error = error

    @shown_plainly
    def initialOffset(self) -> dict[str, str]:
        raise self._error

    @shown_plainly
    def latestOffset(self, start: dict[str, str] | None = None, limit: Any = None) -> dict[str, str]:
        raise self._error

    @shown_plainly
    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error


@dataclass
class FilesMessage(WriterCommitMessage):
    """The files that one task has written."""

    reports: list[FileReport]


class LakelatchWriter(DataSourceArrowWriter):
    """One write. Made in a process that ends before the tasks run; everything in it pickles."""

    def __init__(self, path: str, options: dict[str, object], schema: StructType) -> None:
        write_options, service_options = parse_write(options)
        refuse_batch(write_options.batch, 'format("lakelatch")')
        self._begun, self._task = begin_write(path, write_options, service_options, to_arrow(schema))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return FilesMessage(self._task.write(iterator, write_token()))

    @shown_plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = [message for message in messages if isinstance(message, FilesMessage)]
        self._begun.commit([report for message in found for report in message.reports])

    @shown_plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._begun.abort()


DefaultSource = LakelatchDataSource
