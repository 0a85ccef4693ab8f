"""DELETE, UPDATE, INSERT and TRUNCATE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelatch.spark.sql.assignment import all_stored, fitting, stored
from lakelatch.spark.sql.errors import UNSUPPORTED, InvalidStatement, refuse_evolution
from lakelatch.spark.sql.forms import plain_form, without_defaults
from lakelatch.spark.sql.reads import Reads
from lakelatch.spark.sql.target import Target, checked_value, ensure_once, result, target_of
from lakelatch.spark.sql.tokens import Cursor, Name
from lakelatch.timeline.actions import INSERT, INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")
_DYNAMIC = "spark.sql.sources.partitionOverwriteMode"


def delete(reads: Reads, cursor: Cursor, common: str) -> DataFrame | None:
    """`DELETE FROM t [AS a] [WHERE ...]`"""
    cursor.expect("DELETE", "FROM")
    name = cursor.name()
    target = target_of(reads, name, cursor.alias("WHERE"), "DELETE FROM")
    if target is None:
        return None
    condition = _condition(reads, cursor, common)
    return result(reads, target.delete("true" if condition is None else condition))


def update(reads: Reads, cursor: Cursor, common: str) -> DataFrame | None:
    """`UPDATE t [AS a] SET x = ..., y = ... [WHERE ...]`"""
    cursor.expect("UPDATE")
    name = cursor.name()
    target = target_of(reads, name, cursor.alias("SET"), "UPDATE")
    if target is None:
        return None
    cursor.expect("SET")
    texts = assignments(target, cursor, common, "WHERE")
    condition = _condition(reads, cursor, common)
    values = all_stored(target.no_rows(), texts, target.schema, "the update")
    return result(reads, target.update(condition, values))


def assignments(target: Target, cursor: Cursor, common: str, *stops: str) -> dict[str, str]:
    """The columns that are given values, and these, up to some word."""
    found: dict[str, str] = {}
    while True:
        column, value = target.assigned(cursor.until(",", *stops))
        if column in found:
            raise InvalidStatement(f"{column} is given two values: name it once", "COLUMN_ALREADY_EXISTS")
        found[column] = target.reads.condition(value, common)
        if not cursor.take(","):
            return found


def _condition(reads: Reads, cursor: Cursor, common: str) -> str | None:
    if not cursor.take("WHERE"):
        cursor.finish()
        return None
    text = checked_value(cursor.until())
    cursor.finish()
    return reads.condition(text, common)


def insert(reads: Reads, cursor: Cursor, common: str) -> DataFrame | None:
    """`INSERT INTO | OVERWRITE [TABLE] t [PARTITION (...)] [(...)] [BY NAME] | [BY NAME] REPLACE WHERE ... query`"""
    cursor.expect("INSERT")
    evolves = cursor.take("WITH", "SCHEMA", "EVOLUTION")
    overwrites = cursor.take("OVERWRITE")
    if not overwrites:
        cursor.expect("INTO")
    cursor.take("TABLE")
    name = cursor.name()
    target = target_of(reads, name, None, "INSERT")
    if target is None:
        return None
    if evolves:
        refuse_evolution("INSERT", f"{name}")
    if cursor.sees("WITH", "("):
        raise InvalidStatement(f"INSERT INTO {name} WITH (...): leave out WITH, the name says where the table lies")
    fixed, dynamic = _partition(target, cursor)
    if cursor.take("IF", "NOT", "EXISTS"):
        raise InvalidStatement(
            f"INSERT OVERWRITE {name} PARTITION (...) IF NOT EXISTS: look first whether the partition has rows "
            f"(SELECT count(*) FROM {name} WHERE ...), and leave out the words",
            UNSUPPORTED,
        )
    names, by_name = None, cursor.take("BY", "NAME")
    condition = _replaced(reads, cursor, name, common) if cursor.take("REPLACE") else None
    if condition is None and not by_name and cursor.sees("(") and cursor.tokens[cursor.place + 1].upper not in _QUERY:
        names = target.inserted(cursor)
        by_name = cursor.take("BY", "NAME")
    if not any(cursor.sees(word) for word in _QUERY):
        raise cursor.wrong("a query is expected")
    query = f"{common} {without_defaults(plain_form(reads.spark, cursor.until())[0])}"
    cursor.finish()

    def rows() -> DataFrame:
        return _fitted(target, reads.frame(query), names, by_name, fixed)

    if condition is not None:
        return result(reads, target.put_where(rows, condition))
    again = reads.finds(query, target.path)
    if overwrites and fixed and target.is_partition(fixed):
        return result(reads, target.put_partition(rows, fixed, again))
    if overwrites and fixed:
        kinds = {one: target.schema[one].dataType.simpleString() for one in fixed}
        # As the column's type: day = 10 of a text means '10' alone.
        parts = [f"`{one}` <=> CAST({fixed[one]} AS {kinds[one]})" for one in fixed]
        return result(reads, target.put_where(rows, " AND ".join(parts)))
    if not overwrites:
        return result(reads, target.put(rows, INSERT, again))
    touched = dynamic or (reads.spark.conf.get(_DYNAMIC, "static") or "").lower() == "dynamic"
    has_partitions = bool(target.detail().partition_by)
    operation = INSERT_OVERWRITE if touched and has_partitions else INSERT_OVERWRITE_TABLE
    return result(reads, target.put(rows, operation, again))


def _replaced(reads: Reads, cursor: Cursor, name: Name, common: str) -> str:
    """The condition of the rows that the new ones replace. Errors: `InvalidStatement`."""
    if cursor.sees("USING") or cursor.sees("ON"):
        raise InvalidStatement(
            f"INSERT INTO {name} REPLACE {cursor.next().upper}: say which rows are replaced, REPLACE WHERE ..., or "
            "use MERGE INTO",
            UNSUPPORTED,
        )
    cursor.expect("WHERE")
    return reads.condition(checked_value(cursor.until("SELECT", "WITH", "VALUES", "FROM", "TABLE")), common)


def _partition(target: Target, cursor: Cursor) -> tuple[dict[str, str], bool]:
    """The values of `PARTITION (day = '...', hour)`, and whether others come from the rows."""
    fixed: dict[str, str] = {}
    if not cursor.take("PARTITION"):
        return fixed, False
    items = cursor.items()
    for item in items:
        if "=" in item:
            column, value = target.assigned(item)
            fixed[column] = value
        else:
            target.column(Cursor.of(item).name().parts[-1])
    if 0 < len(fixed) < len(items):
        raise InvalidStatement(
            "PARTITION with a value for some columns and none for others: name none (INSERT OVERWRITE t PARTITION "
            "(day, hour)), or use INSERT INTO t REPLACE WHERE day = '...'",
            UNSUPPORTED,
        )
    return fixed, not fixed


def _fitted(
    target: Target, rows: DataFrame, names: list[str] | None, by_name: bool, fixed: dict[str, str]
) -> DataFrame:
    """The rows with the table's columns; the query's are taken in order, or by their names."""
    from pyspark.sql import functions

    if by_name:
        given = [target.column(name) for name in rows.columns]
        ensure_once(given)
    else:
        given = names or [name for name in target.columns if name not in fixed]
        if len(given) != len(rows.columns):
            more = "TOO_MANY" if len(rows.columns) > len(given) else "NOT_ENOUGH"
            raise InvalidStatement(
                f"the query has {len(rows.columns)} columns ({', '.join(rows.columns)}), and {len(given)} of the table "
                f"are to be filled ({', '.join(given)}): name the columns, or use BY NAME",
                f"INSERT_COLUMN_ARITY_MISMATCH.{more}_DATA_COLUMNS",
            )
    both = sorted(fixed.keys() & set(given))
    if both:
        raise InvalidStatement(
            f"{', '.join(both)}: PARTITION says the value, and the rows bring one as well: leave one of them out",
            "STATIC_PARTITION_COLUMN_IN_INSERT_COLUMN_LIST",
        )
    frame = rows.toDF(*given)
    types = {field.name: field.dataType for field in frame.schema}
    columns = []
    for field in target.schema:
        if field.name in given:
            column = stored(frame[field.name], types[field.name], field)
        elif field.name in fixed:  # a text, as the name of a folder is, means a value of the column's type
            column = fitting(functions.expr(fixed[field.name]), field.dataType, field.name)
        else:
            column = functions.lit(None).cast(field.dataType)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def truncate(reads: Reads, cursor: Cursor) -> DataFrame | None:
    """`TRUNCATE TABLE t`"""
    cursor.expect("TRUNCATE", "TABLE")
    name = cursor.name()
    target = target_of(reads, name, None, "TRUNCATE TABLE")
    if target is None:
        return None
    if not cursor.at_end:
        raise InvalidStatement(
            f"TRUNCATE TABLE {name} takes no more words; of one PARTITION (...), use DELETE FROM {name} WHERE, or "
            "lakelatch.delete_partitions"
        )
    return result(reads, target.overwrite(target.no_rows()))
