"""Between Spark's schemas and Arrow's, the sessions that jobs run in, and their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import comment_of, with_comment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


T = TypeVar("T")
_TASKS_MAX = 10_000
_COMMENT = "comment"  # of a field's metadata, where Spark itself has it


def to_arrow(schema: StructType) -> pa.Schema:
    """A Spark schema as the table stores it: every column nullable, timestamps in UTC, comments of columns kept.

    Errors: `InvalidRequest` for a type that Hudi's tables have not. Narrow whole numbers pass, as values of wider ones.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    # Spark 4.0 says UTC by itself, and later versions ask for the zone.
    for field in schema:
        _refuse_unknown(field.dataType, field.name)
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    try:
        converted = to_arrow_schema(schema, **zone)
    except PySparkException as error:
        raise InvalidRequest(f"a column's type cannot be stored: {error}") from error
    comments = [field.metadata.get(_COMMENT) for field in schema]
    return pa.schema(
        [with_comment(one.name, one.type, comment) for one, comment in zip(converted, comments, strict=True)]
    )


_STORED = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "decimal")
_STORED_AS = {"variant": "string", "void": "the type that it is to have", "geo": "binary", "interval": "bigint"}


def _refuse_unknown(kind: DataType, column: str) -> None:
    """Arrow would make something else of some types, without a word."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    name = kind.simpleString()
    if isinstance(kind, ArrayType):
        _refuse_unknown(kind.elementType, f"{column}.element")
    elif isinstance(kind, StructType) and kind.fields:
        for field in kind.fields:
            _refuse_unknown(field.dataType, f"{column}.{field.name}")
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        _refuse_unknown(kind.valueType, f"{column}.value")
    elif name.partition("(")[0] not in (*_STORED, "timestamp", "timestamp_ntz"):
        near = next((near for start, near in _STORED_AS.items() if name.startswith(start)), "string")
        if isinstance(kind, MapType):
            near = "one whose keys are strings"
        raise InvalidRequest(f"the column {column!r} is {name}, which Hudi's tables do not have: cast it to {near}")


def to_spark(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark reads it; timestamps become Spark's session-zone ones."""
    from pyspark.sql.pandas.types import from_arrow_schema

    converted = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    for field, one in zip(converted, schema, strict=True):
        if comment_of(one):
            field.metadata = {**field.metadata, _COMMENT: comment_of(one)}
    return converted


def renamings(given: Sequence[str], known: Sequence[str], spark: SparkSession) -> dict[str, str]:
    """The names to give to columns that are `known` in another case, under spark.sql.caseSensitive=false.

    Errors: `InvalidRequest` for two that would have one name.
    """
    alike = len({name.lower() for name in given}) < len(given)
    if (not alike and set(given) <= set(known)) or spark.conf.get("spark.sql.caseSensitive") == "true":
        return {}
    by_case = {name.lower(): name for name in known}
    found: dict[str, str] = {}
    for name in given:
        other = next((one for one in given if one != name and one.lower() == name.lower()), None)
        if other is not None:
            raise InvalidRequest(
                f"the columns {name!r} and {other!r} are one under spark.sql.caseSensitive=false: drop one of them"
            )
        if by_case.get(name.lower(), name) != name:
            found[name] = by_case[name.lower()]
    return found


def use_in_thread(spark: SparkSession) -> None:
    """Lets `format("lakelatch")` be used from a thread other than the one that made the session.

    Classic Spark looks a format up through the thread's *active session*, which other threads do not have. The function
    API needs no such call, and neither does Spark Connect, where this does nothing.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def default_parallelism(df: DataFrame) -> int:
    """Spark's own number of shuffle partitions."""
    return int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)


def cores_of(spark: SparkSession) -> int | None:
    """How many tasks Spark runs at once; None under Spark Connect, which does not say."""
    context = getattr(spark, "_sc", None)
    return None if context is None else int(context.defaultParallelism)


def for_each(
    spark: SparkSession, things: Sequence[T], work: Callable[[T], Iterable[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """The batches that `work` makes of each thing, on the executors, in a task for each thing, up to 10,000 tasks."""
    tasks = spark.range(0, len(things), 1, numPartitions=min(len(things), _TASKS_MAX))
    return tasks.mapInArrow(partial(_work_on, work, tuple(things)), schema)


def _work_on(
    work: Callable[[T], Iterable[pa.RecordBatch]], things: tuple[T, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield from work(things[index])
