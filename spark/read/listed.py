"""Spark looks at each file that it is told to read, in a job of a task for each, however few run at once.

Of 2,000 files these tasks take ten times as much as the looks. So for the time of a call there are some for each core.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakelatch.spark.session.spark_types import cores_of
from lakelatch.system import REAL_SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_TASKS_MIN = 64  # for executors that are still to come, under dynamic allocation
_TASKS_FOR_CORE = 4
_setting = REAL_SYSTEM.new_lock()


@contextmanager
def in_few_tasks(spark: SparkSession, files: int) -> Iterator[None]:
    """While the block tells Spark of so many files. Others who list files meanwhile do it in as few tasks.

    Spark Connect lists them later, and as its session is set.
    """
    cores = cores_of(spark)
    tasks = max(_TASKS_MIN, _TASKS_FOR_CORE * (cores or 0))
    if cores is None or files <= tasks:
        yield
        return
    with _setting:  # or one would take what another has set for what was said
        said = spark.conf.get(TASKS) or ""
        if not said.isdecimal() or int(said) <= tasks:
            yield
            return
        spark.conf.set(TASKS, tasks)
        try:
            yield
        finally:
            spark.conf.set(TASKS, said)
