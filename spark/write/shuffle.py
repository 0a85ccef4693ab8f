"""How tagged rows come from the tasks that have them to those that write them, through Spark's shuffle.

Spark shuffles row by row, and makes rows of columns and columns of rows for it. So a session that bounds the bytes of a
batch is given few large values with many rows in each: runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.write.runs import RUN_SCHEMA, rows_of_runs, runs_for_tasks
from lakelatch.engine.write.sorted_runs import from_runs, to_runs
from lakelatch.engine.write.task import BUCKET_COLUMN, PARTITION_COLUMN, WriteTask
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.spark.session.spark_types import default_parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_KEYS = (PARTITION_COLUMN, BUCKET_COLUMN)
_BATCH_BYTES_OPTION = "spark.sql.execution.arrow.maxBytesPerBatch"
_PYTHON_MEMORY_OPTION = "spark.executor.pyspark.memory"
_BATCH_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True)
class RowShuffle:
    """Row by row. Pickles."""

    task: WriteTask
    #: Into how many tasks; None leaves it to adaptive execution, which joins small ones of so many as Spark has.
    tasks: int | None
    tasks_max: int

    def names(self, rows: pa.Schema) -> pa.Schema:
        """The columns of what is shuffled of such rows, as far as they are no tags."""
        return rows

    def schema(self, given: StructType) -> StructType:
        """What is shuffled of such rows, as Spark has it."""
        from pyspark.sql.types import IntegerType, StringType, StructField, StructType

        added = [(RECORD_KEY_COLUMN, StringType()), (PARTITION_COLUMN, StringType()), (BUCKET_COLUMN, IntegerType())]
        kinds = [(field.name, field.dataType) for field in given.fields]
        return StructType([StructField(name, kind) for name, kind in (*kinds, *added)])

    def sent(self, tagged: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What is shuffled of tagged rows."""
        return tagged

    def shuffled(self, sent: DataFrame) -> DataFrame:
        """All rows of a bucket come to one task, and in the order that the write's task needs."""
        order = [RECORD_KEY_COLUMN] if self.task.by_key else []
        return self._in_order(self._by_bucket(sent), order)

    def received(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The tagged rows of what was shuffled."""
        return batches

    def _by_bucket(self, sent: DataFrame) -> DataFrame:
        if self.tasks is None:
            return sent.repartition(*_KEYS)
        if self.task.config.partition_fields or not hasattr(sent, "repartitionById"):
            return sent.repartition(self.tasks, *_KEYS)
        return sent.repartitionById(self.tasks, BUCKET_COLUMN)  # a hash gives some tasks several buckets, some none

    def _in_order(self, shuffled: DataFrame, more: list[str]) -> DataFrame:
        return shuffled.sortWithinPartitions(*_KEYS, *more) if self.task.by_bucket else shuffled


@dataclass(frozen=True)
class SortedRunShuffle(RowShuffle):
    """As sorted runs of a bucket each, which are merged. Pickles."""

    def names(self, rows: pa.Schema) -> pa.Schema:
        return RUN_SCHEMA

    def schema(self, given: StructType) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(RUN_SCHEMA)

    def sent(self, tagged: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return to_runs(tagged, self.task.config.plain_key_field)

    def shuffled(self, sent: DataFrame) -> DataFrame:
        return self._in_order(self._by_bucket(sent), [])

    def received(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return from_runs(batches, self.task.config.plain_key_field)


@dataclass(frozen=True)
class TaskRunShuffle(SortedRunShuffle):
    """As runs of a task each, for writes that take rows in any order. Pickles."""

    def sent(self, tagged: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return runs_for_tasks(tagged, self.task.config, self.tasks or self.tasks_max)

    def received(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows_of_runs(batches, self.task.config)


def shuffle_of(task: WriteTask, options: WriteOptions, df: DataFrame) -> RowShuffle:
    """The shuffle of a write's rows."""
    tasks, tasks_max = options.parallelism, default_parallelism(df)
    if tasks is None and not task.config.partition_fields:
        tasks = min(task.config.bucket_count or 1, tasks_max)
    if not sends_runs(df.sparkSession):
        return RowShuffle(task, tasks, tasks_max)
    return (SortedRunShuffle if task.by_bucket else TaskRunShuffle)(task, tasks, tasks_max)


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
