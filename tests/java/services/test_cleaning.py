"""Both engines clean one table: each goes on where the other has cleaned, and finishes what it has left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from java_hudi import ORDERED, OURS, PARTITIONED, PARTITIONED_COLUMNS, SHARED, JavaHudi, SharedTable, table_of
from sweep import find_losses

import lakelatch
from lakelatch.engine.options.calls.registry import normalise
from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services.removals import cleaning
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.manager import open_manager
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import InvalidRequest
from lakelatch.storage import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.snapshot import Snapshot

KEEP_ONE = {"hoodie.clean.commits.retained": "1"}
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
CLEANING = {**KEEP_ONE, "hoodie.clean.automatic": "true", "hoodie.archive.automatic": "false"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
SHORT_LIVES = {"hoodie.client.heartbeat.interval_in_ms": "1000", "hoodie.client.heartbeat.tolerable.misses": "1"}
DEAD_AFTER_S = 4


@dataclass
class Cleaned(SharedTable):
    """A table that both write, compact and clean."""

    options: dict[str, str] = field(
        default_factory=lambda: {**OURS, **PARTITIONED, **KEEP_ONE, "hoodie.clean.automatic": "false"}
    )

    @property
    def storage(self) -> LocalStorage:
        return LocalStorage(self.path)

    def by_us(self, number: int) -> str:
        rows = _rows(number)
        done = lakelatch.write(self.spark.createDataFrame(rows), self.path, self.options)
        lakelatch.compact(self.spark, self.path, {**self.options, "hoodie.compact.inline.max.delta.commits": "1"})
        return done.completion

    def by_java(self, number: int, **more: str) -> None:
        self.java.write(self.path, _rows(number), {**SHARED, **ORDERED, **PARTITIONED, **COMPACTING, **more})

    def clean(self, **more: Any) -> list[cleaning.CleanResult]:
        return lakelatch.clean(self.path, {**self.options, **more})

    def agree(self, number: int) -> None:
        assert [row["v"] for row in self.agreed()] == [f"{number}"] * 8
        assert find_losses(self.storage, open_table(self.storage).config, at_rest=False) == []

    def cleans(self, state: str = "completed") -> list[str]:
        return sorted(
            one.requested for one in Snapshot.load(self.storage).instants if (one.action, one.state) == ("clean", state)
        )

    def bases(self) -> int:
        return len(list(Path(self.path).glob("*/*.parquet")))


def _rows(number: int) -> pa.Table:
    return table_of(PARTITIONED_COLUMNS, [(key, number, f"{number}", "pq"[key % 2]) for key in range(8)])


@pytest.fixture
def table(share: Callable[[type[Cleaned]], Cleaned]) -> Cleaned:
    return share(Cleaned)


def test_each_cleans_on_after_the_other(table: Cleaned) -> None:
    first = table.by_us(1)
    for number in range(2, 5):
        table.by_us(number)
    (result,) = table.clean()
    assert result.files and table.bases() < 16
    table.agree(4)
    with pytest.raises(InvalidRequest, match=result.instant):
        table.ours(table.path, {"as.of.instant": first})
    for number in range(5, 8):
        table.by_java(number, **CLEANING)
    by_java = set(table.cleans()) - {result.instant}
    assert by_java
    table.agree(7)
    for number in range(8, 10):
        table.by_us(number)
    again = table.clean()
    assert again and again[-1].files and table.bases() <= 12
    table.agree(9)
    for number in range(10, 12):
        table.by_java(number, **CLEANING)
    table.agree(11)
    assert len(table.cleans()) >= 4


def test_java_carries_out_a_plan_of_ours(table: Cleaned) -> None:
    for number in range(1, 5):
        table.by_us(number)
    options = ManagerOptions.from_options(normalise(table.options))
    with open_manager(table.storage, options) as manager:
        plan = Clean(CleaningOptions(commits=1)).schedule(ServiceContext(open_table(table.storage), manager))
        assert plan is not None
        named = cleaning.read_plan(table.storage, plan).paths
    table.by_java(5, **CLEANING)
    assert plan in table.cleans() and not any(table.storage.exists(path) for path in named)
    table.agree(5)
    assert table.cleans("requested") and table.clean() is not None
    table.agree(5)


def test_we_finish_a_clean_that_java_left(table: Cleaned, own_java: JavaHudi) -> None:
    table.java = own_java
    for number in range(1, 5):
        table.by_us(number)
    options = {**SHARED, **ORDERED, **PARTITIONED, **COMPACTING, **CLEANING}
    file = own_java.write_and_die(table.path, _rows(5), options, when=".hoodie/timeline/*.clean.requested")
    plan = file.partition(".")[0]
    if plan not in table.cleans():
        REAL_SYSTEM.sleep(DEAD_AFTER_S)
        assert plan in [one.instant for one in table.clean(**SHORT_LIVES)]
    assert plan in table.cleans()
    table.agree(5)
