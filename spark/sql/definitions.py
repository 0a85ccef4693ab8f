"""CREATE, ALTER and DROP: the table at its place, and its name in Spark's catalog."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from lakelatch.engine.options.write import (
    BUCKET_COUNT,
    MERGE_SCHEMA,
    NUMBERS_TO_TEXT,
    OPERATION,
    ORDERING_FIELD,
    PARTITION_FIELD,
    RECORD_KEY,
    TABLE_TYPE,
)
from lakelatch.errors import InvalidRequest
from lakelatch.format.evolution import may_become
from lakelatch.spark.session.catalog import FORMAT, columns_text, look_up, permanent, plain_sql, quoted, text_literal
from lakelatch.spark.session.columns import schema_of
from lakelatch.spark.session.spark_types import to_arrow
from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.reads import Reads
from lakelatch.spark.sql.session import known_of
from lakelatch.spark.sql.target import Target, result, target_of
from lakelatch.spark.sql.tokens import STRING, Cursor, Name, Token, tokens_of
from lakelatch.spark.table import Table
from lakelatch.spark.write.frames_in import write
from lakelatch.timeline.actions import INSERT, UPSERT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OF_HUDI = {  # what Hudi's SQL calls them
    "primarykey": RECORD_KEY,
    "precombinefield": ORDERING_FIELD,
    "orderingfields": ORDERING_FIELD,
    "type": TABLE_TYPE,
}
_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
_MORE_OF_COLUMNS = {"FIRST", "AFTER", "DEFAULT", "GENERATED"}
_CLAUSES = ("USING", "OPTIONS", "TBLPROPERTIES", "PARTITIONED", "CLUSTERED", "LOCATION", "COMMENT", "AS")


@dataclass
class Definition:
    """What a CREATE TABLE says."""

    name: Name
    ignores: bool
    columns: list[str] = field(default_factory=list)
    options: dict[str, object] = field(default_factory=dict)
    partitions: list[str] = field(default_factory=list)
    location: str = ""
    query: str = ""

    @property
    def is_path(self) -> bool:
        return self.name.parts[0].lower() == FORMAT and "/" in self.name.parts[-1]


def create(reads: Reads, cursor: Cursor) -> DataFrame | None:
    """`CREATE TABLE t (...) USING lakelatch ... [AS query]`, and temporary views `USING lakelatch`."""
    cursor.expect("CREATE")
    replaces = cursor.take("OR", "REPLACE")
    is_global = cursor.take("GLOBAL")
    is_temporary = cursor.take("TEMPORARY") or cursor.take("TEMP")
    if cursor.take("VIEW"):
        return _view(reads, cursor, is_temporary, is_global)
    cursor.take("EXTERNAL")
    if not cursor.take("TABLE"):
        return None
    ignores = cursor.take("IF", "NOT", "EXISTS")
    found = Definition(cursor.name(), ignores)
    if cursor.take("LIKE"):
        _refuse_likeness(reads, found.name, cursor.name())
    if cursor.sees("("):
        found.columns = cursor.items()
    if not _is_ours(cursor):
        return None
    if replaces:
        raise InvalidStatement(
            f"CREATE OR REPLACE TABLE {found.name}: use INSERT OVERWRITE, which keeps the history, or DROP TABLE and "
            "CREATE TABLE"
        )
    while not cursor.at_end:
        _clause(found, cursor)
    return _made(reads, found)


def _refuse_likeness(reads: Reads, name: Name, other: Name) -> None:
    if reads.look_up(other) is not None:
        raise InvalidStatement(
            f"CREATE TABLE {name} LIKE {other}: Spark's catalog does not know how {other} was made; name the columns, "
            f"or use CREATE TABLE {name} USING ... AS SELECT * FROM {other} WHERE false"
        )


def _is_ours(cursor: Cursor) -> bool:
    """Whether the format is ours, wherever it is named."""
    for token, after in zip(cursor.tokens[cursor.place :], cursor.tokens[cursor.place + 1 :], strict=False):
        if token.upper in ("AS", "SELECT"):
            return False
        if token.upper == "USING":
            return after.name.lower() == FORMAT
    return False


def _clause(found: Definition, cursor: Cursor) -> None:
    word = cursor.next().upper
    if word == "USING":
        cursor.next()
    elif word in ("OPTIONS", "TBLPROPERTIES"):
        for key, value in pairs(cursor):
            _option(found, key, value)
    elif word == "PARTITIONED":
        cursor.expect("BY")
        for item in cursor.items():
            tokens = tokens_of(item)
            if any(token.text == "(" for token in tokens[:2]):
                raise InvalidStatement(f"PARTITIONED BY ({item}): name columns; no function of them makes a partition")
            if len(tokens) > 1:
                found.columns.append(item)
            found.partitions.append(tokens[0].name)
    elif word == "CLUSTERED":
        cursor.expect("BY")
        cursor.items()
        cursor.expect("INTO")
        found.options[BUCKET_COUNT] = cursor.next().text
        cursor.expect("BUCKETS")
    elif word == "LOCATION":
        found.location = text_of(cursor.next())
    elif word == "COMMENT":
        cursor.next()
    elif word == "AS":
        found.query = ("SELECT * FROM " if cursor.take("TABLE") else "") + cursor.until()
    else:
        cursor.place -= 1
        raise cursor.wrong(f"one of {', '.join(_CLAUSES)} is expected")


def _option(found: Definition, key: str, value: str) -> None:
    name = _OF_HUDI.get(key.lower(), key)
    if name == "path":
        found.location = value
    elif name.startswith(("hoodie.", "lakelatch.", "fs.")):
        found.options[name] = _TYPES.get(value.lower(), value) if name == TABLE_TYPE else value
    else:
        raise InvalidStatement(
            f"the property {key!r} is not known: primaryKey, preCombineField, type, and those of docs/options.md are"
        )


def _made(reads: Reads, found: Definition) -> DataFrame:
    spark = reads.spark
    if found.partitions:
        found.options[PARTITION_FIELD] = ",".join(found.partitions)
    rows = reads.frame(found.query) if found.query else None
    schema = rows.schema if rows is not None else _schema(found)
    place = found.name.parts[-1] if found.is_path else found.location
    there = bool(place) and Table.is_table(place, found.options)
    if schema is None:
        if not there:
            raise InvalidStatement(
                f"CREATE TABLE {found.name}: name columns, or the LOCATION of a table that is there", "MISSING_COLUMNS"
            )
        schema = Table(spark, place, found.options).schema
    if there and (rows is not None or (found.is_path and not found.ignores)):
        raise InvalidStatement(f"there is a table at {place} already", "TABLE_OR_VIEW_ALREADY_EXISTS")
    if found.is_path:
        return _filled(reads, found, place, schema, rows)
    if not _catalogued(reads, found, schema):
        return result_of_nothing(reads)
    entered = permanent(spark, quoted(found.name.parts))  # a temporary view may have the name as well
    try:
        if not place:
            made = look_up(spark, entered)
            place = made.path if made is not None else ""
        return _filled(reads, found, place, schema, rows)
    except BaseException:
        if there or not (place and Table.is_table(place, found.options)):  # else it may hold what was written
            plain_sql(spark, f"DROP TABLE IF EXISTS {quoted(entered)}")
        raise


def _schema(found: Definition) -> StructType | None:
    columns = []
    for item in found.columns:
        primary = re.match(r"\s*PRIMARY\s+KEY\s*\(([^)]*)\)", item, re.IGNORECASE)
        if primary:
            found.options[RECORD_KEY] = ",".join(token.name for token in tokens_of(primary[1]) if token.text != ",")
        else:
            columns.append(item)
    return _columns(columns, _names(found.options.get(RECORD_KEY))) if columns else None


def _names(fields: object) -> list[str]:
    return [name.strip() for name in str(fields or "").split(",")]


def _columns(texts: list[str], keys: Collection[str] = ()) -> StructType:
    """The columns of a definition.

    Errors: `InvalidStatement` for NOT NULL, which no writer would heed, but in columns of the key, and for more words.
    """
    try:
        schema = schema_of(", ".join(texts))
    except InvalidRequest as error:
        more = sorted({word for text in texts for word in _words_behind(text)} & _MORE_OF_COLUMNS)
        if not more:
            raise
        raise InvalidStatement(
            f"{', '.join(more)} of a column ({', '.join(texts)}): a table has no place for it. Columns have a name and "
            "a type, are listed by name, and are null where a row brings no value"
        ) from error
    strict = [one.name for one in schema if not one.nullable and one.name.lower() not in map(str.lower, keys)]
    if strict:
        raise InvalidStatement(
            f"NOT NULL of the column(s) {', '.join(strict)}: a table has no place for it, so that writers would pass "
            "over it. Leave it out, and check the rows before they are written"
        )
    return schema


def _words_behind(text: str) -> Iterator[str]:
    """The words behind a column's name, without those within its type, where fields may have any name."""
    depth = 0
    for token in tokens_of(text)[1:]:
        depth += (token.text in "(<") - (token.text in ")>")
        if not depth:
            yield token.upper


def _catalogued(reads: Reads, found: Definition, schema: StructType) -> bool:
    """Makes the name in Spark's catalog; False if it is there and that is to be ignored."""
    location = f" LOCATION {text_literal(found.location)}" if found.location else ""
    kept = ", ".join(f"{text_literal(key)} = {text_literal(str(value))}" for key, value in found.options.items())
    properties = f" TBLPROPERTIES ({kept})" if kept else ""
    try:
        plain_sql(
            reads.spark,
            f"CREATE TABLE {quoted(found.name.parts)} ({columns_text(schema)}) USING {FORMAT}{location}{properties}",
        )
    except AnalysisException as error:
        if found.ignores and "ALREADY_EXISTS" in (error.getCondition() or ""):
            return False
        raise
    known_of(reads.spark).forget()
    return True


def _filled(reads: Reads, found: Definition, place: str, schema: StructType, rows: DataFrame | None) -> DataFrame:
    """Makes the table at its place, with the rows of the query."""
    if rows is not None:
        return result(reads, write(rows, place, {**found.options, OPERATION: INSERT}))
    if found.options.get(RECORD_KEY):
        Table.create(
            reads.spark,
            place,
            schema,
            key=_names(found.options[RECORD_KEY]),
            if_exists="ignore",
            options=found.options,
        )
    return result_of_nothing(reads)


def _view(reads: Reads, cursor: Cursor, is_temporary: bool, is_global: bool) -> DataFrame | None:
    cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name()
    if not cursor.sees("USING"):
        place = next((at for at, token in enumerate(cursor.tokens) if token.upper == "AS"), None)
        if place is not None:
            cursor.place = place + 1
            if reads.finds(cursor.until()):
                raise InvalidStatement(
                    f"CREATE VIEW {name} AS a query of a table of Lakelatch: the view would stay at one moment. Use a "
                    f"common table expression, or CREATE TEMPORARY VIEW {name} USING lakelatch OPTIONS (path '...')"
                )
        return None
    cursor.expect("USING")
    if cursor.next().name.lower() != FORMAT:
        return None
    if not is_temporary:
        raise InvalidStatement(f"CREATE VIEW {name} USING lakelatch: say CREATE TEMPORARY VIEW, or CREATE TABLE")
    cursor.expect("OPTIONS")
    options: dict[str, object] = dict(pairs(cursor))
    cursor.finish()
    path = options.pop("path", None)
    if path is None:
        raise InvalidStatement(f"CREATE TEMPORARY VIEW {name} USING lakelatch: add the option path '/data/...'")
    plain = name.parts[-1]
    Table.for_path(reads.spark, str(path), options).create_view(f"global_temp.{plain}" if is_global else plain)
    known_of(reads.spark).forget()
    return result_of_nothing(reads)


def alter(reads: Reads, cursor: Cursor) -> DataFrame | None:
    """`ALTER TABLE t ADD COLUMNS (...)`, and `ALTER TABLE t ALTER COLUMN c TYPE ...`"""
    cursor.expect("ALTER")
    if not cursor.take("TABLE"):
        return None
    name = cursor.name()
    target = target_of(reads, name, None, "ALTER TABLE")
    if target is None:
        return None
    if cursor.take("ADD", "COLUMNS") or cursor.take("ADD", "COLUMN"):
        ignores = cursor.take("IF", "NOT", "EXISTS")
        items = cursor.items() if cursor.sees("(") else [cursor.until()]
        cursor.finish()
        return _added(reads, target, _columns(items), ignores)
    if cursor.take("ALTER") or cursor.take("CHANGE"):
        cursor.take("COLUMN")
        column = cursor.name()
        if cursor.take("TYPE") and len(column.parts) == 1:
            kind = cursor.until()
            return _widened(reads, target, target.column(column.parts[0]), kind)
    raise InvalidStatement(
        f"ALTER TABLE {name}: columns are added (ADD COLUMNS) and their types widened (ALTER COLUMN c TYPE t); all "
        "else of a table of Lakelatch stays as it was made. For another name, CREATE TABLE ... LOCATION '...'"
    )


def _added(reads: Reads, target: Target, more: StructType, ignores: bool) -> DataFrame:
    there = {name.lower() for name in target.columns}
    twice = [one.name for one in more if one.name.lower() in there]
    if twice and not ignores:
        raise InvalidStatement(f"the table has the column(s) {', '.join(twice)} already", "FIELD_ALREADY_EXISTS")
    schema = target.schema
    for one in more:
        if one.name.lower() not in there:
            schema = schema.add(one)
    return _with_schema(reads, target, schema)


def _widened(reads: Reads, target: Target, column: str, kind: str) -> DataFrame:
    wanted = schema_of(f"{quoted([column])} {kind}")
    there = target.schema[column]
    if not may_become(to_arrow(StructType([there])).types[0], to_arrow(wanted).types[0]):
        raise InvalidStatement(
            f"the column {column!r} is {there.dataType.simpleString()}, which does not become {kind}: a type becomes "
            "one that holds each of its values as it is. Add another column, and UPDATE it",
            "NOT_SUPPORTED_CHANGE_COLUMN",
        )
    return _with_schema(reads, target, StructType([wanted[0] if one.name == column else one for one in target.schema]))


def _with_schema(reads: Reads, target: Target, schema: StructType) -> DataFrame:
    """A commit without rows, whose columns are the table's from then on."""
    options = {**target.options, OPERATION: UPSERT, MERGE_SCHEMA: True, NUMBERS_TO_TEXT: True}
    return result(reads, write(reads.spark.createDataFrame([], schema), target.path, options))


def drop(reads: Reads, cursor: Cursor) -> DataFrame | None:
    """`DROP TABLE t` is Spark's: it takes the name away, and the files of a table that has no LOCATION."""
    cursor.expect("DROP")
    if cursor.take("TABLE"):
        cursor.take("IF", "EXISTS")
        name = cursor.name()
        if name.parts[0].lower() == FORMAT and "/" in name.parts[-1]:
            raise InvalidStatement(f"DROP TABLE {name}: a path has no name to drop; remove its folder")
    return None


def pairs(cursor: Cursor) -> list[tuple[str, str]]:
    """Keys and values in brackets: `(primaryKey = 'id', 'a.b' 'c')`."""
    found = []
    for item in cursor.items():
        inner = Cursor.of(item)
        first = inner.next()
        key = text_of(first)
        if first.kind != STRING:
            while inner.take("."):
                key += "." + inner.next().name
        inner.take("=")
        found.append((key, text_of(inner.next())))
        inner.finish()
    return found


def text_of(token: Token) -> str:
    """What a text in quotes says, or a word."""
    if token.kind != STRING:
        return token.name
    return re.sub(r"\\(.)", r"\1", token.text[1:-1]) if token.text[0] in "'\"" else token.text[2:-1]


def result_of_nothing(reads: Reads) -> DataFrame:
    """The answer of a statement that has none, as Spark gives it."""
    return reads.spark.createDataFrame([], StructType([]))


__all__ = ["alter", "create", "drop"]
