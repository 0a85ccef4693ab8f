"""Lakelatch: many PySpark jobs write one lakehouse table at once, and no row is lost.

`write`, `read` and `compact` are the function API; they are loaded on first use, so that the packages which know no
Spark can be used without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelatch.spark.read.reader import read
    from lakelatch.spark.services.compaction import compact, execute_compaction, schedule_compaction, waiting_plans
    from lakelatch.spark.services.log_compaction import execute_log_compaction, schedule_log_compaction
    from lakelatch.spark.spark_types import use_in_thread
    from lakelatch.spark.write.delete_partitions import delete_partitions
    from lakelatch.spark.write.result import CommitResult
    from lakelatch.spark.write.streaming.sink import write_batch
    from lakelatch.spark.write.writer import write

_MODULES = {
    "write": "lakelatch.spark.write.writer",
    "CommitResult": "lakelatch.spark.write.result",
    "delete_partitions": "lakelatch.spark.write.delete_partitions",
    "read": "lakelatch.spark.read.reader",
    "compact": "lakelatch.spark.services.compaction",
    "schedule_compaction": "lakelatch.spark.services.compaction",
    "execute_compaction": "lakelatch.spark.services.compaction",
    "schedule_log_compaction": "lakelatch.spark.services.log_compaction",
    "execute_log_compaction": "lakelatch.spark.services.log_compaction",
    "write_batch": "lakelatch.spark.write.streaming.sink",
    "use_in_thread": "lakelatch.spark.spark_types",
    "waiting_plans": "lakelatch.spark.services.compaction",
}

__all__ = [
    "CommitResult",
    "compact",
    "delete_partitions",
    "execute_compaction",
    "execute_log_compaction",
    "read",
    "schedule_compaction",
    "schedule_log_compaction",
    "use_in_thread",
    "waiting_plans",
    "write",
    "write_batch",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lakelatch' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
