"""The marker server beside a Spark job: where it listens, and what its tasks are given of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakelatch.spark.write.task import WriteTask
from lakelatch.transactions.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakelatch.spark")
_HOST = "spark.driver.host"
_BIND_HOST = "spark.driver.bindAddress"


@contextmanager
def served(
    session: SparkSession, transaction: Transaction, task: WriteTask, when_lost: Callable[[], None]
) -> Iterator[WriteTask]:
    """The task, which announces through a marker server in this process as long as the block runs, if that is asked.

    It listens where Spark's driver does. Under Spark Connect this process is not the driver, and executors would look
    for it in vain: markers are direct there.
    """
    context = getattr(session, "sparkContext", None)
    if context is None:
        if transaction.asks_for_marker_server:
            _log.warning("there is no marker server under Spark Connect: the markers of this write are direct")
        yield task
        return
    settings = context.getConf()
    host = settings.get(_HOST, "localhost")
    with transaction.serve_markers(host, settings.get(_BIND_HOST, host), when_lost) as address:
        yield replace(task, server=address)
