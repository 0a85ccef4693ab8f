"""Overwrites and deletions of partitions by Spark jobs, among others: what commits later is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import lakelatch
from lakelatch.engine.write import relocation
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import calling
from lakelatch.format.names import parse_data_file
from lakelatch.system import REAL_SYSTEM

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]

MODE = "hoodie.write.concurrency.mode"
OPERATION = "hoodie.datasource.write.operation"
RETRIES = "hoodie.write.num.retries.on.conflict.failures"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
COLUMNS = "id long, ts long, v string, part string"
PATIENCE_S = 400


@pytest.fixture
def make_parted(make_table: MakeTable) -> MakeTable:
    """Partitioned by `part`; each row is (id, ts, v, part)."""
    return lambda **more: make_table(COLUMNS, partition="part", **more)


@pytest.fixture
def table(make_parted: MakeTable) -> Any:
    return make_parted(hoodie__write__concurrency__mode=NON_BLOCKING)


def rows(ids: range, ts: int, name: str, part: str = "p") -> list[tuple[Any, ...]]:
    return [(key, ts, f"{name}{key}", part) for key in ids]


class Gate:
    """Frames that are evaluated halfway, and then wait until the gate is opened."""

    def __init__(self, folder: Path) -> None:
        self.reached = folder / "reached"
        self.opened = folder / "opened"

    def behind(self, frame: DataFrame) -> DataFrame:
        reached, opened, patience_s = str(self.reached), str(self.opened), PATIENCE_S

        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                Path(reached).touch()
                deadline_ns = REAL_SYSTEM.monotonic_ns() + patience_s * 10**9
                while not Path(opened).exists() and REAL_SYSTEM.monotonic_ns() < deadline_ns:
                    REAL_SYSTEM.sleep(0.02)

        return frame.coalesce(1).mapInArrow(wait, frame.schema)  # in one task, so that others have a core

    def wait_until_reached(self) -> None:
        deadline_ns = REAL_SYSTEM.monotonic_ns() + PATIENCE_S * 10**9
        while not self.reached.exists():
            assert REAL_SYSTEM.monotonic_ns() < deadline_ns
            REAL_SYSTEM.sleep(0.02)

    def open(self) -> None:
        self.opened.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.open()


def file_ids(result: lakelatch.CommitResult) -> set[str]:
    return {file.file_id for file in map(parse_data_file, result.files) if file is not None}


@pytest.mark.parametrize("local", [True, False])
def test_operations(make_parted: MakeTable, local: bool) -> None:
    table = make_parted()
    table.write(rows(range(6), 9, "a") + rows(range(6), 9, "a", "q"), local=local)
    done = table.write(rows(range(2), 1, "b"), local=local, hoodie__datasource__write__operation="insert_overwrite")
    assert (done.operation, done.rows_written, done.file_groups_replaced) == ("insert_overwrite", 2, 2)
    assert table.read() == sorted(rows(range(2), 1, "b") + rows(range(6), 9, "a", "q"), key=repr)
    table.write(rows(range(1, 3), 2, "c"), local=local)
    assert table.read({"columns": "id,ts,v,part"}) == sorted(
        rows(range(1), 1, "b") + rows(range(1, 3), 2, "c") + rows(range(6), 9, "a", "q"), key=repr
    )
    table.compact()
    gone = lakelatch.delete_partitions(table.path, "q", table.options)
    assert (gone.operation, gone.rows_written, gone.files) == ("delete_partition", 0, ())
    assert table.read() == rows(range(1), 1, "b") + rows(range(1, 3), 2, "c")
    table.write(rows(range(1), 1, "d", "r"), local=local, hoodie__datasource__write__operation="insert_overwrite_table")
    assert table.read() == rows(range(1), 1, "d", "r")
    assert len(table.read({"as.of.instant": done.completion})) == 8


def test_a_first_write_may_be_an_overwrite(make_parted: MakeTable) -> None:
    table = make_parted()
    table.write(rows(range(3), 1, "a"), hoodie__datasource__write__operation="insert_overwrite_table")
    assert table.read() == rows(range(3), 1, "a")


def test_a_partition_that_is_computed_from_itself(make_parted: MakeTable) -> None:
    """The frame reads what its own commit takes away."""
    table = make_parted()
    table.write(rows(range(4), 1, "a"))
    table.compact()

    def halved() -> DataFrame:
        return lakelatch.read(table.spark, table.path).where("id < 2").drop("_hoodie_commit_time")

    lakelatch.write(halved, table.path, {**table.options, OPERATION: "insert_overwrite"})
    assert table.read() == rows(range(2), 1, "a")


@pytest.mark.parametrize("on_executors", [False, True])
def test_a_job_that_is_overtaken_by_an_overwrite_is_read_and_computed_once(
    table: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch, on_executors: bool
) -> None:
    table.write(rows(range(20), 5, "old"))
    if on_executors:
        monkeypatch.setattr(relocation, "_SMALL_BYTES", 0)
    begun: list[str] = []
    slow = gate.behind(table.frame(rows(range(10, 30), 7, "slow") + rows(range(3), 7, "slow", "q"), local=False))
    over_rows = table.frame(rows(range(2), 1, "over"))
    with calling(begun.append, ["write.before_rows"]), ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(lakelatch.write, slow, table.path, {**table.options, "lakelatch.write.small.rows": 0})
        gate.wait_until_reached()
        over = lakelatch.write(over_rows, table.path, {**table.options, OPERATION: "insert_overwrite"})
        gate.open()
        done = under_way.result(PATIENCE_S)
    assert len(begun) == 2, "one of the two jobs was computed twice"
    assert done.completion > over.completion and done.conflicts_retried == 0
    relocated = f"-{over.instant[:4]}-{over.instant[4:8]}-{over.instant[8:12]}-"
    assert sorted(relocated in file_id for file_id in file_ids(done)) == [False, False, True, True]
    expected = rows(range(2), 1, "over") + rows(range(10, 30), 7, "slow") + rows(range(3), 7, "slow", "q")
    assert table.read() == sorted(expected, key=repr)
    table.compact()
    assert table.read() == sorted(expected, key=repr) == table.read({"hoodie.datasource.query.type": "read_optimized"})


def test_the_data_source_follows_as_well(table: Any, gate: Gate) -> None:
    table.write(rows(range(4), 5, "old"))
    slow = gate.behind(table.frame(rows(range(2, 6), 7, "slow"), local=False))

    def save() -> None:
        lakelatch.use_in_thread(table.spark)
        slow.write.format("lakelatch").options(**table.options).mode("append").save(table.path)

    thread = threading.Thread(target=save)
    thread.start()
    gate.wait_until_reached()
    lakelatch.delete_partitions(table.path, "p", table.options)
    gate.open()
    thread.join(PATIENCE_S)
    assert table.read() == rows(range(2, 6), 7, "slow")
    over = table.frame(rows(range(1), 1, "over")).write.format("lakelatch").options(**table.options)
    over.option(OPERATION, "insert_overwrite").mode("append").save(table.path)
    assert table.read() == rows(range(1), 1, "over")


def test_an_optimistic_job_is_computed_anew(make_parted: MakeTable) -> None:
    """It loses to the deletion, reads what is left, and writes that."""
    table = make_parted()
    table.write(rows(range(4), 1, "a") + rows(range(4), 1, "a", "q"))
    deletions: list[lakelatch.CommitResult] = []

    def delete_once(_: str) -> None:
        if not deletions:
            deletions.append(lakelatch.delete_partitions(table.path, "p", table.options))

    def older() -> DataFrame:
        return lakelatch.read(table.spark, table.path).selectExpr("id", "ts + 1 AS ts", "upper(v) AS v", "part")

    with calling(delete_once, ["write.before_rows"]):
        with pytest.raises(WriteConflict) as caught:
            lakelatch.write(older, table.path, table.options)
        assert caught.value.winner == deletions[0].instant
        table.write(rows(range(4), 1, "a"))
        deletions.clear()
        done = lakelatch.write(older, table.path, {**table.options, RETRIES: 3})
    assert done.conflicts_retried == 1
    assert table.read() == rows(range(4), 2, "A", "q")


def test_partitions_may_be_named_in_the_options(make_parted: MakeTable) -> None:
    table = make_parted(hoodie__datasource__write__hive_style_partitioning="true")
    table.write(rows(range(1), 1, "a") + rows(range(1), 1, "a", "q"))
    named = {**table.options, "hoodie.datasource.write.partitions.to.delete": "part=p"}
    with pytest.raises(InvalidRequest, match="nearest are part="):
        lakelatch.delete_partitions(table.path, "p", table.options)
    with pytest.raises(InvalidRequest, match="given twice"):
        lakelatch.delete_partitions(table.path, "part=p", named)
    assert lakelatch.delete_partitions(table.path, options=named).file_groups_replaced == 1
    assert table.read() == rows(range(1), 1, "a", "q")
