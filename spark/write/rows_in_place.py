"""Rows that are written by the tasks that have them, where a shuffle by bucket would cost more than it saves.

In which file group a row belongs follows from its key, and several log files of one commit in a file group are ordinary
in Hudi. So each task writes a log file for each bucket that its rows touch. Readers open each of them, so it has to be
known beforehand that they are few and not small: that says an estimate of Spark's, of plans in which it cannot be far
too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.spark.session.catalog import quoted
from lakelatch.spark.session.spark_types import cores_of
from lakelatch.spark.write.plan_statistics import CACHED, PlanNode, plan_nodes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The most tasks, and so log files of one commit in a file group.
TASKS_MAX = 32
#: What a file has to come to on average, by the estimate, for which parquet files count as they are, compressed.
FILE_BYTES_MIN = 512 * 1024
#: What a task takes at most, by the estimate.
TASK_BYTES_MAX = 256 * 1024 * 1024
# A filter, a join or an aggregate may leave much less than Spark thinks, and a function of Python may do anything.
_MEASURED_LEAVES = frozenset({CACHED, "Range", "Relation"})
_MEASURED_NODES = frozenset({"Project", "Union"})


def in_place(df: DataFrame, task: WriteTask, options: WriteOptions) -> DataFrame | None:
    """The frame whose tasks write its rows; None if the rows of a bucket are to come together in one task first."""
    if task.as_they_come:
        fields = task.config.partition_fields
        return df.sortWithinPartitions(*(quoted([name]) for name in fields)) if fields else df
    if task.by_bucket or options.shuffle:
        return None
    if options.shuffle is False:
        return df
    if options.parallelism is not None or task.config.partition_fields:  # how many partitions are touched is not known
        return None
    cores = cores_of(df.sparkSession)
    tasks = None if cores is None else tasks_in_place(plan_nodes(df), cores, task.config.bucket_count or 1)
    return None if tasks is None else df.coalesce(tasks)


def tasks_in_place(nodes: list[PlanNode], cores: int, buckets: int) -> int | None:
    """How many tasks at most write the rows of such a plan in place; None where it does not pay, or may not."""
    if not nodes or not all(map(_is_measured, nodes)):
        return None
    size_bytes = nodes[0].size_bytes
    tasks = max(cores, -(-int(size_bytes) // TASK_BYTES_MAX))
    return tasks if tasks <= TASKS_MAX and size_bytes >= tasks * buckets * FILE_BYTES_MIN else None


def _is_measured(node: PlanNode) -> bool:
    if node.kind == CACHED:  # until all of it is cached, Spark guesses
        return node.rows is not None
    return node.kind in _MEASURED_LEAVES or node.kind in _MEASURED_NODES
