"""Spark jobs whose tasks announce their files through the driver's marker server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

import lakelatch
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.spark.session.marker_server import served
from lakelatch.spark.write import frames_in as writer
from lakelatch.storage import LocalStorage
from lakelatch.testing.ports import free_port
from lakelatch.transactions.markers.files import MARKERS_FOLDER, is_markers_file
from lakelatch.transactions.transaction import Transaction

pytestmark = pytest.mark.spark
PREFIX = "hoodie.write.concurrency.early.conflict.detection."
SERVER = {"hoodie.write.markers.type": "TIMELINE_SERVER_BASED"}
EARLY = {
    **SERVER,
    PREFIX + "enable": "true",
    PREFIX + "strategy": "org.apache.hudi.timeline.service.handlers.marker.AsyncTimelineServerBasedDetectionStrategy",
    "hoodie.write.concurrency.async.conflict.detector.period_ms": "50",
}
PORT = "hoodie.embed.timeline.server.port"
PATIENCE_S = 400


@pytest.fixture
def table(make_table: Callable[..., Any]) -> Any:
    by_tasks = {"hoodie__upsert__shuffle__parallelism": "4", "lakelatch__write__small__rows": "0"}
    table = make_table(hoodie__bucket__index__num__buckets="4", **by_tasks)
    table.write([(0, 0, "first")])
    return table


def computed(table: Any, rows: int, name: str) -> DataFrame:
    """A frame that Spark has to compute."""
    return table.spark.range(rows).selectExpr("id", "id + 10 as ts", f"'{name}' as v")  # type: ignore[no-any-return]


def marked(table: Any, instant: str) -> tuple[list[str], list[str]]:
    """Names of the MARKERS files, and of the direct markers of a table without partitions."""
    names = LocalStorage(table.path).list(f"{MARKERS_FOLDER}/{instant}").files
    return [name for name in names if is_markers_file(name)], [name for name in names if ".marker." in name]


def test_of_two_jobs_the_later_one_loses_early(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier one has written its files and waits before it commits."""
    before_commit, go_on = threading.Event(), threading.Event()
    seen: list[Any] = []
    commit = Transaction.close

    def waiting(transaction: Transaction, *given: Any) -> Any:
        seen.append((transaction.instant, marked(table, transaction.instant), transaction.markers.announced()))
        before_commit.set()
        assert go_on.wait(PATIENCE_S)
        return commit(transaction, *given)

    monkeypatch.setattr(Transaction, "close", waiting)
    options = {**table.options, **EARLY}
    with ThreadPoolExecutor(1) as pool:
        try:
            early = pool.submit(lakelatch.write, computed(table, 1, "early"), table.path, options)
            assert before_commit.wait(PATIENCE_S)
            with pytest.raises(WriteConflict) as caught:
                lakelatch.write(computed(table, 400, "late"), table.path, options)
        finally:
            go_on.set()
        done = early.result(PATIENCE_S)
    ((winner, (servers, direct), announced),) = seen
    assert servers and not direct and announced == list(done.files)
    conflict = caught.value
    assert conflict.early and conflict.winner == winner == done.instant < conflict.details["instant"]
    assert len(conflict.file_groups) == 1 and 0 <= conflict.rows_lost < 400
    assert table.read() == [(0, 10, "early")]
    assert marked(table, winner) == marked(table, conflict.details["instant"]) == ([], [])


def test_tasks_that_do_not_reach_the_server_announce_directly(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    commit = Transaction.close

    @contextmanager
    def elsewhere(*given: Any) -> Iterator[Any]:
        with served(*given) as task:
            assert task.server is not None and task.server.port != 0
            yield replace(task, server=replace(task.server, port=free_port()))

    def looking(transaction: Transaction, *given: Any) -> Any:
        seen.append((marked(table, transaction.instant), transaction.markers.announced()))
        return commit(transaction, *given)

    monkeypatch.setattr(writer, "served", elsewhere)
    monkeypatch.setattr(Transaction, "close", looking)
    done = lakelatch.write(computed(table, 40, "all"), table.path, {**table.options, **SERVER})
    (((servers, direct), announced),) = seen
    assert servers == [] and len(direct) == len(announced) == len(done.files) == 4
    assert len(table.read()) == 40


def test_a_taken_port_is_told_and_nothing_written(table: Any) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = {**table.options, **SERVER, PORT: str(taken.getsockname()[1])}
        with pytest.raises(InvalidRequest, match=PORT):
            lakelatch.write(computed(table, 10, "none"), table.path, options)
    assert table.read() == [(0, 0, "first")]
