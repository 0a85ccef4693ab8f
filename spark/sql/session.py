"""What is known of the names of a session: which are tables of ours, and where these lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException

from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.tokens import Name
from lakelatch.spark.view import VIEW_FUNCTION, view_made
from lakelatch.system import REAL_SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "lakelatch"
_KEPT_MAX = 5_000
_PROPERTY = re.compile(r", (?=[\w.\-]+=)")
_OPTIONS = ("hoodie.", "lakelatch.", "fs.")


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


def run(spark: SparkSession, text: str, args: Any = None, **frames: DataFrame) -> DataFrame:
    """Has Spark itself carry out a statement, whatever `spark.sql` has become. Frames are named as `{name}`."""
    kind: Any = next(one for one in type(spark).__mro__ if one.__module__.startswith("pyspark."))
    found: DataFrame = kind.sql(spark, text, args, **frames) if args else kind.sql(spark, text, **frames)
    return found


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
    is_hidden = False
    for row in _listed(spark, name):
        information = str(row["information"])
        if row["isTemporary"]:
            made = view_made(spark, name.key)
            if made is not None and VIEW_FUNCTION in information:
                return Place(*made)
            is_hidden = True
        elif "\nProvider: lakelatch\n" in information:
            place = _catalogued(information)
            return Hidden(place, f"{row['namespace']}.{row['tableName']}") if is_hidden else place
    known.remember(name.key)
    return None


def _place_at(path: str) -> Place:
    if "`" in path:
        raise InvalidStatement(
            f"the path {path!r} has a backtick, which no statement can name: use lakelatch.Table.for_path(spark, path)",
            "INVALID_IDENTIFIER",
        )
    return Place(path)


def _listed(spark: SparkSession, name: Name) -> list[Any]:
    """What Spark's catalog has under a name, temporary views first."""
    *namespace, table = name.parts
    if len(namespace) > 2 or (len(namespace) == 2 and namespace[0].lower() != "spark_catalog"):
        return []  # of another catalog
    pattern = re.sub(r"\W", ".", table)
    place = f" IN `{namespace[-1].replace('`', '``')}`" if namespace else ""
    try:
        rows = run(spark, f"SHOW TABLE EXTENDED{place} LIKE '{pattern}'").collect()
    except AnalysisException:  # no such schema
        return []
    found = [row for row in rows if row["tableName"].lower() == table.lower()]
    if namespace and namespace[-1].lower() != "global_temp":
        found = [row for row in found if not row["isTemporary"]]
    return sorted(found, key=lambda row: not row["isTemporary"])


def _catalogued(information: str) -> Place:
    lines = dict(line.partition(": ")[::2] for line in information.split("\n"))
    properties = lines.get("Table Properties", "[]")[1:-1]
    pairs = dict(pair.partition("=")[::2] for pair in _PROPERTY.split(properties))
    options = {key: value for key, value in pairs.items() if key.startswith(_OPTIONS) and "(redacted)" not in value}
    location = lines.get("Location", "")
    path = re.sub(r"^file:/+", "/", location)
    return Place(path, options)
