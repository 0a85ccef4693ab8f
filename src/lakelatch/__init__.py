"""Lakelatch: many PySpark jobs write one lakehouse table at once, and no row is lost.

`write`, `read`, `compact` and others are the function API; they are loaded on first use, so that the packages which
know no Spark can be used without it.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelatch.services.archiving import Archived
    from lakelatch.spark.api.arrow_table import ArrowTable, open
    from lakelatch.spark.api.functions import detail, history, schema, show
    from lakelatch.spark.api.keywords import options
    from lakelatch.spark.api.table import Table
    from lakelatch.spark.progress import Progress, on_progress
    from lakelatch.spark.read.reader import read
    from lakelatch.spark.services.archiving import archive
    from lakelatch.spark.services.cancelling import execute_cancel, open_cancellations, request_cancel
    from lakelatch.spark.services.clean import clean, preview_clean
    from lakelatch.spark.services.clustering import cluster, execute_clustering, schedule_clustering
    from lakelatch.spark.services.compaction import compact, execute_compaction, schedule_compaction, waiting_plans
    from lakelatch.spark.services.keeping.maintenance import maintain
    from lakelatch.spark.services.log_compaction import execute_log_compaction, schedule_log_compaction
    from lakelatch.spark.services.taking_back import delete_savepoint, restore, roll_back, savepoint, savepoints
    from lakelatch.spark.services.verifying import verify
    from lakelatch.spark.spark_types import use_in_thread
    from lakelatch.spark.write.delete_partitions import delete_partitions
    from lakelatch.spark.write.result import CommitResult
    from lakelatch.spark.write.streaming.sink import write_batch
    from lakelatch.spark.write.writer import write

_MODULES = {
    "Table": "lakelatch.spark.api.table",
    "ArrowTable": "lakelatch.spark.api.arrow_table",
    "options": "lakelatch.spark.api.keywords",
    "open": "lakelatch.spark.api.arrow_table",
    "write": "lakelatch.spark.write.writer",
    "CommitResult": "lakelatch.spark.write.result",
    "delete_partitions": "lakelatch.spark.write.delete_partitions",
    "read": "lakelatch.spark.read.reader",
    "show": "lakelatch.spark.api.functions",
    "history": "lakelatch.spark.api.functions",
    "detail": "lakelatch.spark.api.functions",
    "schema": "lakelatch.spark.api.functions",
    "Progress": "lakelatch.spark.progress",
    "on_progress": "lakelatch.spark.progress",
    "Archived": "lakelatch.services.archiving",
    "archive": "lakelatch.spark.services.archiving",
    "clean": "lakelatch.spark.services.clean",
    "preview_clean": "lakelatch.spark.services.clean",
    "cluster": "lakelatch.spark.services.clustering",
    "schedule_clustering": "lakelatch.spark.services.clustering",
    "execute_clustering": "lakelatch.spark.services.clustering",
    "compact": "lakelatch.spark.services.compaction",
    "schedule_compaction": "lakelatch.spark.services.compaction",
    "request_cancel": "lakelatch.spark.services.cancelling",
    "execute_cancel": "lakelatch.spark.services.cancelling",
    "open_cancellations": "lakelatch.spark.services.cancelling",
    "execute_compaction": "lakelatch.spark.services.compaction",
    "schedule_log_compaction": "lakelatch.spark.services.log_compaction",
    "execute_log_compaction": "lakelatch.spark.services.log_compaction",
    "savepoint": "lakelatch.spark.services.taking_back",
    "delete_savepoint": "lakelatch.spark.services.taking_back",
    "savepoints": "lakelatch.spark.services.taking_back",
    "roll_back": "lakelatch.spark.services.taking_back",
    "restore": "lakelatch.spark.services.taking_back",
    "maintain": "lakelatch.spark.services.keeping.maintenance",
    "write_batch": "lakelatch.spark.write.streaming.sink",
    "use_in_thread": "lakelatch.spark.spark_types",
    "verify": "lakelatch.spark.services.verifying",
    "waiting_plans": "lakelatch.spark.services.compaction",
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
    "preview_clean",
    "read",
    "request_cancel",
    "restore",
    "roll_back",
    "savepoint",
    "savepoints",
    "schedule_clustering",
    "schedule_compaction",
    "schedule_log_compaction",
    "schema",
    "show",
    "use_in_thread",
    "verify",
    "waiting_plans",
    "write",
    "write_batch",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("lakelatch")
    if name not in _MODULES:
        raise AttributeError(f"module 'lakelatch' has no attribute {name!r}")
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
