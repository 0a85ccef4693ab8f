"""`writeStream.format("lakelatch")`: each micro-batch is committed once, whoever repeats it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

from lakelatch import errors
from lakelatch.engine.options.batch import BATCH_APPLICATION
from lakelatch.spark.streams.stream_writer import LakelatchStreamWriter
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.transaction import Transaction

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
SCHEMA = StructType().add("id", "long").add("ts", "long").add("v", "string")


def commits(path: str) -> list[str]:
    return [one.requested for one in Snapshot.load(open_storage(path)).completed if one.action == "deltacommit"]


def forget_last_batch(checkpoint: Path) -> None:
    """As if Spark had died between the sink's commit and its own note of it."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink(missing_ok=True)


def test_queries_into_one_table_commit_each_batch_once(make_table: MakeTable, tmp_path: Path) -> None:
    table = make_table(hoodie__write__concurrency__mode="NON_BLOCKING_CONCURRENCY_CONTROL")

    def fill(query: int, file: int) -> None:
        rows = [(10 * query + file, file, f"{query}/{file}"), (99, 10 * file + query, f"{query}/{file}")]
        table.frame(rows).coalesce(1).write.mode("append").parquet(f"{tmp_path}/{query}")

    def run(query: int, mode: str = "append", **more: str) -> None:
        stream = table.spark.readStream.schema(table.columns).parquet(f"{tmp_path}/{query}")
        options = {**table.options, **more, "checkpointLocation": f"{tmp_path}/checkpoint-{query}"}
        sink = stream.writeStream.format("lakelatch").outputMode(mode).options(**options)
        sink = sink.trigger(availableNow=True)
        (sink.start(table.path) if query else sink.option("path", table.path).start()).awaitTermination()

    for query in (0, 1):
        fill(query, 0)
        run(query)
    first = commits(table.path)
    assert len(first) == 2, "each query has a batch 0 of its own"
    forget_last_batch(tmp_path / "checkpoint-0")
    fill(0, 1)
    run(0)
    assert len(commits(table.path)) == 3 and commits(table.path)[:2] == first, (
        "the repeated batch is not another commit"
    )
    assert table.read() == [(0, 0, "0/0"), (1, 1, "0/1"), (10, 0, "1/0"), (99, 10, "0/1")]
    fill(1, 1)
    for options, named in (
        ({"hoodie.datasource.compaction.async.enable": "true"}, "the sink's processes end with each batch"),
        ({"lakelatch.write.batch.number": "1"}, "Spark numbers the batches"),
    ):
        with pytest.raises(StreamingQueryException) as caught:
            run(1, **options)
        with pytest.raises(errors.InvalidRequest, match=named):
            errors.reraise(caught.value)
    assert len(commits(table.path)) == 3


def write(writer: LakelatchStreamWriter, rows: list[dict[str, Any]]) -> list[Any]:
    """What Spark does with a writer before its commit: it is shipped, and a task's message comes back the same way."""
    shipped = pickle.loads(pickle.dumps(writer))
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([("id", "int64"), ("ts", "int64"), ("v", "string")]))
    return [pickle.loads(pickle.dumps(shipped.write(iter([batch]))))]


def test_of_two_drivers_of_one_query_one_commits_a_batch(make_table: MakeTable) -> None:
    """One of them was only paused: it wakes up before or after the other has committed, or ended in between."""
    table = make_table(hoodie__write__concurrency__mode="NON_BLOCKING_CONCURRENCY_CONTROL")

    def driver() -> LakelatchStreamWriter:
        return LakelatchStreamWriter(table.path, {**table.options, BATCH_APPLICATION: "q"}, SCHEMA)

    paused = write(driver(), [{"id": 1, "ts": 1, "v": "paused"}])
    other = write(driver(), [{"id": 1, "ts": 1, "v": "other"}])
    driver().commit(other, 0)
    driver().commit(paused, 0)
    driver().commit(other, 0)
    driver().abort(other, 0)
    assert table.read() == [(1, 1, "other")] and len(commits(table.path)) == 1
    driver().abort([None, *write(driver(), [{"id": 2, "ts": 1, "v": "aborted"}])], 1)
    driver().commit(write(driver(), [{"id": 3, "ts": 1, "v": "next"}]), 1)
    driver().commit(paused, 0)
    assert table.read() == [(1, 1, "other"), (3, 1, "next")] and len(commits(table.path)) == 2


def test_an_abort_that_cannot_look_for_conflicts_still_ends_its_transaction(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark uses the process of an abort again, and whoever beats is not rolled back."""
    table = make_table(hoodie__write__concurrency__mode="NON_BLOCKING_CONCURRENCY_CONTROL")
    writer = LakelatchStreamWriter(table.path, {**table.options, BATCH_APPLICATION: "q"}, SCHEMA)
    begun = write(writer, [{"id": 1, "ts": 1, "v": "aborted"}])

    def unreachable(_: Transaction) -> None:
        raise errors.Unavailable("the storage does not answer")

    monkeypatch.setattr(Transaction, "found_early", unreachable)
    writer.abort(begun, 0)
    instant = begun[0].begun.state.instant
    assert [one.name for one in threading.enumerate() if instant in one.name] == []
    assert Snapshot.load(open_storage(table.path)).pending == ()
