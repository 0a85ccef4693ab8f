"""One compaction plan, two engines: Java takes it from a dead executor of ours and, below 1.2, from a live one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from java_hudi import NON_BLOCKING, ORDERED, OURS, SHARED, JavaHudi, JavaHudiError, Rows, table_of
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.errors import LakelatchError, TransactionEnded
from lakelatch.failpoints import calling
from lakelatch.testing.servers import Server, open_server

COLUMNS = "id long, ts long, v string"
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "50"}
EXPECTED = {1: "a2", 2: "b", 3: "java"}


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    server: Server = open_server("zookeeper", tmp_path_factory.mktemp("zookeeper"))
    yield {
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": f"{server.host}:{server.port}",
        "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
        "hoodie.write.lock.zookeeper.lock_key": "plans",
    }
    server.close()


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
        plan = lakelatch.schedule_compaction(path, {**self.options, **EVERY_LOG})
        assert plan is not None
        self.plan = plan

    def write(self, rows: list[tuple[int, int, str]]) -> None:
        lakelatch.write(self.spark.createDataFrame(table_of(COLUMNS, rows)), self.path, self.options)

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
    lakelatch.compact(planned.spark, planned.path, {**planned.options, "hoodie.compact.inline.max.delta.commits": "50"})
    (left,) = planned.bases()
    assert "_0-0-0_" not in left.name
    assert ours(planned.path) == planned.java.read(planned.path) == hudi_rs(planned.path)
    assert values_of(ours(planned.path)) == EXPECTED


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
