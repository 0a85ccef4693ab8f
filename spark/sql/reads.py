"""What a statement reads of our tables: frames of one snapshot each, by which Spark finds the rows under a name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakelatch.engine.table.opening import open_existing_storage
from lakelatch.spark.session.catalog import plain_sql
from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.literals import bound
from lakelatch.spark.sql.references import TABLE_CHANGES, Reference, references, table_names
from lakelatch.spark.sql.session import Hidden, Place, place_of
from lakelatch.spark.sql.tokens import STRING, Name, replaced, tokens_of
from lakelatch.spark.table import Table
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BEFORE, _AFTER = "before", "after"
_GIVEN = "given"
_VERSION = "_commit_version"


@dataclass
class Reads:
    """The reads of one statement. Each table, and each moment of it, is planned once, wherever the statement names it.

    `given` are frames of the caller, by the names that stand for them in the text. Conditions find tables under
    temporary views; `renew` gives these the rows of now, for another try.
    """

    spark: SparkSession
    args: Any = None
    given: dict[str, DataFrame] = field(default_factory=dict)
    frames: dict[str, DataFrame] = field(default_factory=dict)
    _names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _found: dict[tuple[Any, ...], DataFrame] = field(default_factory=dict)
    _views: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    _places: dict[str, Place | Hidden | None] = field(default_factory=dict)

    def finds(self, text: str, path: str | None = None) -> bool:
        """Whether a text reads a table of ours, or the one at this path."""
        if self.given or TABLE_CHANGES in text.upper():
            return any(key is not None and path in (None, key[0]) for _, key in self._keyed(text))
        return any(place is not None and path in (None, place.path) for place in map(self.place, table_names(text)))

    def query(self, text: str) -> str:
        """The text for `frame`: names of ours are those of frames."""
        changes = []
        for one, key in self._keyed(text):
            if key is not None:
                changes.append((one.start, one.end, "\0" + self._frame_for(key) + "\1" + _alias(one)))
        whole = replaced(text, changes)
        if not self.frames:
            return whole
        return whole.replace("{", "{{").replace("}", "}}").replace("\0", "{").replace("\1", "}")

    def frame(self, text: str, before: str = "") -> DataFrame:
        """The rows of a query, or the answer of what stands `before` it."""
        return plain_sql(self.spark, before + self.query(text), self.args, **self.frames)

    def condition(self, text: str, common: str = "") -> str:
        """A condition, or a value, as Spark understands it by itself: with views in the place of our tables.

        `common` are the common table expressions of the statement, as text.
        """
        names = _common_names(common)
        changes = []
        for one in references(text) if _may_read(text) else ():
            if len(one.name.parts) == 1 and one.name.key in names and one.arguments is None:  # before a table's name
                query = f"{common} SELECT * FROM `{one.name.parts[0].replace('`', '``')}`"
                key: tuple[Any, ...] | None = (query,)
            else:
                key = self._key(one)
            if key is not None:
                changes.append((one.start, one.end, self._view_of(key) + _alias(one)))
        return replaced(text, changes)

    def renew(self) -> None:
        """Has the views the rows of now."""
        for known in (self.frames, self._names, self._found):
            known.clear()
        for view, key in self._views.items():
            self._made(key).createOrReplaceTempView(view)

    def close(self) -> None:
        """Drops the views."""
        for view in self._views:
            self.spark.catalog.dropTempView(view)
        self._views.clear()

    def _keyed(self, text: str) -> list[tuple[Reference, tuple[Any, ...] | None]]:
        """The tables that a text names; those that are read here with the key of their frame."""
        return [(one, self._key(one)) for one in references(text)]

    def look_up(self, name: Name) -> Place | Hidden | None:
        """What a name stands for; the catalog is asked once."""
        if name.key not in self._places:
            self._places[name.key] = place_of(self.spark, name)
        return self._places[name.key]

    def place(self, name: Name) -> Place | None:
        """Where a table of ours lies whose rows a query reads under this name."""
        found = self.look_up(name)
        return found if isinstance(found, Place) else None

    def _key(self, one: Reference) -> tuple[Any, ...] | None:
        if one.name.key in self.given:
            return (_GIVEN, one.name.key)
        place = self.place(one.name)
        return None if place is None else (place.path, tuple(sorted(place.options.items())), one.moment, one.arguments)

    def _frame_for(self, key: tuple[Any, ...]) -> str:
        if key not in self._names:
            name = f"lakelatch_{len(self._names)}"
            self.frames[name] = self._made(key)
            self._names[key] = name
        return self._names[key]

    def _view_of(self, key: tuple[Any, ...]) -> str:
        known = next((view for view, other in self._views.items() if other == key), None)
        if known is not None:
            return known
        view = f"lakelatch_{re.sub('[^a-z0-9]', '', REAL_SYSTEM.new_id())}"
        self._views[view] = key
        self._made(key).createOrReplaceTempView(view)
        return view

    def _made(self, key: tuple[Any, ...]) -> DataFrame:
        if key not in self._found:
            self._found[key] = self._read(key)
        return self._found[key]

    def _read(self, key: tuple[Any, ...]) -> DataFrame:
        if len(key) == 1:
            return self.frame(key[0])
        if key[0] == _GIVEN:
            return self.given[key[1]]
        path, options, moment, arguments = key
        table = Table(self.spark, path, dict(options))
        if arguments is not None:
            times = [self.instant("TIMESTAMP", one) for one in arguments]
            return change_rows(table, times)
        if moment is None:
            return table.to_df()
        kind, value = moment
        return table.to_df(as_of=self._version(table, value) if kind == "VERSION" else self.instant(kind, value))

    def instant(self, kind: str, text: str) -> str:
        """The instant that an expression of a time means, in the session's time zone. Errors: `InvalidStatement`."""
        digits = text.strip("'\"")
        if re.fullmatch(r"\d{14}|\d{17}", digits):
            return digits
        row = plain_sql(self.spark, f"SELECT unix_millis(try_cast({bound(text, self.args)} AS TIMESTAMP))").first()
        if row is None or row[0] is None:
            raise InvalidStatement(
                f"{kind} AS OF {text}: this is no time; say one such as '2026-11-24 10:00:00', or an instant of 17 "
                "digits from DESCRIBE HISTORY",
                "INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.INPUT",
            )
        return to_instant(row[0])

    def _version(self, table: Table, text: str) -> str:
        """The completion of the instant that has this requested or completion time."""
        value = bound(text, self.args).strip("'\"")
        completed = WholeTimeline.load(open_existing_storage(table.path, None)).active.completed
        for one in completed:
            if one.completion and value in (one.completion, one.requested):
                return str(one.completion)
        raise InvalidStatement(
            f"VERSION AS OF {text}: the versions of a table are its instants, of 17 digits: those of the columns "
            "`instant` and `completion` of DESCRIBE HISTORY. Name one of them, or use TIMESTAMP AS OF",
            "INVALID_TIME_TRAVEL_SPEC",
        )


def change_rows(table: Table, times: Sequence[str]) -> DataFrame:
    """The changes of a window as Delta Lake's table_changes has them: a row for each image, and its kind."""
    from pyspark.sql import functions

    images = table.changes(times[0], times[1] if len(times) > 1 else None, images=True)
    op, kind = functions.col("op"), "_change_type"

    def image(said: str, side: str) -> Any:
        return functions.struct(functions.lit(said).alias(kind), functions.col(side).alias("row"))

    rows = (
        functions.when(op == "i", functions.array(image("insert", _AFTER)))
        .when(op == "d", functions.array(image("delete", _BEFORE)))
        .otherwise(functions.array(image("update_preimage", _BEFORE), image("update_postimage", _AFTER)))
    )
    exploded = images.select(functions.explode(rows).alias("change"), functions.col("ts_ms").alias(_VERSION))
    return exploded.select("change.row.*", f"change.{kind}", _VERSION)


def _alias(one: Reference) -> str:
    """The name under which columns of an unnamed table may be written, as Spark takes the last part of its name."""
    last = one.name.parts[-1]
    return "" if one.named or "/" in last or one.arguments is not None else f" AS `{last.replace('`', '``')}`"


def _may_read(text: str) -> bool:
    return any(token.upper in ("SELECT", "FROM") for token in tokens_of(text))


def _common_names(common: str) -> set[str]:
    """The names that the common table expressions of a statement define."""
    tokens = tokens_of(common)
    names, depth = set(), 0
    for before, token, after in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        depth += (before.text == "(") - (before.text == ")")
        behind = after is not None and (after.upper == "AS" or after.text == "(")
        if depth == 0 and token.kind != STRING and before.upper in ("WITH", ",", "RECURSIVE") and behind:
            names.add(token.name.lower())
    return names
