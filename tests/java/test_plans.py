"""One plan, two engines: Java takes it from a dead executor of ours and, below 1.2, a live one; and cancelled ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from java_hudi import NON_BLOCKING, ORDERED, OURS, SHARED, JavaHudi, JavaHudiError, Rows, table_of, zookeeper_locks
from live_table import LiveTable
from pyspark.sql import SparkSession

import lakelatch
from lakelatch import failpoints
from lakelatch.engine.services import cancelling
from lakelatch.errors import LakelatchError, TransactionEnded
from lakelatch.failpoints import calling
from lakelatch.format.names import BASE_TOKEN, token_within
from lakelatch.testing.servers import Server
from lakelatch.timeline.table_config import load_table_config

COLUMNS = "id long, ts long, v string"
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "50"}
EXPECTED = {1: "a2", 2: "b", 3: "java"}


@pytest.fixture
def locks(zookeeper: Server) -> dict[str, str]:
    return zookeeper_locks(zookeeper, "plans")


class Planned:
    """A table of ours with one plan on it, which either engine may carry out."""

    def __init__(self, spark: SparkSession, java: JavaHudi, path: str, locks: dict[str, str]) -> None:
        self.spark, self.java, self.path = spark, java, path
        mode = {"hoodie.write.concurrency.mode": NON_BLOCKING["hoodie.write.concurrency.mode"]}
        own = {**locks, **mode, "hoodie.time.generator.type": "skew_adjusting", "hoodie.table.name": "trips"}
        self.options = {**OURS, "hoodie.bucket.index.num.buckets": "1", **own}
        self.java_options = {
            **SHARED, **ORDERED, **NON_BLOCKING, **locks, **COMPACTING, "hoodie.bucket.index.num.buckets": "1"
        }  # fmt: skip
        self.write([(1, 1, "a"), (2, 1, "b")])
        self.write([(1, 2, "a2")])
        self.schedule()

    def schedule(self) -> None:
        plan = lakelatch.schedule_compaction(self.path, {**self.options, **EVERY_LOG})
        assert plan is not None
        self.plan = plan

    def write(self, rows: list[tuple[int, int, str]], operation: str = "upsert") -> None:
        options = {**self.options, "hoodie.datasource.write.operation": operation}
        lakelatch.write(self.spark.createDataFrame(table_of(COLUMNS, rows)), self.path, options)

    def compact(self) -> list[Any]:
        return lakelatch.compact(
            self.spark, self.path, {**self.options, "hoodie.compact.inline.max.delta.commits": "50"}
        )

    def execute(self) -> Any:
        return lakelatch.execute_compaction(self.spark, self.path, self.plan, self.options)

    def by_java(self) -> None:
        """A write that carries out the plans that wait."""
        self.java.write(self.path, table_of(COLUMNS, [(3, 1, "java")]), self.java_options)

    def bases(self) -> list[Path]:
        return sorted(Path(self.path).glob(f"*_{self.plan}.parquet"))

    def completions(self) -> list[Path]:
        return list((Path(self.path) / ".hoodie" / "timeline").glob(f"{self.plan}_*.commit"))


@pytest.fixture
def planned(spark: SparkSession, java: JavaHudi, tmp_path: Path, locks: dict[str, str]) -> Planned:
    return Planned(spark, java, str(tmp_path / "trips"), locks)


class _Died(Exception):
    """An executor that is no more."""


def _die(_: str) -> None:
    raise _Died


def values_of(rows: Rows) -> dict[int, str]:
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_what_a_dead_executor_of_ours_left_goes_with_the_next_compaction(
    planned: Planned, ours: Callable[..., Rows], hudi_rs: Callable[[str], Rows]
) -> None:
    with calling(_die, ["compact.before_commit"]), pytest.raises(_Died):
        planned.execute()
    planned.by_java()
    assert len(planned.completions()) == 1 and len(planned.bases()) == 2
    assert values_of(ours(planned.path)) == EXPECTED == values_of(planned.java.read(planned.path))
    planned.compact()
    (left,) = planned.bases()
    folder = left.parent.relative_to(planned.path).as_posix()
    assert f"_{token_within('' if folder == '.' else folder, BASE_TOKEN)}_" not in left.name
    assert ours(planned.path) == planned.java.read(planned.path) == hudi_rs(planned.path)
    assert values_of(ours(planned.path)) == EXPECTED


def test_a_delete_that_java_forgets_holds_here_and_with_our_next_compaction_everywhere(
    planned: Planned, ours: Callable[..., Rows], hudi_rs: Callable[[str], Rows]
) -> None:
    planned.execute()
    planned.write([(2, 9, "")], "delete")
    planned.schedule()
    planned.by_java()
    assert len(planned.completions()) == 1
    planned.write([(2, 5, "older than its delete")])
    expected = {1: "a2", 3: "java"}
    assert values_of(ours(planned.path)) == expected
    assert values_of(planned.java.read(planned.path)) == {**expected, 2: "older than its delete"}
    assert planned.compact() == []
    assert values_of(ours(planned.path)) == expected
    assert ours(planned.path) == planned.java.read(planned.path) == hudi_rs(planned.path)


def test_a_live_executor_of_ours_is_respected_from_1_2_on_and_copes_with_older_ones(
    planned: Planned, ours: Callable[..., Rows], hudi_rs: Callable[[str], Rows]
) -> None:
    said: list[JavaHudiError] = []

    def java_meanwhile(_: str) -> None:
        try:
            planned.by_java()
        except JavaHudiError as error:
            said.append(error)

    outcome: list[LakelatchError] = []
    with calling(java_meanwhile, ["compact.before_commit"]):
        try:
            planned.execute()
        except LakelatchError as error:
            outcome.append(error)
    if planned.java.version.startswith("1.1"):
        assert not said and isinstance(outcome[0], TransactionEnded)
    else:
        assert "heartbeat" in str(said[0]) and not outcome
    assert len(planned.completions()) == 1 and len(planned.bases()) == 1
    assert values_of(ours(planned.path)) == EXPECTED
    assert ours(planned.path) == planned.java.read(planned.path) == hudi_rs(planned.path)


# -- plans of ours that were cancelled: Java passes over their terminal state, and goes on with the table


def cancelled(live: LiveTable, made: bool) -> str:
    """A plan that was cancelled after writes that are newer than it; `made`: after its files were there."""
    live.write([(number, 1, "a") for number in range(10)])
    live.compact()
    live.write([(number, 2, "b") for number in range(5)])
    plan = live.plan({"lakelatch.service.cancellable": "true"})
    assert plan is not None
    live.write([(number, 3, "c") for number in range(3)])
    if made:
        with failpoints.active("compact.before_commit=raise"), pytest.raises(LakelatchError):
            live.execute(plan)
    cancelling.request_cancel(live.manager(), plan)
    return plan


@pytest.fixture
def reads(java: JavaHudi) -> Callable[[LiveTable], bool]:
    def same(live: LiveTable) -> bool:
        found = java.read(str(live.root))
        return sorted((row["part"], row["id"], row["ts"], row["v"]) for row in found) == live.agreed()

    return same


@pytest.mark.parametrize("made", [True, False], ids=["its files are there", "nobody began"])
def test_java_reads_writes_and_compacts_beside_a_cancelled_plan(
    java: JavaHudi, tmp_path: Path, reads: Callable[[LiveTable], bool], made: bool
) -> None:
    live = LiveTable(tmp_path / "t")
    plan = cancelled(live, made)
    assert reads(live)  # a request in `.hoodie/.cancel`, and the plan still waits
    assert cancelling.execute_open(live.manager()) == [plan]
    assert reads(live)
    live.write([(number, 4, "d") for number in range(2)])
    assert reads(live)
    options = {**SHARED, **ORDERED, **COMPACTING, **EVERY_LOG, "hoodie.datasource.write.partitionpath.field": "part"}
    options["hoodie.table.name"] = load_table_config(live.storage).name
    rows = pa.table({"id": [7], "ts": [9], "v": ["java"], "part": ["p"]})
    java.write(str(live.root), rows, options)  # which compacts, and carries out no plan that was cancelled
    assert reads(live) and ("p", 7, 9, "java") in live.read()
    assert live.storage.exists(f".hoodie/timeline/{plan}.compaction.aborted")
    assert not [path for path in live.storage.walk("p") if plan in path]


def test_a_base_file_that_comes_late_hides_newer_rows_from_java_until_it_is_swept(
    java: JavaHudi, tmp_path: Path, reads: Callable[[LiveTable], bool]
) -> None:
    """Why a cancelled compaction leaves no tombstones: an empty file would do the same."""
    live = LiveTable(tmp_path / "t")
    plan = cancelled(live, made=True)
    late = {path: live.storage.read(path) for path in live.storage.walk("p") if plan in path and "parquet" in path}
    cancelling.execute_open(live.manager())
    for data in (b"", None):
        for path, whole in late.items():
            live.storage.put(path, whole if data is None else data)
        live.agreed()  # neither hudi-rs nor this project minds
        assert not reads(live)
        (over,) = cancelling.aborted_plans(live.manager())
        cancelling.sweep_aborted(live.manager(), over)
        assert reads(live)
