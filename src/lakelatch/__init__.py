"""Lakelatch: many PySpark jobs write one lakehouse table at once, and no row is lost.

`write`, `read` and `compact` are the function API; they are loaded on first use, so that the rooms which know no Spark
can be used without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelatch.pipeline.committing import CommitResult
    from lakelatch.pipeline.compaction import compact, execute_compaction, schedule_compaction
    from lakelatch.pipeline.log_compaction import execute_log_compaction, schedule_log_compaction
    from lakelatch.pipeline.partitions import delete_partitions
    from lakelatch.pipeline.reader import read
    from lakelatch.pipeline.spark_types import use_in_thread
    from lakelatch.pipeline.streaming import write_batch
    from lakelatch.pipeline.writer import write

_HOMES = {
    "write": "lakelatch.pipeline.writer",
    "CommitResult": "lakelatch.pipeline.committing",
    "delete_partitions": "lakelatch.pipeline.partitions",
    "read": "lakelatch.pipeline.reader",
    "compact": "lakelatch.pipeline.compaction",
    "schedule_compaction": "lakelatch.pipeline.compaction",
    "execute_compaction": "lakelatch.pipeline.compaction",
    "schedule_log_compaction": "lakelatch.pipeline.log_compaction",
    "execute_log_compaction": "lakelatch.pipeline.log_compaction",
    "write_batch": "lakelatch.pipeline.streaming",
    "use_in_thread": "lakelatch.pipeline.spark_types",
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
    "write",
    "write_batch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lakelatch' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
