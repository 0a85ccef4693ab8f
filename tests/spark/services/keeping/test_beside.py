"""Services beside a streaming query: woken by its batches, ended with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from live_table import LiveTable
from pyspark.sql import DataFrame

import lakelatch
from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.inline import REWRITE_AUTOMATIC
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.services.keeping.background import BackgroundServices
from lakelatch.spark.streams.query_services import running_beside
from lakelatch.storage import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot

MakeTable = Callable[..., Any]
COMMITS = "hoodie.compact.inline.max.delta.commits"


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline_ns = REAL_SYSTEM.monotonic_ns() + int(seconds * 1e9)
    while not condition():
        assert REAL_SYSTEM.monotonic_ns() < deadline_ns, "it never happened"
        REAL_SYSTEM.sleep(0.02)


def compactions(storage: Storage) -> int:
    return sum(found.action == "commit" for found in Snapshot.load(storage).completed)


def reached(found: BackgroundServices, rounds: int) -> bool:
    return found.rounds == rounds


def opened(table: LiveTable, is_active: Callable[[], bool], **options: str) -> BackgroundServices:
    parsed = Call({COMMITS: "2", **options}).services()
    return BackgroundServices(str(table.root), parsed, HERE, is_active, look_again_s=0.02)


def test_a_batch_wakes_it_and_it_does_what_is_due(table: LiveTable) -> None:
    found = opened(table, lambda: True)
    for number in range(4):
        table.write([(1, number, f"v{number}")])
        assert found.wake()
        until(partial(reached, found, number + 1))
    found.stop()
    assert compactions(table.storage) == 2 and len(table.agreed()) == 1


def test_it_ends_with_its_query_and_does_nothing_more(table: LiveTable) -> None:
    active = threading.Event()
    active.set()
    found = opened(table, active.is_set)
    for number in range(3):
        table.write([(1, number, "v")])
    active.clear()
    until(lambda: found.ended)
    assert not found.wake() and compactions(table.storage) == 0


def test_a_failure_waits_for_the_next_batch(table: LiveTable) -> None:
    for number in range(3):
        table.write([(1, number, "v")])
    properties = table.root / PROPERTIES_PATH
    found = opened(table, lambda: True)
    aside = properties.rename(properties.with_suffix(".aside"))
    found.wake()
    until(lambda: found.rounds == 1)
    aside.rename(properties)
    found.wake()
    until(lambda: found.rounds == 2)
    found.stop()
    assert compactions(table.storage) == 1


def test_small_files_of_a_stream_without_keys_are_joined(tmp_path: Path) -> None:
    """Its batches, as `write_batch` writes them, leave it to the thread."""
    batches = {"hoodie.datasource.write.recordkey.field": "", REWRITE_AUTOMATIC: "false"}
    table = ArrowTable(str(tmp_path / "events"), batches)
    found = BackgroundServices(table.path, Call({}).services(), HERE, lambda: True, look_again_s=0.02)
    for number in range(5):
        table.insert(pa.table({"x": [number]}))
        assert found.wake()
        until(partial(reached, found, number + 1))
    found.stop()
    assert len({row["_hoodie_file_name"] for row in table.to_arrow(meta_columns=True).to_pylist()}) == 1
    assert sorted(table.to_arrow()["x"].to_pylist()) == [0, 1, 2, 3, 4]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_query_is_compacted_beside_and_the_thread_ends_with_it(make_table: MakeTable, tmp_path: Path) -> None:
    table = make_table()
    options = {**table.options, COMMITS: "2"}
    source = tmp_path / "source"
    source.mkdir()

    def batch(frame: DataFrame, number: int) -> None:
        lakelatch.write_batch(frame, number, table.path, options)

    stream = table.spark.readStream.schema(table.columns).json(str(source)).writeStream.foreachBatch(batch)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for number in range(3):
            (source / f"{number}.json").write_text(f'{{"id": {number}, "ts": {number}, "v": "v{number}"}}')
            query.processAllAvailable()
        assert running_beside() == [table.path]
        until(lambda: compactions(open_storage(table.path)) >= 1)
    finally:
        query.stop()
    until(lambda: running_beside() == [])
    assert table.read() == [(0, 0, "v0"), (1, 1, "v1"), (2, 2, "v2")]
