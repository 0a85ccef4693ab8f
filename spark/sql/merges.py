"""MERGE INTO, as a `Merge` under the statement's own aliases."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakelatch.spark.session.columns import Expression, analysed
from lakelatch.spark.sql.assignment import all_stored
from lakelatch.spark.sql.changes import assignments
from lakelatch.spark.sql.errors import InvalidStatement, refuse_evolution
from lakelatch.spark.sql.reads import Reads
from lakelatch.spark.sql.references import qualified
from lakelatch.spark.sql.target import Target, checked_value, result, target_of
from lakelatch.spark.sql.tokens import Cursor, Token, tokens_of
from lakelatch.spark.write.merge import Merge, named_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = "lakelatch_source"


@dataclass
class Clauses:
    """The clauses of a merge, read one by one from a statement."""

    reads: Reads
    target: Target
    source: DataFrame
    names: tuple[str, str]
    condition: str
    common: str

    def read_all(self, merge: Merge, cursor: Cursor) -> Merge:
        while not cursor.at_end:
            merge = self._read(merge, cursor)
        return merge

    def _read(self, merge: Merge, cursor: Cursor) -> Merge:
        cursor.expect("WHEN")
        if cursor.take("MATCHED"):
            condition = self._guard(cursor, None)
            return self._matched(merge, cursor, condition)
        cursor.expect("NOT", "MATCHED")
        if cursor.take("BY", "SOURCE"):
            condition = self._guard(cursor, self.names[0])
            return self._not_matched_by_source(merge, cursor, condition)
        if cursor.take("BY"):
            cursor.expect("TARGET")
        condition = self._guard(cursor, self.names[1])
        return self._not_matched(merge, cursor, condition)

    def _guard(self, cursor: Cursor, side: str | None) -> str | None:
        found = None
        if cursor.take("AND"):
            found = self._value(checked_value(cursor.until("THEN")), side)
        cursor.expect("THEN")
        return found

    def _value(self, text: str, side: str | None) -> str:
        """A text in which names without a table are those of one side, where there are rows of that side alone."""
        text = self.reads.condition(text, self.common)
        if side is None:
            return text
        columns = self.target.columns if side == self.names[0] else self.source.columns
        return qualified(text, side, columns, self.names)

    def _matched(self, merge: Merge, cursor: Cursor, condition: str | None) -> Merge:
        if cursor.take("DELETE"):
            return merge.when_matched_delete(condition)
        cursor.expect("UPDATE", "SET")
        if cursor.take("*"):
            taken = self._of_source(merge.table.keys)
            return merge.when_matched_update(taken, condition) if taken else merge.when_matched_update_all(condition)
        values = self._without_keys(merge, assignments(self.target, cursor, self.common, "WHEN"))
        return merge.when_matched_update(self._stored(values), condition)

    def _stored(self, values: Mapping[str, str]) -> dict[str, Expression]:
        rows = self.target.no_rows().crossJoin(self.source.alias(self.names[1]))
        return all_stored(rows, values, self.target.schema, "the merge")

    def _of_source(self, kept: Collection[str]) -> dict[str, Expression]:
        """For each of the table's columns, but some, the source's of that name; empty if the source lacks one."""
        if not set(self.target.columns) <= set(self.source.columns):
            return {}
        side, *names = ["`" + name.replace("`", "``") + "`" for name in (self.names[1], *self.target.columns)]
        pairs = zip(self.target.columns, names, strict=True)
        return self._stored({name: f"{side}.{quoted}" for name, quoted in pairs if name not in kept})

    def _without_keys(self, merge: Merge, values: dict[str, str]) -> dict[str, str]:
        """Without assignments to a key of what it is: the source's, where that is the condition."""
        kept = {}
        for column, value in values.items():
            words = [token.name.lower() for token in tokens_of(value)]
            same = words in ([side.lower(), ".", column.lower()] for side in self.names)
            if not (column in merge.table.keys and same and merge.is_by_key):
                kept[column] = value
        return kept or values

    def _not_matched_by_source(self, merge: Merge, cursor: Cursor, condition: str | None) -> Merge:
        if cursor.take("DELETE"):
            return merge.when_not_matched_by_source_delete(condition)
        cursor.expect("UPDATE", "SET")
        values = assignments(self.target, cursor, self.common, "WHEN")
        found = {column: self._value(value, self.names[0]) for column, value in values.items()}
        return merge.when_not_matched_by_source_update(self._stored(found), condition)

    def _not_matched(self, merge: Merge, cursor: Cursor, condition: str | None) -> Merge:
        cursor.expect("INSERT")
        if cursor.take("*"):
            taken = self._of_source(())
            return (
                merge.when_not_matched_insert(taken, condition)
                if taken
                else merge.when_not_matched_insert_all(condition)
            )
        columns = self.target.columns
        if cursor.sees("("):
            columns = self.target.inserted(cursor)
        cursor.expect("VALUES")
        values = [self._value(checked_value(item), self.names[1]) for item in cursor.items()]
        if len(columns) != len(values):
            more = "TOO_MANY" if len(values) > len(columns) else "NOT_ENOUGH"
            raise InvalidStatement(
                f"INSERT names {len(columns)} columns ({', '.join(columns)}) and has {len(values)} values",
                f"INSERT_COLUMN_ARITY_MISMATCH.{more}_DATA_COLUMNS",
            )
        return merge.when_not_matched_insert(self._stored(dict(zip(columns, values, strict=True))), condition)


def merge(reads: Reads, cursor: Cursor, common: str) -> DataFrame | None:
    """`MERGE INTO t [AS a] USING s [AS b] ON ... WHEN ...`"""
    cursor.expect("MERGE")
    evolves = cursor.take("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    name = cursor.name()
    target = target_of(reads, name, cursor.alias("USING"), "MERGE INTO")
    if target is None:
        return None
    if evolves:
        refuse_evolution("MERGE", f"{name}")
    cursor.expect("USING")
    text, alias = _source(cursor)
    if alias.lower() == target.alias.lower():
        raise InvalidStatement(
            f"the table and the source are both called {alias}: give one of them another alias", "AMBIGUOUS_REFERENCE"
        )
    cursor.expect("ON")
    condition = checked_value(cursor.until("WHEN"))

    def source() -> DataFrame:
        return named_as(reads.frame(f"{common} SELECT * FROM {text}"), target.columns)

    frame = analysed(source, "the merge")
    names = (target.alias, alias)
    found = replace(
        target.merge(frame, reads.condition(condition, common)),
        names=names,
        read_source=source if reads.frames else None,
    )
    clauses = Clauses(reads, target, frame, names, condition, common)
    return result(reads, clauses.read_all(found, cursor).execute())


def _source(cursor: Cursor) -> tuple[str, str]:
    """What stands behind USING, as it would stand behind FROM, and its name there."""
    text = cursor.until("ON")
    tokens = tokens_of(text)
    if len(tokens) > 1 and tokens[-1].kind in ("word", "quoted") and tokens[-2].text != ".":
        return text, tokens[-1].name
    if tokens and tokens[-1].text == ")" and _names_columns(tokens):  # (...) AS s(id, v)
        opening = _opening(tokens)
        return text, tokens[opening - 1].name
    if all(token.text == "." or token.kind in ("word", "quoted") for token in tokens) and "/" not in tokens[-1].text:
        return text, tokens[-1].name
    return f"{text} AS {_SOURCE}", _SOURCE


def _opening(tokens: list[Token]) -> int:
    depth = 0
    for place in range(len(tokens) - 1, -1, -1):
        depth += (tokens[place].text == ")") - (tokens[place].text == "(")
        if depth == 0:
            return place
    return 0


def _names_columns(tokens: list[Token]) -> bool:
    opening = _opening(tokens)
    return opening > 1 and tokens[opening - 1].kind in ("word", "quoted") and tokens[opening - 1].upper != "VALUES"
