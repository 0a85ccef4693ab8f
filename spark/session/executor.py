"""Runs the tasks of writes and of table services on the executors of a session, and brings back what they report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lakelatch.engine.run.executor import HERE, Task
from lakelatch.errors import reraise
from lakelatch.format.names import NO_TASK
from lakelatch.spark.session.progress import with_progress
from lakelatch.spark.session.spark_types import for_each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class SparkExecutor:
    """Runs tasks on the executors of a session, which is asked for with the first task."""

    session: Callable[[], SparkSession]
    tasks: bool = True

    @classmethod
    def of(cls, spark: SparkSession) -> SparkExecutor:
        """On those of a session that is there."""
        return cls(lambda: spark)

    def map(self, work: Task[T, R], things: Sequence[T], kind: type[R], what: str, small: bool = False) -> list[R]:
        """See `Executor`."""
        if small or not things:
            return HERE.map(work, things, kind, what)
        made = for_each(self.session(), things, partial(_made_of, work), row_type(kind))
        try:
            return collected(made, kind, what)
        except Exception as error:
            reraise(error)


def _made_of(work: Task[T, object], thing: T) -> Iterator[pa.RecordBatch]:
    made = work(thing, write_token())
    if made is not None:
        yield row_batch(made)


def write_token() -> str:
    """This task attempt's part of a file name: partition, stage, attempt; no other attempt has the same."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return NO_TASK
    return f"{context.partitionId()}-{context.stageId()}-{context.taskAttemptId()}"


def row_batch(row: Any) -> pa.RecordBatch:
    """The report of a task, as Spark brings it to the driver."""
    return pa.RecordBatch.from_pylist([asdict(row)], schema=_schema_of(type(row)))


def row_type(kind: type[Any]) -> StructType:
    """The columns of such reports in Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(_schema_of(kind))


def collected(frame: DataFrame, kind: type[R], what: str) -> list[R]:
    """Runs what makes these reports, and brings them to the driver. `what` describes it to the user who waits."""
    with with_progress(frame.sparkSession, what):
        return [kind(**row.asDict()) for row in frame.collect()]


def _schema_of(kind: type[Any]) -> pa.Schema:
    return pa.schema([(one.name, pa.string() if one.type == "str" else pa.int64()) for one in fields(kind)])
