"""What methods are given, as options and frames: times, names, frames of other libraries, conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.format.record_keys import DEFAULT_PARTITION
from lakelatch.spark.options import AS_OF, BEGIN_INSTANT, COLUMNS, END_INSTANT, INCREMENTAL, QUERY_TYPE, READ_META
from lakelatch.timegen.instant_time import parse_user_instant, to_instant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Options: TypeAlias = Mapping[str, object]
Time: TypeAlias = "str | datetime"
Expression: TypeAlias = "str | Column"
_UNNAMED = re.compile(r"__index_level_[0-9]+__")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def instant_of(time: Time) -> str:
    """The 17-digit instant of a time: a text as options have it, or a datetime that says its zone."""
    if isinstance(time, str):
        return parse_user_instant(time)
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise InvalidRequest(
            f"{time!r} is no time that can be placed: give a datetime with a zone (datetime.now(timezone.utc)), or a "
            "text in UTC such as '2026-11-21 12:00:00'"
        )
    return to_instant((time - _EPOCH) // timedelta(milliseconds=1))


def moment(as_of: Time | None) -> dict[str, object]:
    """The options of a read as of a time, or of now."""
    return {} if as_of is None else {AS_OF: instant_of(as_of)}


def window(after: Time, until: Time | None) -> dict[str, object]:
    """The options of an incremental read."""
    end = {} if until is None else {END_INSTANT: instant_of(until)}
    return {QUERY_TYPE: INCREMENTAL, BEGIN_INSTANT: instant_of(after), **end}


def merged(options: Options | None, more: Options | None = None) -> dict[str, object]:
    """Options with others that come first; keys count in any case, as in Spark."""
    given = [*(options or {}).items(), *(more or {}).items()]
    return {key.lower(): value for key, value in given}


def names_of(names: str | Iterable[str], what: str) -> str:
    """One name or several, as options have them. Errors: `InvalidRequest`."""
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        if not isinstance(name, str) or not name or "," in name:
            raise InvalidRequest(f"{what}={names!r}: name columns, which may not hold a comma", option=what)
    return ",".join(found)


def reading(options: Options, columns: Iterable[str] | None, meta_columns: bool | None) -> dict[str, object]:
    """The options of a read of some columns, with or without meta columns; None of either: as the options say."""
    found = dict(options)
    if columns is not None:
        found[COLUMNS] = names_of(columns, "columns")
    if meta_columns is not None:
        found[READ_META] = meta_columns
    return found


def frame_of(spark: SparkSession, data: Any) -> DataFrame:
    """A Spark frame; one of pandas, or a table of Arrow, is handed to Spark, without an unnamed index.

    Errors: `InvalidRequest`.
    """
    if hasattr(data, "sparkSession") and hasattr(data, "mapInArrow"):
        frame: DataFrame = data
        return frame
    if isinstance(data, pa.Table):
        return spark.createDataFrame(without_index(data))
    if is_pandas(data):
        return spark.createDataFrame(with_named_index(data))
    raise InvalidRequest(
        f"a {type(data).__module__}.{type(data).__qualname__} is no frame: give a Spark or pandas DataFrame, or an "
        "Arrow table (polars: frame.to_arrow())"
    )


def is_pandas(data: object) -> bool:
    """Whether it is a frame of pandas, which is not imported for it."""
    kinds = (f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(data).__mro__)
    return "pandas.DataFrame" in kinds


def with_named_index(frame: Any) -> Any:
    """A frame of pandas in which named levels of its index are columns. An index without a name is not data.

    Errors: `InvalidRequest` for a level that is called as a column is.
    """
    names = [name for name in frame.index.names if name is not None]
    if not names:
        return frame
    try:
        return frame.reset_index(level=names)
    except ValueError as error:
        raise InvalidRequest(
            f"the index of the frame ({', '.join(map(str, names))}) cannot become columns ({error}): rename it, or "
            "leave it out with frame.reset_index(drop=True)"
        ) from error


def without_index(table: pa.Table) -> pa.Table:
    """A table of Arrow without the columns that pandas' index becomes where it has no name (`__index_level_0__`)."""
    try:
        index = (table.schema.pandas_metadata or {}).get("index_columns", ())
    except ValueError:  # no JSON: by somebody else
        return table
    unnamed = [name for name in index if isinstance(name, str) and _UNNAMED.fullmatch(name)]
    return table.drop_columns([name for name in unnamed if name in table.column_names])


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
    """What tells apart the folders of a partition field's values: those of null and of an empty text are one."""
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
