"""Lakelatch: many PySpark jobs write one lakehouse table at once, and no row is lost.

`write`, `read`, `compact` and others are the function API. They are loaded on first use: those for Spark need the extra
`spark`, and `ArrowTable` does without it.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelatch.engine.arrow import ArrowTable, open
    from lakelatch.engine.calls import (
        archive,
        delete_savepoint,
        execute_cancel,
        open_cancellations,
        plans,
        preview_clean,
        request_cancel,
        restore,
        roll_back,
        savepoint,
        savepoints,
        schedule_clustering,
        schedule_compaction,
        schedule_log_compaction,
        verify,
        waiting_plans,
    )
    from lakelatch.engine.options.calls.keywords import options
    from lakelatch.engine.run.result import CommitResult
    from lakelatch.engine.services.removals.archiving import Archived
    from lakelatch.engine.several.resolving import resolve
    from lakelatch.engine.writing import delete_partitions
    from lakelatch.progress import Progress, on_progress
    from lakelatch.spark.calls import (
        clean,
        cluster,
        compact,
        execute_clustering,
        execute_compaction,
        execute_log_compaction,
        maintain,
    )
    from lakelatch.spark.enabled.sessions import disable, enable
    from lakelatch.spark.functions import detail, history, schema, show
    from lakelatch.spark.read.frames_out import read
    from lakelatch.spark.session.spark_types import use_in_thread
    from lakelatch.spark.several import snapshot, transaction
    from lakelatch.spark.streams.sink import write_batch
    from lakelatch.spark.table import Table
    from lakelatch.spark.write.frames_in import write

_MODULES = {
    "Table": "lakelatch.spark.table",
    "ArrowTable": "lakelatch.engine.arrow",
    "enable": "lakelatch.spark.enabled.sessions",
    "disable": "lakelatch.spark.enabled.sessions",
    "options": "lakelatch.engine.options.calls.keywords",
    "open": "lakelatch.engine.arrow",
    "write": "lakelatch.spark.write.frames_in",
    "CommitResult": "lakelatch.engine.run.result",
    "delete_partitions": "lakelatch.engine.writing",
    "read": "lakelatch.spark.read.frames_out",
    "show": "lakelatch.spark.functions",
    "history": "lakelatch.spark.functions",
    "detail": "lakelatch.spark.functions",
    "schema": "lakelatch.spark.functions",
    "snapshot": "lakelatch.spark.several",
    "transaction": "lakelatch.spark.several",
    "resolve": "lakelatch.engine.several.resolving",
    "Progress": "lakelatch.progress",
    "on_progress": "lakelatch.progress",
    "Archived": "lakelatch.engine.services.removals.archiving",
    "archive": "lakelatch.engine.calls",
    "clean": "lakelatch.spark.calls",
    "plans": "lakelatch.engine.calls",
    "preview_clean": "lakelatch.engine.calls",
    "cluster": "lakelatch.spark.calls",
    "schedule_clustering": "lakelatch.engine.calls",
    "execute_clustering": "lakelatch.spark.calls",
    "compact": "lakelatch.spark.calls",
    "schedule_compaction": "lakelatch.engine.calls",
    "request_cancel": "lakelatch.engine.calls",
    "execute_cancel": "lakelatch.engine.calls",
    "open_cancellations": "lakelatch.engine.calls",
    "execute_compaction": "lakelatch.spark.calls",
    "schedule_log_compaction": "lakelatch.engine.calls",
    "execute_log_compaction": "lakelatch.spark.calls",
    "savepoint": "lakelatch.engine.calls",
    "delete_savepoint": "lakelatch.engine.calls",
    "savepoints": "lakelatch.engine.calls",
    "roll_back": "lakelatch.engine.calls",
    "restore": "lakelatch.engine.calls",
    "maintain": "lakelatch.spark.calls",
    "write_batch": "lakelatch.spark.streams.sink",
    "use_in_thread": "lakelatch.spark.session.spark_types",
    "verify": "lakelatch.engine.calls",
    "waiting_plans": "lakelatch.engine.calls",
}

__all__ = [
    "Archived",
    "ArrowTable",
    "CommitResult",
    "Progress",
    "Table",
    "archive",
    "clean",
    "cluster",
    "compact",
    "delete_partitions",
    "delete_savepoint",
    "detail",
    "disable",
    "enable",
    "execute_cancel",
    "execute_clustering",
    "execute_compaction",
    "execute_log_compaction",
    "history",
    "maintain",
    "on_progress",
    "open",
    "open_cancellations",
    "options",
    "plans",
    "preview_clean",
    "read",
    "request_cancel",
    "resolve",
    "restore",
    "roll_back",
    "savepoint",
    "savepoints",
    "schedule_clustering",
    "schedule_compaction",
    "schedule_log_compaction",
    "schema",
    "show",
    "snapshot",
    "transaction",
    "use_in_thread",
    "verify",
    "waiting_plans",
    "write",
    "write_batch",
]

# What takes tables of Arrow as well, and so is there without Spark.
_OF_ARROW = {
    "snapshot": ("lakelatch.engine.several.cut", "Cut"),
    "transaction": ("lakelatch.engine.several.transaction", "TablesTransaction"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # which takes longer to import than all else here

        return version("lakelatch")
    if name not in _MODULES:
        raise AttributeError(f"module 'lakelatch' has no attribute {name!r}")
    if _MODULES[name].startswith("lakelatch.spark."):
        from lakelatch.plugins import ensure_installed, is_installed

        if name in _OF_ARROW and not is_installed("pyspark"):
            module, of_arrow = _OF_ARROW[name]
            return getattr(import_module(module), of_arrow)
        ensure_installed("pyspark", "spark", f"lakelatch.{name}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _lead_spark_here() -> None:
    """Has a session that is still to be made run its Python processes where this package is.

    Without PYSPARK_PYTHON they would be those of the `python3` on the PATH, and in an environment that is not activated
    Spark would find no data source `lakelatch` there. What somebody has said, or spark-submit has, stays.
    """
    said = {"PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"} & os.environ.keys()
    found = shutil.which("python3")
    if not said and sys.executable and os.path.dirname(found or "") != os.path.dirname(sys.executable):
        os.environ["PYSPARK_PYTHON"] = sys.executable


_lead_spark_here()
