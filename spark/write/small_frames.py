"""Rows that come to the driver and are written there: without tasks of Python, and without a shuffle.

Those of a local frame are there already, and so are those of a small Python list. Of a frame that Spark computes, up to
a limit of rows are asked for in one job if Spark's optimizer takes the frame, and all that it is made of, for small. If
there turn out to be more rows, they are dropped and the executors evaluate the whole frame, so what is written always
comes from one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.write.tasks.task import BUCKET_COLUMN, PARTITION_COLUMN, WriteTask
from lakelatch.spark.session.progress import with_progress
from lakelatch.spark.write.plan_statistics import PlanNode, plan_nodes
from lakelatch.spark.write.python_lists import is_small_list

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The most rows of a frame that looks small; one more is asked for.
ROWS_MAX = 10_000
#: The most files that are written here of such a frame: they are made one after the other.
FILES_MAX = 64
#: Of a list of Python's, and of each part of a plan: there as an estimate, and of compressed files.
BYTES_MAX = 4 * 1024 * 1024
# What makes no more rows than Spark thinks and runs no code of the user's, which may be slow or have effects.
_KNOWN_NODES = frozenset(
    {
        "Aggregate",
        "Distinct",
        "Filter",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "LocalRelation",
        "OneRowRelation",
        "Project",
        "Range",
        "Relation",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "Union",
        "Window",
    }
)


def rows_in_driver(
    df: DataFrame, task: WriteTask, options: WriteOptions, is_local: Callable[[], bool]
) -> list[pa.RecordBatch] | None:
    """The rows, if this process is to write them; None if tasks are. At most the limit and one more come here.

    `lakelatch.write.small.rows` is the limit if it is set, whatever the frame looks like.
    """
    if options.small_rows is not None:
        return _at_most(options.small_rows, df, task) if options.small_rows else None
    if is_local():
        return _collected(df)
    if task.by_bucket:  # base files are merged or sorted side by side
        return None
    if is_small_list(df, ROWS_MAX, BYTES_MAX):
        rows = _collected(df)
    elif looks_small(df):
        rows = _at_most(ROWS_MAX, df, task)
    else:
        return None
    return None if rows is None or _files(rows, task) > FILES_MAX else rows


def looks_small(df: DataFrame) -> bool:
    """Whether Spark's optimizer takes the frame and each part of its plan for small.

    Of what is not known for sure, such as functions of Python, RDDs and streams, it is not said.
    """
    nodes = plan_nodes(df)
    return bool(nodes) and all(map(_is_small, nodes))


def _is_small(node: PlanNode) -> bool:
    return node.kind in _KNOWN_NODES and node.size_bytes <= BYTES_MAX and (node.rows or 0) <= ROWS_MAX


def _at_most(limit: int, df: DataFrame, task: WriteTask) -> list[pa.RecordBatch] | None:
    what = f"lakelatch: rows for the {task.operation} into {task.config.name!r} ({task.instant})"
    with with_progress(df.sparkSession, what):
        rows = _collected(df.limit(limit + 1))
    return rows if rows is not None and sum(batch.num_rows for batch in rows) <= limit else None


def _collected(df: DataFrame) -> list[pa.RecordBatch] | None:
    """The rows; None if Spark cannot give them, as where a struct is null that has fields which never are."""
    try:
        found: list[pa.RecordBatch] = df.toArrow().to_batches()
    except pa.ArrowException:
        return None
    return found


def has_required_in_nullable(kinds: Iterable[pa.Field]) -> bool:
    """Whether a value that may be null has fields that never are, which `toArrow` refuses if it is."""
    return any(
        has_required_in_nullable(inner)
        or (one.nullable and pa.types.is_struct(one.type) and not all(field.nullable for field in inner))
        for one in kinds
        for inner in ([one.type.field(place) for place in range(one.type.num_fields)],)
    )


def _files(rows: list[pa.RecordBatch], task: WriteTask) -> int:
    """How many files the rows become."""
    if not task.config.partition_fields and (task.config.bucket_count or 1) <= FILES_MAX:
        return 0  # or in any case few enough
    places = [task.tag(batch).select([PARTITION_COLUMN, BUCKET_COLUMN]) for batch in rows if batch.num_rows]
    if not places:
        return 0
    count: int = pa.Table.from_batches(places).group_by([PARTITION_COLUMN, BUCKET_COLUMN]).aggregate([]).num_rows
    return count
