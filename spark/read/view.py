"""Views by name whose rows are those of the moment at which a query is analysed.

Spark analyses a view's text anew in each query, and keeps what a data source has planned for as long as the view lives.
So the text asks a table function, whose analysis takes the snapshot: once for each place where a query names the view.
All tasks of it are given that snapshot.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.udtf import AnalyzeResult

from lakelatch.engine.options.read import COLUMNS, READ_META
from lakelatch.engine.read.plan import ReadPlan, plan_read, read_schema
from lakelatch.errors import InvalidRequest
from lakelatch.spark.session.spark_types import to_spark
from lakelatch.system import REAL_SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_NAME = re.compile(r"(global_temp\.)?[A-Za-z_][A-Za-z0-9_]*")
_TASKS_MAX = 10_000
VIEW_FUNCTION = "lakelatch_view_"  # what the text of such a view asks
_made: WeakKeyDictionary[Any, dict[str, tuple[str, Mapping[str, object]]]] = WeakKeyDictionary()
_guard = REAL_SYSTEM.new_lock()


@dataclass
class Planned(AnalyzeResult):
    """The parts of the analysis that the tasks need."""

    plan: ReadPlan | None = None


class ViewRows:
    """The table function of one view: each row that it is given is the number of a task."""

    tasks: int

    def __init__(self, planned: Planned) -> None:
        self._plan = planned.plan

    def eval(self, number: Any) -> Iterator[tuple[Any, ...]]:
        plan = self._plan
        if plan is None:
            return
        schema = to_spark(plan.schema)
        for file_slice in plan.slices[number["id"] :: self.tasks]:
            for batch in plan.read(file_slice):
                yield from _rows(pa.Table.from_batches([batch]), schema)


def _rows(table: pa.Table, schema: StructType) -> list[Any]:
    """Rows as Spark has them; PySpark 4.0 keeps the conversion elsewhere."""
    try:
        conversion = import_module("pyspark.sql.conversion")
    except ImportError:
        conversion = import_module("pyspark.sql.connect.conversion")
    rows: list[Any] = conversion.ArrowTableToRowsConversion.convert(table, schema)
    return rows


def create_view(spark: SparkSession, name: str, path: str, options: Mapping[str, object], tasks: int | None) -> None:
    """Makes or replaces the temporary view `name`, of the columns that there are now. Errors: `InvalidRequest`."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"name={name!r}: a temporary view is named by letters, digits and '_'", option="name")
    if tasks is not None and not 1 <= tasks <= _TASKS_MAX:
        raise InvalidRequest(f"tasks={tasks}: it is a number from 1 to {_TASKS_MAX}", option="tasks")
    chosen = {**options, COLUMNS: ",".join(read_schema(path, options).names), READ_META: False}
    plan = plan_read(path, chosen)
    count = tasks or min(max(len(plan.slices), plan.table.config.bucket_count or 1), _TASKS_MAX)
    function = f"{VIEW_FUNCTION}{hashlib.sha256(name.lower().encode()).hexdigest()[:16]}"
    table_function: Any = functions.udtf(_rows_of(path, chosen, count))
    spark.udtf.register(function, table_function)
    scope, _, plain = name.rpartition(".")
    kind = "GLOBAL TEMPORARY" if scope else "TEMPORARY"
    numbers = f"SELECT id FROM range(0, {count}, 1, {count})"
    spark.sql(f"CREATE OR REPLACE {kind} VIEW {plain} AS SELECT * FROM {function}(TABLE({numbers}))")
    with _guard:
        _made.setdefault(spark, {})[name.lower()] = (path, options)


def view_made(spark: SparkSession, name: str) -> tuple[str, Mapping[str, object]] | None:
    """The path and the options of the view that `create_view` has made of this name; it may be another one by now."""
    with _guard:
        return _made.get(spark, {}).get(name.lower())


def _rows_of(path: str, options: Mapping[str, object], count: int) -> type[ViewRows]:
    """A class of its own, which travels by value: options may hold secrets, and a view's text is readable by all."""

    class Rows(ViewRows):
        tasks = count

        @staticmethod
        def analyze(number: Any) -> Planned:
            plan = plan_read(path, options)
            return Planned(schema=to_spark(plan.schema), plan=plan)

    return Rows
