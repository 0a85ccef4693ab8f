"""Clusterings of ours beside Java: it reads them, goes on in the new file groups, and respects a plan that waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from java_hudi import ORDERED, OURS, SHARED, JavaHudiError, SharedTable, table_of

import lakelatch
from lakelatch.engine.services.service import waiting
from lakelatch.errors import InvalidRequest
from lakelatch.format.bucket_index import successor_file_id
from lakelatch.timeline.actions import CLUSTERING

COLUMNS = "id long, ts long, v string"
JAVA = {**SHARED, **ORDERED}
BY_V = {**OURS, "hoodie.clustering.plan.strategy.sort.columns": "v"}
ALLOW = "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}


@dataclass
class Clustered(SharedTable):
    """A table of ours with two buckets and 20 rows, and both engines on it."""

    rows: dict[int, tuple[int, str]] = field(default_factory=dict)

    def write(self, rows: dict[int, tuple[int, str]]) -> None:
        self.rows.update(rows)
        lakelatch.write(self.spark.createDataFrame(self.frame(rows)), self.path, OURS)

    def by_java(self, rows: dict[int, tuple[int, str]], options: dict[str, str] | None = None) -> None:
        self.java.write(self.path, self.frame(rows), {**JAVA, **(options or {})})
        self.rows.update(rows)

    def frame(self, rows: dict[int, tuple[int, str]]) -> Any:
        return table_of(COLUMNS, [(key, *row) for key, row in rows.items()])

    def check(self) -> None:
        """All readers see the rows that were written."""
        expected = {key: row[1] for key, row in self.rows.items()}
        for reader in (self.java.read, self.ours, self.hudi_rs):
            found = reader(self.path)
            assert len(found) == len(expected) and {row["id"]: row["v"] for row in found} == expected

    def groups_with(self, instant: str) -> set[str]:
        """File groups in which there is a file of this write."""
        names = (path.name.lstrip(".") for path in Path(self.path).iterdir() if instant in path.name)
        return {name.partition("_")[0] for name in names}

    def last(self) -> str:
        return max(path.name for path in (Path(self.path) / ".hoodie/timeline").glob("*.inflight")).partition(".")[0]


@pytest.fixture
def table(share: Callable[[type[Clustered]], Clustered]) -> Clustered:
    table = share(Clustered)
    table.write({key: (1, f"v{key * 7 % 10}") for key in range(20)})
    return table


def test_java_reads_a_clustering_of_ours_and_goes_on_in_its_file_groups(table: Clustered) -> None:
    (result,) = lakelatch.cluster(table.spark, table.path, BY_V)
    table.check()
    table.by_java(dict.fromkeys(range(5), (2, "java")))
    successors = {successor_file_id(bucket, result.instant) for bucket in (0, 1)}
    assert table.groups_with(table.last()) == successors
    table.check()
    table.write(dict.fromkeys(range(3), (3, "ours")))
    table.by_java({20: (1, "new")}, COMPACTING)
    table.check()
    assert lakelatch.cluster(table.spark, table.path, BY_V)
    table.by_java({1: (9, "again")})
    table.check()


def test_java_goes_on_in_a_file_group_that_was_left_alone(table: Clustered) -> None:
    plan = lakelatch.schedule_clustering(table.path, BY_V)
    table.write({0: (2, "meanwhile")})
    assert plan is not None
    result = lakelatch.execute_clustering(table.spark, table.path, plan)
    assert result.file_groups_replaced == 1
    table.check()
    table.by_java(dict.fromkeys(range(20), (3, "java")))
    assert len(table.groups_with(table.last()) & {successor_file_id(bucket, plan) for bucket in (0, 1)}) == 1
    table.check()
    table.by_java({0: (4, "java")}, COMPACTING)
    table.write({0: (5, "ours")})
    table.check()


def test_java_beside_a_plan_of_ours_that_waits(table: Clustered) -> None:
    """It refuses to write to the planned file groups, as for plans of its own, and cannot carry the plan out."""
    plan = lakelatch.schedule_clustering(table.path, BY_V)
    assert plan is not None
    with pytest.raises(JavaHudiError, match="Not allowed to update the clustering file group"):
        table.by_java({0: (2, "java")})
    name = table.java.register(table.path)
    with pytest.raises(JavaHudiError, match="not compatible with table layout HoodieSimpleBucketLayout"):
        table.java.sql(f"call run_clustering(table => '{name}', op => 'execute')")
    assert lakelatch.execute_clustering(table.spark, table.path, plan).file_groups_replaced == 2
    table.by_java({0: (2, "java")})
    table.check()


def test_what_java_wrote_since_the_plan_is_left_alone(table: Clustered) -> None:
    """With a strategy of its own Java writes to the planned file groups all the same."""
    plan = lakelatch.schedule_clustering(table.path, BY_V)
    assert plan is not None
    table.by_java({0: (2, "java")}, {"hoodie.clustering.updates.strategy": ALLOW})
    assert lakelatch.execute_clustering(table.spark, table.path, plan).file_groups_replaced == 1
    table.check()
    table.by_java(dict.fromkeys(range(20), (3, "more")), COMPACTING)
    table.check()


def test_a_plan_of_java_is_left_to_java(table: Clustered) -> None:
    lakelatch.compact(table.spark, table.path, OURS)
    name = table.java.register(table.path)
    table.java.sql(f"call run_clustering(table => '{name}', op => 'schedule')")
    (plan,) = waiting(table.path, [CLUSTERING])
    assert lakelatch.cluster(table.spark, table.path, BY_V) == [] and lakelatch.schedule_compaction(table.path) is None
    with pytest.raises(InvalidRequest, match="another engine"):
        lakelatch.execute_clustering(table.spark, table.path, plan)
