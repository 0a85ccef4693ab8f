"""Arguments of methods as frames, columns and conditions of Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakelatch.engine.options.calls.arguments import is_pandas, with_named_index, without_index
from lakelatch.errors import InvalidRequest
from lakelatch.format.record_keys import DEFAULT_PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


Expression: TypeAlias = "str | Column"


def frame_of(spark: SparkSession, data: Any) -> DataFrame:
    """A Spark frame; one of pandas, or a table of Arrow, is handed to Spark, without an unnamed index.

    Errors: `InvalidRequest`.
    """
    if hasattr(data, "sparkSession") and hasattr(data, "mapInArrow"):
        frame: DataFrame = data
        return frame
    if isinstance(data, pa.Table):
        table = without_index(data)
        # Of a table with an empty batch, Spark 4.3 drops all that follows it.
        batches = [batch for batch in table.to_batches() if batch.num_rows]
        return spark.createDataFrame(pa.Table.from_batches(batches, table.schema))
    if is_pandas(data):
        return spark.createDataFrame(with_named_index(data))
    raise InvalidRequest(
        f"a {type(data).__module__}.{type(data).__qualname__} is no frame: give a Spark or pandas DataFrame, or an "
        "Arrow table (polars: frame.to_arrow())"
    )


def schema_of(schema: StructType | pa.Schema | str) -> StructType:
    """A Spark schema, from one of Arrow or from text such as `id long, v string`. Errors: `InvalidRequest`."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    try:
        parsed = from_arrow_schema(schema) if isinstance(schema, pa.Schema) else StructType.fromDDL(schema)
    except PySparkException as error:
        raise InvalidRequest(f"schema={schema!r} cannot be understood: {first_line(error)}", option="schema") from error
    if not isinstance(parsed, StructType):
        raise InvalidRequest(f"schema={schema!r} is one type: name columns, as in 'id long, v string'", option="schema")
    return parsed


def column_of(expression: Expression) -> Column:
    """A column, or SQL text as one."""
    from pyspark.sql import functions

    return functions.expr(expression) if isinstance(expression, str) else expression


def analysed(make: Callable[[], DataFrame], what: str) -> DataFrame:
    """The frame, after Spark has understood it: `InvalidRequest` for a column that is not there, and the like."""
    from pyspark.errors import AnalysisException

    try:
        frame = make()
        _ = frame.schema  # over Spark Connect nothing is looked at before
    except AnalysisException as error:
        raise InvalidRequest(f"{what} cannot be carried out: {first_line(error)}") from error
    return frame


def checked(
    column: Column, refused: Column, words: tuple[str, str], identity: Iterable[str], row: Mapping[str, Column]
) -> Column:
    """The column; where `refused` is true, its evaluation ends the job with `InvalidRequest`.

    In its words the identity of the row (`id=7, day=2026-11-21`) stands between the two texts.
    """
    from pyspark.sql import functions

    before, after = words
    parts = [functions.concat(functions.lit(f"{name}="), row[name].cast("string")) for name in identity]
    said = functions.concat(
        functions.lit(f"[{InvalidRequest.code}] {before}"),
        functions.concat_ws(", ", *parts),
        functions.lit(f"{after}\n"),
    )
    return functions.when(refused, functions.raise_error(said)).otherwise(column)


def all_same(pairs: Iterable[tuple[Column, Column]]) -> Column:
    """Whether the two of each pair are equal, or both null."""
    return reduce(and_, (one.eqNullSafe(other) for one, other in pairs))


def folder_value(column: Column, kind: DataType) -> Column:
    """A column with one value for each folder of a partition field: those of null and of an empty text are one."""
    from pyspark.sql import functions
    from pyspark.sql.types import StringType

    if not isinstance(kind, StringType):
        return column
    column = column.cast(kind)
    return functions.when(column != "", column).otherwise(functions.lit(DEFAULT_PARTITION))


def same_rows(
    identity: StructType, keys: Collection[str], one: Callable[[str], Column], other: Callable[[str], Column]
) -> Column:
    """Whether two rows are one, by the columns of the record key and of the partition: `one` and `other` have them.

    A field of the key tells null from an empty text, and a folder does not.
    """
    return all_same(
        (one(field.name), other(field.name))
        if field.name in keys
        else (folder_value(one(field.name), field.dataType), folder_value(other(field.name), field.dataType))
        for field in identity
    )


def first_line(error: Exception) -> str:
    """Of Spark's errors the line that says what is wrong."""
    return str(error).strip().partition("\n")[0]
