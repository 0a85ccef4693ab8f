"""Services that run during the streaming queries of this process: begun and woken by batches, ended with it."""

from __future__ import annotations

import atexit
from functools import partial
from typing import TYPE_CHECKING, Any

from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.services.keeping.background import BackgroundServices
from lakelatch.engine.services.keeping.steps import Steps
from lakelatch.spark.session.executor import SparkExecutor
from lakelatch.system import REAL_SYSTEM, System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_AT_EXIT_S = 10.0
_running: dict[tuple[str, str], BackgroundServices] = {}
_guard = REAL_SYSTEM.new_lock()


def wake_beside(spark: SparkSession, query_id: str, path: str, options: ServiceOptions, system: System) -> None:
    """Has a batch of a query wake its services; starts them with the first one, and anew if their options changed."""
    if not Steps(options).in_background():
        return
    key = (query_id, path)
    with _guard:
        for old in [old for old, found in _running.items() if found.ended]:
            del _running[old]
        found = _running.get(key)
        if found is not None and found.options != options:
            found.stop(0)
            found = None
        if found is None or not found.wake():
            executor = SparkExecutor.of(spark)
            _running[key] = BackgroundServices(path, options, executor, partial(_is_active, spark, query_id), system)
            _running[key].wake()


def running_beside() -> list[str]:
    """Paths of the tables that have services during a query of this process."""
    with _guard:
        return sorted(found.path for found in _running.values() if not found.ended)


def _is_active(spark: Any, query_id: str) -> bool:
    """Whether the query runs. A batch's session is a copy of the query's own, which does not list its streams."""
    try:
        queries = spark._jsparkSession.sharedState().activeStreamingQueries().keySet().toString()
    except Exception:  # the session, its gateway or its Java process has ended
        return False
    return query_id in queries


@atexit.register
def _stop_all() -> None:
    with _guard:
        running = [found for found in _running.values() if not found.ended]
    for found in running:
        found.stop(_PATIENCE_AT_EXIT_S / len(running))
