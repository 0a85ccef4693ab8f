"""Cleaning a table from its path and options; the files of large cleans are removed by executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.errors import reraise
from lakelatch.services import cleaning
from lakelatch.services.cleaning import CleanResult, Remover
from lakelatch.spark.open_table import load_config
from lakelatch.spark.service_options import ServiceOptions
from lakelatch.spark.services.plans import Runner, SparkRunner, runner_of, table_at_rest
from lakelatch.spark.spark_types import for_each
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_OF_TASK = 1000
_REMOVED = pa.schema([("size_bytes", pa.int64())])


def clean(
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
    remove: Remover | None = None,
    if_due: bool = False,
    spark: SparkSession | None = None,
) -> list[CleanResult]:
    """Removes the files that no reader within retention needs; returns the cleans that this call completed.

    A clean that waits is carried out first. Writers and readers go on meanwhile. What another process works on is left
    to it. `remove` takes paths in the table and removes them, by default with threads of this process, and on the
    executors of a `spark` session if there are more than a thousand; `if_due` cleans only if enough has been committed
    since the last one.
    """
    with table_at_rest(path, options, system) as (table, manager, parsed):
        if remove is None and spark is not None:
            remove = remover(table.storage, parsed.cleaning.parallelism, partial(runner_of, spark))
        return cleaning.clean(table.config, manager, parsed.cleaning, remove, if_due)


def remover(
    storage: Storage, parallelism: int, runner: Callable[[], Runner] | None, files_of_task: int = _FILES_OF_TASK
) -> Remover:
    """Removes files where `runner` has tasks run, if that is on executors and they are more than one task takes.

    Otherwise threads of this process do it, and nobody is asked for a runner, which may have to open a session. A task
    that Spark repeats finds what is left; the bytes of what its first attempt has removed are not counted.
    """
    here = cleaning.in_threads(storage, parallelism)

    def remove(paths: Sequence[str]) -> int:
        if runner is None or len(paths) <= files_of_task:
            return here(paths)
        run = runner()
        if not isinstance(run, SparkRunner):
            return here(paths)
        parts = [tuple(paths[start : start + files_of_task]) for start in range(0, len(paths), files_of_task)]
        return _on_executors(run.spark, storage, parallelism, parts)

    return remove


def _on_executors(spark: SparkSession, storage: Storage, parallelism: int, parts: Sequence[Sequence[str]]) -> int:
    """Each part is a task, which removes its files with so many threads."""
    from pyspark.sql.pandas.types import from_arrow_schema

    work = partial(_remove_part, storage, parallelism)
    try:
        return sum(row.size_bytes for row in for_each(spark, parts, work, from_arrow_schema(_REMOVED)).collect())
    except Exception as error:
        reraise(error)


def _remove_part(storage: Storage, parallelism: int, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    size = cleaning.in_threads(storage, parallelism)(paths)
    yield pa.RecordBatch.from_pylist([{"size_bytes": size}], schema=_REMOVED)


def preview_clean(path: str, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Paths of the files that `clean` would remove now; nothing is changed, but for a look at the storage's clock."""
    parsed = ServiceOptions.parse(options)
    storage = open_storage(path, parsed.manager.storage)
    plan = cleaning.preview(storage, load_config(storage), parsed.cleaning)
    return () if plan is None else plan.paths
