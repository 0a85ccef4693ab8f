"""What is known of the names of a session: which are tables of ours, and where these lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException

from lakelatch.spark.read.view import VIEW_FUNCTION, view_made
from lakelatch.spark.session.catalog import FORMAT, look_up, permanent, plain_sql, quoted
from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.tokens import Name
from lakelatch.system import REAL_SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT_MAX = 5_000


@dataclass(frozen=True)
class Place:
    """A table of ours: its path and the options that its name stands for."""

    path: str
    options: Mapping[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Hidden:
    """A table of ours whose name is a temporary view's as well, which goes before it; it is `table` with its schema."""

    place: Place
    table: str


@dataclass
class Known:
    """The names of one session. `others` are none of ours, `shapes` the names in statements that were looked at."""

    others: set[str] = field(default_factory=set)
    shapes: dict[str, tuple[Name, ...]] = field(default_factory=dict)

    def forget(self) -> None:
        """Names are looked up anew: somebody makes, drops or refreshes one."""
        self.others.clear()

    def remember(self, name: str) -> None:
        if len(self.others) >= _KEPT_MAX:
            self.others.clear()
        self.others.add(name)

    def remember_shape(self, shape: str, names: tuple[Name, ...]) -> None:
        if len(self.shapes) >= _KEPT_MAX:
            self.shapes.clear()
        self.shapes[shape] = names


_sessions: WeakKeyDictionary[Any, Known] = WeakKeyDictionary()
_guard = REAL_SYSTEM.new_lock()


def known_of(spark: SparkSession) -> Known:
    """What is known of the names of this session."""
    with _guard:
        return _sessions.setdefault(spark, Known())


def place_of(spark: SparkSession, name: Name) -> Place | Hidden | None:
    """Where the table of ours lies that has this name; None if the name is somebody else's.

    Errors: `InvalidStatement` for a path that has backticks.
    """
    parts = name.parts
    if len(parts) == 2 and parts[0].lower() == FORMAT and re.search(r"[/\\]", parts[1]):
        return _place_at(parts[1])
    known = known_of(spark)
    if name.key in known.others:
        return None
    made = view_made(spark, name.key)
    if made is not None and _is_still_there(spark, name):
        return Place(*made)
    found = look_up(spark, parts)
    if found is None:  # perhaps somebody makes it by the next time
        return None
    if found.is_ours:
        return Place(found.path, found.options)
    if not found.provider and len(parts) == 1:  # a view, which goes before a table
        below = look_up(spark, permanent(spark, quoted(parts)))
        if below is not None and below.is_ours:
            return Hidden(Place(below.path, below.options), below.name)
    known.remember(name.key)
    return None


def _place_at(path: str) -> Place:
    if "`" in path:
        raise InvalidStatement(
            f"the path {path!r} has a backtick, which no statement can name: use lakelatch.Table.for_path(spark, path)",
            "INVALID_IDENTIFIER",
        )
    return Place(path)


def _is_still_there(spark: SparkSession, name: Name) -> bool:
    """Whether the temporary view of this name is the one that `create_view` has made."""
    *namespace, table = name.parts
    place = f" IN {quoted(namespace)}" if namespace else ""
    pattern = re.sub(r"\W", ".", table)
    try:
        rows = plain_sql(spark, f"SHOW TABLE EXTENDED{place} LIKE '{pattern}'").collect()
    except AnalysisException:  # no such schema
        return False
    views = (row for row in rows if row["isTemporary"] and row["tableName"].lower() == table.lower())
    return any(VIEW_FUNCTION in str(row["information"]) for row in views)
