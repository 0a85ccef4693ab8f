"""DESCRIBE HISTORY and DETAIL, and CALL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakelatch.engine import calls as engine_calls
from lakelatch.engine.table.history import TableDetail
from lakelatch.spark.session.catalog import FORMAT, plain_sql
from lakelatch.spark.sql.definitions import result_of_nothing, text_of
from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.literals import bound
from lakelatch.spark.sql.reads import Reads
from lakelatch.spark.sql.references import name_in
from lakelatch.spark.sql.target import Target, target_of
from lakelatch.spark.sql.tokens import STRING, WORD, Cursor, Name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MISSING = "REQUIRED_PARAMETER_NOT_FOUND"
_COMMITS = "instant string, completion string, operation string, rows_written long"


def describe(reads: Reads, cursor: Cursor) -> DataFrame | None:
    """`DESCRIBE HISTORY t [LIMIT n]`, `DESCRIBE DETAIL t` and `DESCRIBE [EXTENDED] t`."""
    cursor.next()
    kind = next((word for word in ("HISTORY", "DETAIL") if cursor.take(word)), "")
    if not kind:
        cursor.take("TABLE")
        if any(cursor.sees(word) for word in ("FUNCTION", "DATABASE", "SCHEMA", "CATALOG")):
            return None
        if any(cursor.sees(word) for word in ("SELECT", "WITH", "FROM", "VALUES", "QUERY", "NAMESPACE")):
            return None
    is_long = not kind and (cursor.take("EXTENDED") or cursor.take("FORMATTED"))
    target = target_of(reads, cursor.name(), None, f"DESCRIBE {kind}".strip())
    if target is None:
        return None
    if kind == "HISTORY":
        limit = int(cursor.next().text) if cursor.take("LIMIT") else None
        cursor.finish()
        return target.history(limit)
    cursor.finish()
    if kind == "DETAIL":
        return _detail(reads, target.detail())
    rows: list[tuple[str | None, ...]] = [
        (one.name, one.dataType.simpleString(), one.metadata.get("comment")) for one in target.schema
    ]
    if is_long:  # what Spark's catalog has of the columns are those of the table's first write
        said = [tuple(row) for row in plain_sql(reads.spark, cursor.text).collect()]
        rows += said[next((at for at, row in enumerate(said) if not row[0]), len(said)) :]
    return reads.spark.createDataFrame(rows, "col_name string, data_type string, comment string")


def show(reads: Reads, cursor: Cursor) -> DataFrame | None:
    """`SHOW COLUMNS IN t [IN schema]`; of all else Spark's catalog knows better."""
    cursor.expect("SHOW")
    if not cursor.take("COLUMNS") or not (cursor.take("IN") or cursor.take("FROM")):
        return None
    name = cursor.name()
    if cursor.take("IN") or cursor.take("FROM"):
        name = Name((*cursor.name().parts, name.parts[-1]), name.start, name.end)
    target = target_of(reads, name, None, "SHOW COLUMNS")
    if target is None:
        return None
    cursor.finish()
    return reads.spark.createDataFrame([(column,) for column in target.columns], "col_name string")


def _detail(reads: Reads, detail: TableDetail) -> DataFrame:
    row = (
        FORMAT,
        detail.name,
        detail.uri,
        list(detail.key),
        detail.ordering,
        list(detail.partition_by),
        detail.buckets,
        detail.merge_mode,
        detail.table_type,
        detail.table_version,
    )
    columns = (
        "format string, name string, location string, key array<string>, ordering string, "
        "partitionColumns array<string>, numBuckets int, mergeMode string, tableType string, tableVersion int"
    )
    return reads.spark.createDataFrame([row], columns)


def call(reads: Reads, cursor: Cursor) -> DataFrame | None:
    """`CALL lakelatch.<service>(table => 't', ...)`"""
    cursor.expect("CALL")
    name = cursor.name()
    if name.parts[0].lower() != FORMAT or len(name.parts) != 2:
        return None
    service = _SERVICES.get(name.parts[1].lower())
    if service is None:
        raise InvalidStatement(
            f"CALL {name}: there are {', '.join(f'{FORMAT}.{one}' for one in _SERVICES)}", "ROUTINE_NOT_FOUND"
        )
    names, carry_out = service
    given = _arguments(reads, cursor, name, names)
    cursor.finish()
    table = given.pop("table", None)
    if table is None:
        raise InvalidStatement(f"CALL {name}: say the table, table => 'flights'", _MISSING)
    target = target_of(reads, Name(name_in(table), 0, 0), None, f"CALL {name}")
    if target is None:
        raise InvalidStatement(f"CALL {name}: {table} is no table of Lakelatch", "TABLE_OR_VIEW_NOT_FOUND")
    return carry_out(reads, target, given)


def _arguments(reads: Reads, cursor: Cursor, name: Name, names: tuple[str, ...]) -> dict[str, str]:
    known = ("table", *names)
    found: dict[str, str] = {}
    for place, item in enumerate(cursor.items()):
        inner = Cursor.of(bound(item, reads.args))
        word = inner.tokens[0].text.lower() if inner.tokens and inner.tokens[0].kind == WORD else ""
        is_named = len(inner.tokens) > 1 and inner.tokens[1].text == "=>"
        key = word if is_named else known[place] if place < len(known) else ""
        if key not in known or key in found:
            raise InvalidStatement(
                f"CALL {name}: it takes {', '.join(f'{one} => ...' for one in known)}", "UNRECOGNIZED_PARAMETER_NAME"
            )
        if is_named:
            inner.place = 2
        token = inner.next()
        if token.kind not in (STRING, WORD):
            raise inner.wrong("a text is expected", token.start)
        found[key] = text_of(token)
        inner.finish()
    return found


def _committed(reads: Reads, commits: list[Any]) -> DataFrame:
    rows = [(one.instant, one.completion, one.operation, one.rows_written) for one in commits]
    return reads.spark.createDataFrame(rows, _COMMITS)


def _compact(reads: Reads, target: Target, given: dict[str, str]) -> DataFrame:
    return _committed(reads, target.compact())


def _cluster(reads: Reads, target: Target, given: dict[str, str]) -> DataFrame:
    options = {"hoodie.clustering.plan.strategy.sort.columns": given["order"]} if "order" in given else {}
    return _committed(reads, target.cluster(options))


def _clean(reads: Reads, target: Target, given: dict[str, str]) -> DataFrame:
    rows = [(one.instant, len(one.files)) for one in target.clean()]
    return reads.spark.createDataFrame(rows, "instant string, files_removed int")


def _archive(reads: Reads, target: Target, given: dict[str, str]) -> DataFrame:
    archived = engine_calls.archive(target.path, target.options)
    return reads.spark.createDataFrame([(len(archived.instants), archived.held_by)], "instants int, held_by string")


def _restore(reads: Reads, target: Target, given: dict[str, str]) -> DataFrame:
    if "as_of" not in given:
        raise InvalidStatement("CALL lakelatch.restore: say as_of => '2026-11-24 10:00:00'", _MISSING)
    undone = target.restore(reads.instant("TIMESTAMP", f"'{given['as_of']}'"))
    rows = [(undone.instant, list(undone.undone))]
    return reads.spark.createDataFrame(rows, "instant string, undone array<string>")


def _savepoint(reads: Reads, target: Target, given: dict[str, str]) -> DataFrame:
    kept = engine_calls.savepoint(target.path, given.get("instant"), given.get("comment", ""), target.options)
    return reads.spark.createDataFrame([(kept.instant, kept.comment)], "instant string, comment string")


def _delete_savepoint(reads: Reads, target: Target, given: dict[str, str]) -> DataFrame:
    if "instant" not in given:
        raise InvalidStatement("CALL lakelatch.delete_savepoint: say instant => '...'", _MISSING)
    engine_calls.delete_savepoint(target.path, given["instant"], target.options)
    return result_of_nothing(reads)


_Service = tuple[tuple[str, ...], Callable[[Reads, Target, dict[str, str]], "DataFrame"]]
_SERVICES: dict[str, _Service] = {
    "compact": ((), _compact),
    "cluster": (("order",), _cluster),
    "clean": ((), _clean),
    "archive": ((), _archive),
    "restore": (("as_of",), _restore),
    "savepoint": (("instant", "comment"), _savepoint),
    "delete_savepoint": (("instant",), _delete_savepoint),
}
