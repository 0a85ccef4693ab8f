"""What Python workers need is imported once for each kind of them, and not by each worker.

Spark forks its Python workers from a process that has imported nothing, and starts new ones all the time: after a
minute without work, and after each error. So they spent more on imports than on all that tests ask of them. Python
runs this module before any other where its folder is on PYTHONPATH; `open_test_session` has it there for Java alone.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

_DAEMON = ["-m", "pyspark.daemon"]


def _import_for_workers(worker: str) -> None:
    # Of threads that numpy and Arrow start when they are imported, forked processes would have none.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    for name in (
        worker,
        "pyspark.sql.conversion",
        "pyspark.sql.pandas.serializers",
        "lakelatch.spark.data_source",
        "pyspark_lakelatch",
    ):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if sys.orig_argv[1:3] == _DAEMON:
    _import_for_workers(sys.orig_argv[3])
