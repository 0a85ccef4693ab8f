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

from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.spark.options import COLUMNS, OPERATION, normalise
from lakelatch.spark.read.images import ImagePlan
from lakelatch.spark.read.reader import ReadPlan, plan_query, read_schema
from lakelatch.spark.read.tasks import ReadTask
from lakelatch.spark.read.wanted import Wanted
from lakelatch.spark.service_options import ServiceOptions
from lakelatch.spark.shown_errors import shown_plainly
from lakelatch.spark.spark_types import to_spark
from lakelatch.spark.write.rows import parse_write
from lakelatch.spark.write.streaming.batch import refuse_batch
from lakelatch.spark.write.streaming.handed_over import begin_write
from lakelatch.spark.write.task import FileReport
from lakelatch.timeline.actions import DELETE, INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_CHECKPOINT = "checkpointlocation"  # Spark's own; it is among the options of a sink
_OF_CATALOGS = {"owner", "provider"}  # what Spark's catalog adds to the options of a table, where it hands them over
_NO_CATALOG = (
    "Spark hands a table of its catalog to a Python data source without its options when it is read or written, so "
    "nothing can say where it lies. Use lakelatch.Table.for_path(spark, path).create_view(name), which SQL reads by "
    "name, and lakelatch.write(...) or df.write.format('lakelatch').options(...).save(path) to write"
)


class LakelatchDataSource(DataSource):
    """`df.write.format("lakelatch").options(...).mode("append").save(path)`, and `spark.read.format("lakelatch")`."""

    @classmethod
    def name(cls) -> str:
        return "lakelatch"

    @shown_plainly
    def schema(self) -> StructType:
        return to_spark(read_schema(self._path(), self._given()))

    @shown_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        return LakelatchReader(self._path(), self._given(), schema)

    @shown_plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        given = self._given()
        return LakelatchWriter(self._path(), overwriting(given) if overwrite else given, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from lakelatch.spark.read.stream_reader import LakelatchStreamReader

        try:
            return LakelatchStreamReader(self._path(), self._given(), schema)
        except LakelatchError as error:
            return RefusedStream(error)

    @shown_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            raise InvalidRequest("writeStream needs PySpark 4.1 or later: use foreachBatch with lakelatch.write_batch")
        from lakelatch.spark.write.streaming.stream_writer import LakelatchStreamWriter

        given = {key: value for key, value in self._given().items() if key != _CHECKPOINT}
        return LakelatchStreamWriter(self._path(), overwriting(given) if overwrite else given, schema)

    def _path(self) -> str:
        if _OF_CATALOGS & set(self.options):
            raise InvalidRequest(f"Spark's catalog cannot hold a table of lakelatch: {_NO_CATALOG}")
        if "path" not in self.options:
            raise InvalidRequest(
                "the option 'path' is missing: name the table's folder in save() or load(). If the table is one of "
                f"Spark's catalog: {_NO_CATALOG}"
            )
        return str(self.options["path"])

    def _given(self) -> dict[str, object]:
        return dict(self.options)


def overwriting(options: dict[str, object]) -> dict[str, object]:
    """The options of a write in the mode `overwrite`: all that is in the table goes, unless they name partitions."""
    operation = normalise(options).get(OPERATION)
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
        self._options = {**options, COLUMNS: ",".join(schema.names)}

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
    """What no query can follow. It says why when it is asked: Spark loses what is raised instead of a reader."""

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
    """What one task has written."""

    reports: list[FileReport]


class LakelatchWriter(DataSourceArrowWriter):
    """One write. Made in a process that ends before the tasks run; everything in it pickles."""

    def __init__(self, path: str, options: dict[str, object], schema: StructType) -> None:
        write_options = parse_write(options)
        refuse_batch(write_options.batch, 'format("lakelatch")')
        self._begun, self._task = begin_write(path, write_options, ServiceOptions.parse(options), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return FilesMessage(self._task.write(iterator))

    @shown_plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = [message for message in messages if isinstance(message, FilesMessage)]
        self._begun.commit([report for message in found for report in message.reports])

    @shown_plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._begun.abort()


DefaultSource = LakelatchDataSource
