"""What the words of Spark's writers become: `lakelatch.write`, or a method of `Table`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lakelatch.engine.options.calls.arguments import merged
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.write import OPERATION, PARTITION_FIELD
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import META_COLUMNS
from lakelatch.spark.data_source import overwriting
from lakelatch.spark.enabled.said import Said
from lakelatch.spark.session.catalog import (
    CatalogTable,
    look_up,
    path_of,
    permanent,
    plain_path,
    plain_sql,
    quoted,
    register,
)
from lakelatch.spark.session.refusals import (
    PATH_EXISTS,
    TABLE_EXISTS,
    TOO_FEW_COLUMNS,
    TOO_MANY_COLUMNS,
    RefusedByAnalysis,
)
from lakelatch.spark.sql.session import known_of
from lakelatch.spark.table import Table
from lakelatch.spark.write.frames_in import write
from lakelatch.timeline.actions import INSERT_OVERWRITE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APPEND, OVERWRITE, IGNORE = "append", "overwrite", "ignore"
_MODES = (None, APPEND, OVERWRITE, IGNORE, "error", "errorifexists", "default")
_PLACE, _CONDITION, _DYNAMIC = "path", "replacewhere", "partitionoverwritemode"
_DYNAMIC_BY_SESSION = "spark.sql.sources.partitionOverwriteMode"
_ELSEWHERE = {
    "bucketBy": "set hoodie.bucket.index.num.buckets (and hoodie.bucket.index.hash.field)",
    "sortBy": "set hoodie.bulkinsert.user.defined.partitioner.sort.columns, or cluster the table",
    "clusterBy": "set hoodie.clustering.plan.strategy.sort.columns, and call lakelatch.cluster",
}


def save(frame: DataFrame, said: Said, path: str | None) -> None:
    """`save(path)`. Without a mode a table that is there is an error, as in Spark."""
    place = path if path is not None else said.options.get(_PLACE)
    if not place:
        raise InvalidRequest(
            "the option 'path' is missing: name the table's folder, save('/data/trips')", option="path"
        )
    _save_at(frame, said, str(place), _options(said))


def save_as_table(frame: DataFrame, said: Said, name: str) -> None:
    """`saveAsTable(name)`: into the table of the session catalog, which is entered there if it is new."""
    spark = frame.sparkSession
    path = path_of(name)
    if path is not None:
        _save_at(frame, said, path, _options(said))
        return
    found = look_up(spark, permanent(spark, name))
    if found is None:
        create_table(frame, said, name)
    elif said.mode not in (APPEND, OVERWRITE, IGNORE):
        raise RefusedByAnalysis.of(
            TABLE_EXISTS, f"there is a table {found.name} already: say mode('append'), 'overwrite' or 'ignore'"
        )
    elif said.mode != IGNORE:
        write_into(frame, said, found)


def insert_into(frame: DataFrame, said: Said, found: CatalogTable) -> None:
    """`insertInto(name)`: columns are taken by their places, and no mode but `overwrite` says anything."""
    options = {**found.options, **_options(said)}
    names = Table.for_path(frame.sparkSession, found.path, options).schema.names
    given = [name for name in frame.columns if name not in META_COLUMNS]
    if len(given) != len(names):
        raise RefusedByAnalysis.of(
            TOO_FEW_COLUMNS if len(given) < len(names) else TOO_MANY_COLUMNS,
            f"insertInto takes columns by their places, and {found.name} has {', '.join(names)}, where the frame has "
            f"{', '.join(given)}: select them, or use saveAsTable or writeTo, which take them by name",
        )
    write_into(frame.select(*given).toDF(*names), said, found)


def write_into(frame: DataFrame, said: Said, found: CatalogTable, operation: str | None = None) -> None:
    """Writes rows into a table that is there, by the names of their columns; the mode says whether in its place."""
    if not found.is_ours:
        what = f"a table of {found.provider}" if found.provider else "a view"
        raise InvalidRequest(f"{found.name} is {what}: drop it, write in its format, or use another name")
    place = said.options.get(_PLACE)
    if place is not None and _absolute(place) != found.path:
        raise InvalidRequest(f"path={place}: the table {found.name} lies at {found.path}; leave it out", option=_PLACE)
    options: dict[str, object] = {**found.options, **_options(said)}
    if operation is not None:
        overwriting(options)  # which refuses a deletion
        options[OPERATION] = operation
    _write_at(frame, said, found.path, options)


def create_table(frame: DataFrame, said: Said, name: str) -> None:
    """Enters a table into the catalog, and writes it; the name goes again if this has made no table."""
    spark, path = frame.sparkSession, path_of(name)
    if path is not None:
        _save_at(frame, Said(options=said.options), path, _options(said))
        return
    options, place, there = _options(said), None, False
    if said.options.get(_PLACE) is not None:
        place = _absolute(said.options[_PLACE])
        _ensure_free(place, options, said.mode)
        there = Table.is_table(place, options)
    columns = frame.drop(*META_COLUMNS).schema
    Call(options).write()  # what is wrong with them is said before anything is made
    lasting = {key: str(value) for key, value in options.items() if key != OPERATION}
    found = register(spark, name, columns, lasting, place)
    known_of(spark).forget()
    try:
        _write_at(frame, said, found.path, options)
    except BaseException:
        if there or not Table.is_table(found.path, options):
            plain_sql(spark, f"DROP TABLE IF EXISTS {quoted(permanent(spark, name))}")
        raise


def _save_at(frame: DataFrame, said: Said, path: str, options: dict[str, object]) -> None:
    if said.mode == IGNORE and Table.is_table(path, options):
        return
    _ensure_free(path, options, said.mode)
    _write_at(frame, said, path, options)


def _ensure_free(path: str, options: dict[str, object], mode: str | None) -> None:
    """Errors: `RefusedByAnalysis` for a table that is there, unless the mode says what becomes of it."""
    if mode not in (APPEND, OVERWRITE) and Table.is_table(path, options):
        raise RefusedByAnalysis.of(
            PATH_EXISTS, f"there is a table at {path} already: say mode('append'), 'overwrite' or 'ignore'"
        )


def _write_at(frame: DataFrame, said: Said, path: str, options: dict[str, object]) -> None:
    condition = said.options.get(_CONDITION)
    if condition is not None:
        if said.mode != OVERWRITE:
            raise InvalidRequest(f"replaceWhere={condition}: it is for mode('overwrite')", option="replaceWhere")
        Table(frame.sparkSession, path, options).overwrite(frame, str(condition))
        return
    if said.mode == OVERWRITE:
        if OPERATION not in options and _only_touched(frame.sparkSession, said):
            options = {**options, OPERATION: INSERT_OVERWRITE}
        options = overwriting(options)
    write(frame, path, options)


def _only_touched(spark: SparkSession, said: Said) -> bool:
    """Whether an overwrite is of the partitions that the frame touches: by the option, or else by the session."""
    found = str(said.options.get(_DYNAMIC) or spark.conf.get(_DYNAMIC_BY_SESSION) or "static").lower()
    if found not in ("static", "dynamic"):
        raise InvalidRequest(f"partitionOverwriteMode={found}: it is 'static' or 'dynamic'", option=_DYNAMIC)
    return found == "dynamic"


def _absolute(place: object) -> str:
    """A path as catalogs have it, which would look for others below the warehouse."""
    found = plain_path(str(place))
    return found if "://" in found else os.path.abspath(found)


def _options(said: Said) -> dict[str, object]:
    """The options of a write, of which Spark's own words have been taken out."""
    if said.mode not in _MODES:
        raise InvalidRequest(f"mode({said.mode!r}): it is one of {', '.join(filter(None, _MODES))}", option="mode")
    if said.refused:
        word = said.refused[0]
        raise InvalidRequest(f"{word}() says nothing here: {_ELSEWHERE[word]}", option=word)
    options = {key: value for key, value in said.options.items() if key not in (_PLACE, _CONDITION, _DYNAMIC)}
    if not said.partition_by:
        return options
    fields, known = ",".join(said.partition_by), options.get(PARTITION_FIELD)
    if known is not None and str(known).replace(" ", "") != fields:
        raise InvalidRequest(f"partitionBy says {fields}, and {PARTITION_FIELD}={known}: leave one out")
    return merged(options, {PARTITION_FIELD: fields})
