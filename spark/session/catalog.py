"""Tables `USING lakelatch` of Spark's session catalog: where they lie, and the options that were said for them.

Spark tells a data source in Python neither, so the catalog is asked here: through the driver's JVM where there is one,
and by a statement over Spark Connect. Catalogs of others (`iceberg.db.t`) are left to Spark.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

FORMAT = "lakelatch"
_SESSION_CATALOG = "spark_catalog"
_PARTS = re.compile(r"`((?:[^`]|``)*)`|([^.`\s]+)")
_PROPERTIES = ("hoodie.", "lakelatch.", "fs.")  # of a table, that are options of ours
_NOT_OPTIONS = {"path", "serialization.format"}  # that catalogs keep beside what the user has said
_SECRET = re.compile(r"secret|passw|token|credential|access_?key|proxy_url", re.IGNORECASE)
_LOGIN = re.compile(r"://[^/]*@")
_states: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # of sessions: the JVM's parser and catalog
_PAIR = re.compile(r"([^=,\s\[]+)=(.*?)(?=, [^=,\s]+=|\]$)")  # of what Spark prints of properties
_REDACTED = "*********(redacted)"


@dataclass(frozen=True)
class CatalogTable:
    """What a name stands for. `path` and `options` are those of a table `USING lakelatch`."""

    name: str
    provider: str
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.provider == FORMAT


def parts_of(name: str) -> list[str]:
    """The parts of a name, without their quotes; none if it is no name, which Spark then says best."""
    parts, place = [], 0
    while place <= len(name):
        found = _PARTS.match(name, place)
        if found is None:
            return []
        parts.append(found[2] or found[1].replace("``", "`"))
        place = found.end()
        if place == len(name):
            return parts
        if name[place] != ".":
            return []
        place += 1
    return []


def quoted(parts: Sequence[str]) -> str:
    """The parts as one name in SQL."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def path_of(name: str) -> str | None:
    """The path in a name such as lakelatch.`/data/flights`; None for a name of a catalog."""
    parts = parts_of(name) if name[: len(FORMAT)].lower() == FORMAT else []
    return parts[1] if len(parts) == 2 and re.search(r"[/:\\]", parts[1]) else None


def plain_path(location: str) -> str:
    """A location of the catalog as paths are written here: without `file:`, and without a slash at its end."""
    place = urlsplit(location)
    return (unquote(place.path) if place.scheme == "file" else location).rstrip("/") or "/"


def plain_sql(spark: SparkSession, text: str, args: Any = None, **frames: Any) -> DataFrame:
    """What Spark itself makes of a statement, also in a session that `lakelatch.enable` was called for.

    Frames are named as `{name}`.
    """
    kind: type[SparkSession] = getattr(type(spark), "lakelatch_base", type(spark))
    return kind.sql(spark, text, args, **frames) if args else kind.sql(spark, text, **frames)


def find_table(spark: SparkSession, name: str) -> CatalogTable | None:
    """The table `USING lakelatch` of this name, or at the path that it has; None for all that Spark has to know."""
    path = path_of(name)
    if path is not None:
        return CatalogTable(name, FORMAT, path)
    found = look_up(spark, parts_of(name))
    return found if found is not None and found.is_ours else None


def look_up(spark: SparkSession, parts: Sequence[str]) -> CatalogTable | None:
    """What the session catalog has under a name, of whichever format; temporary views hide tables, as in Spark."""
    if not 1 <= len(parts) <= 3 or (len(parts) == 3 and parts[0].lower() != _SESSION_CATALOG):
        return None
    if hasattr(spark, "_jsparkSession"):
        return _from_jvm(spark, parts)
    return _from_statement(spark, parts)


def permanent(spark: SparkSession, name: str) -> list[str]:
    """The parts of a name with the current catalog and database in front, so that no temporary view is meant."""
    parts = parts_of(name)
    if len(parts) == 1:
        parts = [spark.catalog.currentDatabase(), *parts]
    if len(parts) == 2:
        parts = [spark.catalog.currentCatalog(), *parts]
    return parts


def register(
    spark: SparkSession, name: str, columns: StructType, options: Mapping[str, str], path: str | None = None
) -> CatalogTable:
    """Enters a table into the catalog: at a path, or where the catalog keeps the tables that it manages.

    Spark refuses a name that is taken. Options are kept without secrets, which anybody could read there.
    """
    kept = {
        key: value
        for key, value in options.items()
        if key.lower() not in _NOT_OPTIONS and not _SECRET.search(key) and not _LOGIN.search(value)
    }
    text = f"CREATE TABLE {quoted(parts_of(name))} ({columns_text(columns)}) USING {FORMAT}"
    if kept:
        text += f" OPTIONS ({', '.join(f'{text_literal(key)} {text_literal(value)}' for key, value in kept.items())})"
    location = "" if path is None else f" LOCATION {text_literal(path)}"
    plain_sql(spark, text + location)  # `createTable` reads it over Connect
    found = look_up(spark, permanent(spark, name))
    return found if found is not None else CatalogTable(name, FORMAT, path or "", kept)


def columns_text(schema: StructType) -> str:
    """The columns as a statement that makes a table has them."""
    return ", ".join(f"{quoted([one.name])} {_type(one.dataType)}{_comment(one)}" for one in schema)


def _comment(column: StructField) -> str:
    comment = column.metadata.get("comment")
    if not (isinstance(comment, str) and comment):
        return ""
    return f" COMMENT {text_literal(comment)}".replace("${", "\\u0024{")  # Spark would put a setting there


def _type(kind: DataType) -> str:
    """A type as SQL has it; `simpleString` leaves the names of fields without quotes."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quoted([one.name])}: {_type(one.dataType)}' for one in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return kind.simpleString()


def text_literal(value: str) -> str:
    """A text in quotes, as SQL has it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _from_jvm(spark: Any, parts: Sequence[str]) -> CatalogTable | None:
    from pyspark.errors import PySparkException

    state = _states.get(spark)
    if state is None:  # each call of the JVM takes a tenth of a millisecond, and `spark.table` waits for all of them
        java = spark._jsparkSession.sessionState()
        state = _states.setdefault(spark, (java.sqlParser(), java.catalog()))
    parser, catalog = state
    try:
        table = catalog.getTempViewOrPermanentTableMetadata(parser.parseTableIdentifier(quoted(parts[-2:])))
    except PySparkException:  # there is none, and Spark says so in its own words
        return None
    provider = str(table.provider().toString()).lower()  # Some(parquet); None of a view
    if provider != f"some({FORMAT})":
        return CatalogTable(quoted(parts), "" if provider == "none" else provider[5:-1])
    if (
        len(parts) < 3
        and spark._jsparkSession.sessionState().catalogManager().currentCatalog().name() != _SESSION_CATALOG
    ):
        return None
    properties, options = _pairs_of(table.properties()), _pairs_of(table.storage().properties())
    return _ours(parts, str(table.location().toString()), properties, options)


def _from_statement(spark: SparkSession, parts: Sequence[str]) -> CatalogTable | None:
    from pyspark.errors import PySparkException

    *scope, plain = parts
    where = f" IN {quoted(scope)}" if scope else ""
    try:
        found = plain_sql(spark, f"SHOW TABLE EXTENDED{where} LIKE {text_literal(plain)}").collect()
    except PySparkException:
        return None
    named = [row for row in found if row["tableName"].lower() == plain.lower()]
    if not named or (not scope and any(row["isTemporary"] for row in named)):
        return CatalogTable(quoted(parts), "") if named else None
    said = dict(
        re.findall(
            r"^(Provider|Location|Table Properties|Storage Properties): (.*)$", named[0]["information"], re.MULTILINE
        )
    )
    provider = said.get("Provider", "").lower()
    if provider != FORMAT:
        return CatalogTable(quoted(parts), provider)
    properties, options = (
        dict(_PAIR.findall(said.get(kind, ""))) for kind in ("Table Properties", "Storage Properties")
    )
    return _ours(parts, said.get("Location", ""), properties, options)


def _ours(
    parts: Sequence[str], location: str, properties: Mapping[str, str], options: Mapping[str, str]
) -> CatalogTable:
    kept = {key: value for key, value in properties.items() if key.startswith(_PROPERTIES)}
    kept |= {key: value for key, value in options.items() if key.lower() not in _NOT_OPTIONS}
    kept = {key: value for key, value in kept.items() if value != _REDACTED}
    return CatalogTable(quoted(parts), FORMAT, plain_path(location), kept)


def _pairs_of(entries: Any) -> dict[str, str]:
    """A map of the JVM."""
    found, rest = {}, entries.iterator()
    while rest.hasNext():
        entry = rest.next()
        found[str(entry._1())] = str(entry._2())
    return found
