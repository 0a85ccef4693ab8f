"""Base files that Spark reads by itself: those without logs, whose columns it can read as the table has them now."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.engine.read.places import NAME_CHARACTERS, PATH, PLACE, ROW_BITS
from lakelatch.engine.read.superseded import Superseded
from lakelatch.engine.table.table import OpenedTable
from lakelatch.format.avro import COMMIT_TIME_COLUMN
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.footers.hidden import FloatLeaves
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.spark.read.folders import Folders, Said
from lakelatch.spark.read.left_out import in_scans, is_left
from lakelatch.spark.read.listed import in_few_tasks
from lakelatch.spark.session.spark_types import to_spark
from lakelatch.storage.uris import scheme_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


_READ_BY_ALL = ("", "file")  # sessions know these places without a connector
_log = logging.getLogger("lakelatch.spark")


def read_natively(
    spark: SparkSession,
    table: OpenedTable,
    schema: pa.Schema,
    instants: tuple[str, ...] | None,
    slices: Sequence[FileSlice],
    with_places: bool = False,
    left_out: Mapping[str, Superseded] | None = None,
) -> DataFrame | None:
    """The rows that Spark reads by itself, of these instants; None if there are none, or Spark cannot do it here.

    `with_places`: with `PLACE` and `PATH` as the first columns, for slices that `have_places`. `left_out` says which
    rows of their base files are, by the files' paths. Both only where Spark `says_places`.
    """
    if not slices:
        return None
    folders = Folders.of(table.config, schema)
    if folders is not None and folders.by_path and not (with_places or left_out is not None or says_places(spark)):
        folders = None
    parts = _by_trust(folders, schema, slices)
    if scheme_of(table.storage.uri) in _READ_BY_ALL:
        return _native(spark, table, schema, instants, parts, with_places, left_out or {})
    try:
        frame = _native(spark, table, schema, instants, parts, with_places, left_out or {})
        _ = frame.schema  # over Spark Connect nothing is looked at before
        return frame
    except Exception as error:  # whatever a connector raises, or Spark for want of one
        place = scheme_of(table.storage.uri)
        reason = str(error).partition("\n")[0]
        _log.info("Spark does not read %s:// here, so base files are read by Arrow: %s", place, reason)
        return None


def says_places(spark: SparkSession) -> bool:
    """Whether Spark says of each row in which file it is, and where: its newer sources of files do not."""
    return "parquet" in (spark.conf.get("spark.sql.sources.useV1SourceList", "parquet") or "").lower().split(",")


def _by_trust(
    folders: Folders | None, schema: pa.Schema, slices: Sequence[FileSlice]
) -> dict[tuple[bool, Said | None], list[FileSlice]]:
    """The slices by whether conditions on floating point columns must not reach their base files' footers, and by how
    their folders say the values of the partition columns, so that Spark opens no file in vain."""
    has_floats = bool(FloatLeaves.of(schema).columns)
    found: dict[tuple[bool, Said | None], list[FileSlice]] = {}
    for one in slices:
        base = parse_data_file(one.base_file or "") if has_floats else None
        said = None if folders is None else folders.said(one.partition)
        trust = isinstance(base, BaseFile) and base.hides_floats, said
        found.setdefault(trust, []).append(one)
    return found


def _native(
    spark: SparkSession,
    table: OpenedTable,
    schema: pa.Schema,
    instants: tuple[str, ...] | None,
    parts: Mapping[tuple[bool, Said | None], Sequence[FileSlice]],
    with_places: bool,
    left_out: Mapping[str, Superseded],
) -> DataFrame:
    from pyspark.sql import functions

    more = [] if instants is None else [COMMIT_TIME_COLUMN]
    names = list(dict.fromkeys([*schema.names, *more]))
    full = table.full_schema
    wanted = to_spark(pa.schema([full.field(name) for name in names]))
    kinds = {field.name: field.dataType for field in wanted}
    frames = []
    for (hides_floats, said), slices in parts.items():
        of_paths = {} if said is None else said.columns(kinds)
        columns: list[Column | str] = [*schema.names]
        if hides_floats:
            columns = [_not_pushed(functions.col(name), kinds[name]).alias(name) for name in schema.names]
        columns = [of_paths.get(name, column) for name, column in zip(schema.names, columns, strict=True)]
        if with_places:
            columns = [*_place_columns(), *columns]
        # Spark puts the columns of folders last. A call of the JVM for each column is some of what a small query takes.
        is_as_wanted = said is None and not hides_floats and not with_places and not more
        for paths in in_scans([found.base_path or "" for found in slices], left_out):
            reader = spark.read.schema(wanted)
            if said is not None and not said.by_path:
                reader = reader.option("basePath", table.storage.full_path(""))
            with in_few_tasks(spark, len(paths)):
                frame = reader.parquet(*(_literal(table.storage.full_path(path)) for path in paths))
            if instants is not None:
                frame = frame.where(functions.col(COMMIT_TIME_COLUMN).isin(list(instants)))
            if left_out:
                frame = frame.where(is_left(spark, [left_out[path] for path in paths]))
            frames.append(frame if is_as_wanted else frame.select(*columns))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _place_columns() -> tuple[Column, Column]:
    from pyspark.sql import functions

    name, path = functions.col("_metadata.file_name"), functions.col("_metadata.file_path")
    number = functions.crc32(functions.substring(name, 1, NAME_CHARACTERS).cast("binary"))
    place = functions.shiftleft(number, ROW_BITS) + functions.col("_metadata.row_index")
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


def path_number_in_spark(path: Column, slices: Sequence[FileSlice]) -> Column:
    """That of a column `PATH`. It costs ten times as much as a place."""
    from pyspark.sql import functions

    depth = (slices[0].base_path or "").count("/")
    return functions.crc32(functions.substring_index(path, "/", -1 - depth).cast("binary"))


def read_overlays(spark: SparkSession, table: OpenedTable, schema: pa.Schema, paths: Sequence[str]) -> DataFrame:
    """The rows of overlays at these paths in the table."""
    frame = spark.read.schema(to_spark(schema))
    return frame.parquet(*(_literal(table.storage.full_path(path)) for path in paths))


def _literal(path: str) -> str:
    """The path for Spark, which takes paths for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
