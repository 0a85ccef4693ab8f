"""Both engines write one table at once under one ZooKeeper lock, and nothing is lost or there twice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from java_hudi import (
    NON_BLOCKING,
    OPTIMISTIC,
    ORDERED,
    OURS,
    SHARED,
    JavaHudi,
    JavaHudiError,
    Rows,
    table_of,
    zookeeper_locks,
)
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.errors import WriteConflict
from lakelatch.testing.servers import Server

COMMITS = 5
TRIES = 8
COLUMNS = "id long, ts long, v string"
SHARED_KEYS = range(4)
MODE = "hoodie.write.concurrency.mode"


def lock_options(server: Server) -> dict[str, str]:
    return {
        **zookeeper_locks(server, "trips"),
        "hoodie.write.lock.wait_time_ms": "60000",
        "hoodie.time.generator.type": "skew_adjusting",
    }


def rows_of(side: int, number: int) -> list[tuple[int, int, str]]:
    """One key that nobody else writes, and two that the other side writes as well; no two rows have one ordering."""
    ts = 100 + 2 * number + side
    mine = (100 * (side + 1) + number, ts, f"w{side}-{number}")
    return [mine, *((key, ts, f"w{side}-{number}") for key in (number % 4, (number + 1) % 4))]


def expected() -> dict[int, str]:
    found: dict[int, tuple[int, str]] = dict.fromkeys(SHARED_KEYS, (1, "first"))
    for side in range(2):
        for number in range(COMMITS):
            for key, ts, value in rows_of(side, number):
                if key not in found or found[key][0] < ts:
                    found[key] = (ts, value)
    return {key: value for key, (_, value) in found.items()}


@pytest.mark.parametrize("mode", ["optimistic", "non-blocking"])
def test_two_engines_under_one_lock(
    spark: SparkSession,
    java: JavaHudi,
    zookeeper: Server,
    tmp_path: Path,
    ours: Callable[..., Rows],
    hudi_rs: Callable[[str], Rows],
    mode: str,
) -> None:
    path = str(tmp_path / "trips")
    control = NON_BLOCKING if mode == "non-blocking" else OPTIMISTIC
    locks = lock_options(zookeeper)
    options = {**OURS, **locks, MODE: control[MODE], "hoodie.table.name": "trips"}
    java_options = {**SHARED, **ORDERED, **control, **locks, "hoodie.time.generator.type": "WAIT_TO_ADJUST_SKEW"}
    lost: list[Any] = []

    def write_ours(number: int) -> None:
        frame = spark.createDataFrame(table_of(COLUMNS, rows_of(0, number)))
        for _ in range(TRIES):
            try:
                lakelatch.write(frame, path, options)
                return
            except WriteConflict as conflict:
                lost.append(conflict)
        raise AssertionError(f"our commit {number} lost {TRIES} times: {lost}")

    def write_java(number: int) -> None:
        for _ in range(TRIES):
            try:
                java.write(path, table_of(COLUMNS, rows_of(1, number)), java_options)
                return
            except JavaHudiError as error:
                # Java gives up as well if somebody rolls the same dead write back at the same time.
                if not any(text in str(error) for text in ("HoodieWriteConflictException", "Could not delete instant")):
                    raise
                lost.append(error)
        raise AssertionError(f"Java's commit {number} lost {TRIES} times: {lost}")

    def all_of(write: Callable[[int], None]) -> None:
        for number in range(COMMITS):
            write(number)

    first = table_of(COLUMNS, [(key, 1, "first") for key in SHARED_KEYS])
    lakelatch.write(spark.createDataFrame(first), path, options)
    with ThreadPoolExecutor(2) as pool:
        sides = [pool.submit(all_of, write) for write in (write_ours, write_java)]
        for side in sides:
            side.result()
    rows = ours(path)
    assert {row["id"]: row["v"] for row in rows} == expected() and len(rows) == len(expected())
    assert rows == java.read(path) == hudi_rs(path)
    assert mode == "optimistic" or not lost
    completed = list((Path(path) / ".hoodie" / "timeline").glob("*_*.deltacommit"))
    assert len(completed) == 1 + 2 * COMMITS
    assert lakelatch.compact(spark, path, {**options, "hoodie.compact.inline.max.delta.commits": "1"})
    assert {row["id"]: row["v"] for row in ours(path)} == expected()
    assert ours(path) == java.read(path) == java.read_optimized(path) == hudi_rs(path)
