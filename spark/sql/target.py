"""The table that a statement changes: `Table`, with the names that the statement has for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from lakelatch.engine.options.calls.arguments import Options
from lakelatch.engine.options.write import STATIC_PARTITION
from lakelatch.engine.run.result import CommitResult
from lakelatch.errors import reraise
from lakelatch.format.keygen.paths import partition_paths
from lakelatch.spark.session.columns import Expression
from lakelatch.spark.sql.assignment import fitting
from lakelatch.spark.sql.errors import SYNTAX, UNSUPPORTED, InvalidStatement
from lakelatch.spark.sql.reads import Reads
from lakelatch.spark.sql.references import has_query, is_volatile
from lakelatch.spark.sql.session import Hidden, Place
from lakelatch.spark.sql.tokens import Cursor, Name, replaced, tokens_of
from lakelatch.spark.table import Table
from lakelatch.timeline.actions import INSERT_OVERWRITE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Target(Table):
    """A table under an alias. Each try of a change reads it, and all else that the statement reads, anew."""

    def __init__(self, reads: Reads, place: Place, alias: str) -> None:
        super().__init__(reads.spark, place.path, place.options)
        self.reads = reads
        self.alias = alias
        self.columns = self.schema.fieldNames()

    @property
    def options(self) -> dict[str, object]:
        """Those that the table's name stands for."""
        return dict(self._options)

    def column(self, name: str) -> str:
        """The table's column that a statement means. Errors: `InvalidStatement`."""
        if name in self.columns:
            return name
        exact = self.spark.conf.get("spark.sql.caseSensitive") == "true"
        found = [one for one in self.columns if not exact and one.lower() == name.lower()]
        if not found:
            raise InvalidStatement(
                f"{name!r} is no column of the table ({', '.join(self.columns)})", "UNRESOLVED_COLUMN"
            )
        return found[0]

    def inserted(self, cursor: Cursor) -> list[str]:
        """The columns that the list of an INSERT names. Errors: `InvalidStatement`, also for one that comes twice."""
        found = [self._inserted(item) for item in cursor.items()]
        if not found:
            raise cursor.wrong("INSERT (): a column is expected in the brackets")
        ensure_once(found)
        return found

    def _inserted(self, text: str) -> str:
        cursor = Cursor.of(text)
        name = cursor.name()
        cursor.finish()
        parts = self._below(name)
        if len(parts) > 1:
            raise InvalidStatement(f"INSERT (..., {name}, ...): name columns of the table alone", UNSUPPORTED)
        return self.column(parts[0])

    def _below(self, name: Name) -> tuple[str, ...]:
        """The parts of a column's name behind the table's."""
        return name.parts[1:] if len(name.parts) > 1 and name.parts[0].lower() == self.alias.lower() else name.parts

    def assigned(self, text: str) -> tuple[str, str]:
        """The column and the value of an assignment `a.x = 1`. Errors: `InvalidStatement`."""
        cursor = Cursor.of(text)
        name = cursor.name()
        cursor.expect("=")
        parts = self._below(name)
        if len(parts) > 1:
            raise InvalidStatement(
                f"{name} = ...: a field within a column is not given a value by itself; write the whole struct, "
                f"{parts[0]} = named_struct(...)",
                UNSUPPORTED,
            )
        return self.column(parts[0]), checked_value(text[cursor.start :])

    def no_rows(self) -> DataFrame:
        """A frame of the table's columns, under the alias, without a row."""
        return self.spark.createDataFrame([], self.schema).alias(self.alias)

    def put(
        self, rows: Callable[[], DataFrame], operation: str, again: bool, options: Options | None = None
    ) -> CommitResult:
        """Writes rows; `again`: those are read from this table, so inside each try, and nothing that others commit
        meanwhile is lost."""
        return self._change(rows, operation, options) if again else self._write(rows(), operation, options)

    def is_partition(self, values: Collection[str]) -> bool:
        """Whether values of these columns say which folder is meant, and nothing but it."""
        config = self._open().config
        return not config.time_fields and {*config.partition_fields} == {*values}

    def put_partition(self, rows: Callable[[], DataFrame], values: Mapping[str, str], again: bool) -> CommitResult:
        """Writes rows in the place of all that is in one partition, which has these values, also if there are none."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions

        cells = [
            fitting(functions.expr(text), self.schema[name].dataType, name).alias(name) for name, text in values.items()
        ]
        try:
            found = self.spark.range(1).select(*cells).toArrow()
        except PySparkException as error:
            reraise(error)
        folder = partition_paths(found, self._open().config)[0].as_py()
        return self.put(rows, INSERT_OVERWRITE, again, {STATIC_PARTITION: folder})

    def put_where(self, rows: Callable[[], DataFrame], condition: str) -> CommitResult:
        """Writes rows in the place of those where a condition holds."""
        return self._overwrite_where(rows, condition, None)

    def _where(self, condition: Expression | None) -> DataFrame:
        text = condition if isinstance(condition, str) else None
        frame = self.to_df(meta_columns=False, where=self._plain(text)).alias(self.alias)
        return frame if condition is None else frame.where(condition)

    def _plain(self, text: str | None) -> str | None:
        """The condition without the alias, which says what need not be read; None if it is not that simple."""
        alias = self.alias.lower()
        if text is None or has_query(text) or alias in (name.lower() for name in self.columns):
            return None
        tokens = tokens_of(text)
        if any(token.text == "->" for token in tokens):  # a variable may have the alias for its name
            return None
        changes, before = [], ""
        for token, dot in pairwise(tokens):
            if dot.text == "." and before != "." and token.name.lower() == alias:
                changes.append((token.start, dot.end, ""))
            before = token.text
        return replaced(text, changes)

    def _change(
        self, rows: Callable[[], DataFrame], operation: str, options: Options | None, called: str = ""
    ) -> CommitResult:
        def anew() -> DataFrame:
            self.reads.renew()
            return rows()

        return super()._change(anew, operation, options, called)


def target_of(reads: Reads, name: Name, alias: str | None, verb: str) -> Target | None:
    """The table of ours that a statement changes; None if it is somebody else's."""
    place = reads.look_up(name)
    if place is None:
        return None
    if isinstance(place, Hidden):
        raise InvalidStatement(
            f"{verb} {name}: a temporary view hides the table of that name. Name the table with its schema, "
            f"{place.table}, or drop the view",
            "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
        )
    if not Table.is_table(place.path, place.options):
        raise InvalidStatement(
            f"{verb} {name}: there is no table at {place.path}: CREATE TABLE ... USING lakelatch makes one",
            "TABLE_OR_VIEW_NOT_FOUND",
        )
    last = name.parts[-1]
    return Target(reads, place, alias or ("lakelatch_target" if "/" in last else last))


def ensure_once(columns: Sequence[str]) -> None:
    """Errors: `InvalidStatement` for columns that are named more than once."""
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InvalidStatement(f"{', '.join(twice)}: named twice", "COLUMN_ALREADY_EXISTS")


def checked_value(text: str) -> str:
    """A condition or value that gives the same each time. Errors: `InvalidStatement`."""
    if not text.strip():
        raise InvalidStatement("a condition or a value is missing", SYNTAX)
    if text.strip().upper() == "DEFAULT":  # no column has another one
        return "NULL"
    found = is_volatile(text)
    if found is not None:
        raise InvalidStatement(
            f"{found}() gives other values each time that it is asked, and a change asks again after a conflict: "
            "write the rows that are meant into a table of their own, and merge from it",
            "INVALID_NON_DETERMINISTIC_EXPRESSIONS",
        )
    return text


def result(reads: Reads, commit: CommitResult) -> DataFrame:
    """The answer of a change: how many rows it wrote, how many deletes, and its instant."""
    row = (commit.rows_written, commit.deletes_written, commit.instant)
    return reads.spark.createDataFrame([row], "rows_written long, deletes_written long, instant string")
