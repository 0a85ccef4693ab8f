"""The same attacks through Spark: frames, changes by condition and merges, services on executors, reads by `format`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from attack import KINDS, Attack
from driver import OPERATION, Engine
from hunt import attack
from looks import Looks, rows_by_format
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.engine.run.result import CommitResult

pytestmark = pytest.mark.spark
SPARK_KINDS = {
    **{kind: KINDS[kind] for kind in ("upsert", "insert", "bulk_insert", "delete", "upsert_and_delete", "overwrite")},
    "add_column": 1,
    "widen_column": 1,
    "compact": 2,
    "compact_logs": 1,
    "cluster": 1,
    "write_beside": 2,
    "restore": 1,
    "update": 3,
    "delete_where": 3,
    "merge": 4,
    "insert_new": 3,
}
ALL_SPARK_KINDS = {**KINDS, **SPARK_KINDS}
SEEDS = (17, 20)  # both types of table


@dataclass
class SparkEngine(Engine):
    """Frames that Spark computes are written by its executors, and services run there."""

    spark: SparkSession | None = None
    written: int = 0

    @property
    def session(self) -> SparkSession:
        assert self.spark is not None
        return self.spark

    @property
    def table(self) -> lakelatch.Table:
        return lakelatch.Table(self.session, self.path, self.options)

    def write(self, operation: str, data: pa.Table, more: Mapping[str, str]) -> CommitResult:
        """Local frames and computed ones by turns."""
        self.written += 1
        frame: DataFrame = self.session.createDataFrame(data)
        frame = frame.repartition(2) if self.written % 2 else frame
        return self._checked(lakelatch.write(frame, self.path, {**self.options, **more, OPERATION: operation}))

    def compact(self, more: Mapping[str, str]) -> bool:
        return bool(lakelatch.compact(self.session, self.path, {**self.options, **more}))

    def cluster(self, columns: list[str], layout: str) -> bool:
        more = {"hoodie.clustering.plan.strategy.sort.columns": ",".join(columns)}
        more["hoodie.layout.optimize.strategy"] = layout
        return bool(lakelatch.cluster(self.session, self.path, {**self.options, **more}))


@dataclass
class SparkAttack(Attack):
    """Has steps that Spark's expressions carry out."""

    @property
    def table(self) -> lakelatch.Table:
        assert isinstance(self.engine, SparkEngine)
        return self.engine.table

    def ended(self, done: CommitResult) -> None:
        self.oracle.ended(done.instant, done.completion)

    def do_update(self) -> str | None:
        if self.oracle.groups:
            return "left out"
        rest = self.chance.randrange(3)
        done = self.table.update(f"id % 3 = {rest}", {"v": "concat('u', id)"})
        self.oracle.write({**row, "v": f"u{row['id']}"} for row in self.oracle.rows() if row["id"] % 3 == rest)
        self.ended(done)
        return None

    def do_delete_where(self) -> str | None:
        if self.oracle.groups:
            return "left out"
        rest = self.chance.randrange(3)
        done = self.table.delete(f"id % 3 = {rest}")
        self.oracle.write([row for row in self.oracle.rows() if row["id"] % 3 == rest], deleted=True)
        self.ended(done)
        return None

    def do_insert_new(self) -> str | None:
        if self.oracle.groups:
            return "left out"
        rows = self.rows()
        done = self.table.insert(self.arrow(rows), if_exists="skip")
        there = {self.oracle.key_of(row) for row in self.oracle.rows()}
        self.oracle.write(row for row in rows if self.oracle.key_of(row) not in there)
        self.ended(done)
        return None

    def do_merge(self) -> str | None:
        if self.oracle.groups:
            return "left out"
        rows = self.rows(6)
        merge = self.table.merge(self.arrow(rows)).when_matched_delete("source.day = 1").when_matched_update_all()
        merge = merge.when_not_matched_insert_all().when_not_matched_by_source_delete("target.id = 1")
        done = merge.execute()
        there = {self.oracle.key_of(row): row for row in self.oracle.rows()}
        brought = {self.oracle.key_of(row): row for row in rows}
        gone = [row for key, row in there.items() if (brought[key]["day"] == 1 if key in brought else row["id"] == 1)]
        left = [row for key, row in brought.items() if not (key in there and row["day"] == 1)]
        self.oracle.write(gone, deleted=True)
        self.oracle.write(left)
        self.ended(done)
        return None


def attacked(
    spark: SparkSession, path: Path, seed: int, steps: int, looks: Looks, kinds: dict[str, int]
) -> Counter[str]:
    def engine(place: str, options: dict[str, str]) -> SparkEngine:
        return SparkEngine(place, options, spark)

    return attack(str(path), seed, steps, looks, kinds, engine, SparkAttack.of)


def test_spark_changes_and_reads_what_the_oracle_says(spark: SparkSession, tmp_path: Path) -> None:
    looks = Looks(rows_by_format(spark))
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        reached += attacked(spark, tmp_path / f"t{seed}", seed, 5, looks, SPARK_KINDS)
    print(sorted(reached.items()), sorted(looks.compared.items()))
    assert all(looks.compared[f"{kind}, Spark"] >= 4 for kind in ("now", "as of", "between"))


@pytest.mark.long
def test_spark_changes_and_reads_what_the_oracle_says_for_long(spark: SparkSession, tmp_path: Path) -> None:
    looks = Looks(rows_by_format(spark))
    reached: Counter[str] = Counter()
    for seed in range(20, 26):
        reached += attacked(spark, tmp_path / f"t{seed}", seed, 14, looks, ALL_SPARK_KINDS)
    print(sorted(reached.items()), sorted(looks.compared.items()))
    assert all(reached[f"{kind}: done"] for kind in ("update", "delete_where", "merge", "insert_new"))
    assert all(looks.compared[f"{kind}, Spark"] > 20 for kind in ("now", "as of", "between"))
