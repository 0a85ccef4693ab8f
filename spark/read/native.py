"""Base files that Spark reads by itself: those without logs, whose columns it can read as the table has them now."""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.format.avro import COMMIT_TIME_COLUMN
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.footers.hidden import FloatLeaves
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.spark.spark_types import to_spark
from lakelatch.spark.table import OpenedTable
from lakelatch.spark.table_schema import parsed_schema, schema_at
from lakelatch.storage.uris import scheme_of
from lakelatch.timeline.table_config import PROPERTIES_PATH
from lakelatch.timeline.timeline import Timeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_ROW_BITS, _NUMBERED = 31, 8  # so many characters of a name
#: The columns in which `read_natively` gives each row's place: a number made of the beginning of its file's name, which
#: files of other partitions may share, and its own in the file; and the file's URI.
PLACE, PATH = "_lakelatch_place", "_lakelatch_path"
ROWS_MAX = 1 << _ROW_BITS  # of a file whose rows have places
_READ_BY_ALL = ("", "file")  # sessions know these places without a connector
_WIDENED_BY_SPARK = {(pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64())}
_SAME_IN_URIS = re.compile(r"[\w.=/:+-]*", re.ASCII)
_log = logging.getLogger("lakelatch.spark")


def split_by_types(
    table: OpenedTable, schema: pa.Schema, slices: list[FileSlice]
) -> tuple[list[FileSlice], list[FileSlice]]:
    """The slices whose base files Spark reads as this schema, and those with columns of types that it does not widen.

    Free for a table whose columns are those with which it was made. Of tables that others made Spark reads all.
    """
    config = table.config
    if not config.made_here or not config.create_schema:
        return slices, []
    if parsed_schema(config.create_schema, PROPERTIES_PATH).columns == table.schema:
        return slices, []
    timeline = Timeline.look(table.storage)
    completions = {one.requested: one.completion for one in timeline.completed}
    readable = {}
    for instant in {one.base_instant for one in slices}:
        began = schema_at(table.storage, config, timeline, instant).columns
        # A service that began then may have found columns that came while it was at work, nobody knows of which type.
        ended = completions.get(instant)
        after = table.schema if ended is None else schema_at(table.storage, config, timeline, ended).columns
        came_between = set(after.names).difference(began.names)
        readable[instant] = came_between.isdisjoint(schema.names) and all(
            began.field(one.name).type == one.type or (began.field(one.name).type, one.type) in _WIDENED_BY_SPARK
            for one in schema
            if one.name in began.names
        )
    return (
        [one for one in slices if readable[one.base_instant]],
        [one for one in slices if not readable[one.base_instant]],
    )


def read_natively(
    spark: SparkSession,
    table: OpenedTable,
    schema: pa.Schema,
    instants: tuple[str, ...] | None,
    slices: Sequence[FileSlice],
    with_places: bool = False,
) -> DataFrame | None:
    """What Spark reads by itself, of these instants; None if there is nothing, or it has no connector for the place.

    `with_places`: with `PLACE` and `PATH` as the first columns, for slices that `have_places`.
    """
    if not slices:
        return None
    parts = _by_trust(schema, slices)
    if scheme_of(table.storage.uri) in _READ_BY_ALL:
        return _native(spark, table, schema, instants, parts, with_places)
    try:
        frame = _native(spark, table, schema, instants, parts, with_places)
        _ = frame.schema  # over Spark Connect nothing is looked at before
        return frame
    except Exception as error:  # whatever a connector raises, or Spark for want of one
        place = scheme_of(table.storage.uri)
        reason = str(error).partition("\n")[0]
        _log.info("Spark does not read %s:// here, so base files are read by Arrow: %s", place, reason)
        return None


def _by_trust(schema: pa.Schema, slices: Sequence[FileSlice]) -> dict[bool, list[FileSlice]]:
    """The slices by whether conditions on floating point columns must not reach their base files' footers."""
    has_floats = bool(FloatLeaves.of(schema).columns)
    found: dict[bool, list[FileSlice]] = {}
    for one in slices:
        base = parse_data_file(one.base_file or "") if has_floats else None
        found.setdefault(isinstance(base, BaseFile) and base.hides_floats, []).append(one)
    return found


def _native(
    spark: SparkSession,
    table: OpenedTable,
    schema: pa.Schema,
    instants: tuple[str, ...] | None,
    parts: Mapping[bool, Sequence[FileSlice]],
    with_places: bool,
) -> DataFrame:
    from pyspark.sql import functions

    names = list(dict.fromkeys([*schema.names, COMMIT_TIME_COLUMN]))
    full = table.full_schema
    wanted = to_spark(pa.schema([full.field(name) for name in names]))
    frames = []
    for hides_floats, slices in parts.items():
        paths = [_literal(table.storage.full_path(found.base_path or "")) for found in slices]
        frame = spark.read.schema(wanted).parquet(*paths)
        if instants is not None:
            frame = frame.where(functions.col(COMMIT_TIME_COLUMN).isin(list(instants)))
        columns = [functions.col(name) for name in schema.names]
        if hides_floats:
            columns = [_not_pushed(functions.col(name), wanted[name].dataType).alias(name) for name in schema.names]
        frames.append(frame.select(*(_place_columns() if with_places else ()), *columns))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _place_columns() -> tuple[Column, Column]:
    from pyspark.sql import functions

    name, path = functions.col("_metadata.file_name"), functions.col("_metadata.file_path")
    number = functions.crc32(functions.substring(name, 1, _NUMBERED).cast("binary"))
    place = functions.shiftleft(number, _ROW_BITS) + functions.col("_metadata.row_index")
    return place.alias(PLACE), path.alias(PATH)


def _not_pushed(column: Column, kind: DataType) -> Column:
    """The column as it is, in a form that Spark compares with nothing before it has read the rows."""
    from pyspark.sql import functions
    from pyspark.sql.types import DoubleType, FloatType, StructType

    if isinstance(kind, (DoubleType, FloatType)):
        return functions.nanvl(column, column)
    if not isinstance(kind, StructType):
        return column  # of lists and maps Spark pushes no conditions down
    parts = [_not_pushed(column.getField(one.name), one.dataType).alias(one.name) for one in kind]
    return functions.when(column.isNotNull(), functions.struct(*parts))


def have_places(slices: Sequence[FileSlice]) -> bool:
    """Whether the rows of these slices' base files are told apart by `PLACE` and `path_number`.

    Spark knows a file by a URI, in which some signs of folders' names are not as they are.
    """
    paths = [found.base_path or "" for found in slices]
    numbers = {path_number(path) for path in paths}
    same_depth = len({path.count("/") for path in paths}) == 1
    return same_depth and len(numbers) == len(paths) and all(map(_SAME_IN_URIS.fullmatch, paths))


def place_of(path: str) -> int:
    """The `PLACE` of the first row in a file, whose path in the table is given; further ones follow it."""
    return zlib.crc32(path.rpartition("/")[2][:_NUMBERED].encode()) << _ROW_BITS


def path_number(path: str) -> int:
    """What stands for a file's path in the table; `path_number_in_spark` is the same."""
    return zlib.crc32(path.encode())


def path_number_in_spark(path: Column, slices: Sequence[FileSlice]) -> Column:
    """That of a column `PATH`. It costs ten times as much as a place."""
    from pyspark.sql import functions

    depth = (slices[0].base_path or "").count("/")
    return functions.crc32(functions.substring_index(path, "/", -1 - depth).cast("binary"))


def _literal(path: str) -> str:
    """The path for Spark, which takes paths for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
