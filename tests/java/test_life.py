"""Java compacts, cleans, archives and rolls back in a table of ours, and we go on; writers of each side are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from java_hudi import OPTIMISTIC, ORDERED, OURS, PARTITIONED, SHARED, SharedTable, rows_of

import lakelatch
from lakelatch.system import REAL_SYSTEM

OPERATION = "hoodie.datasource.write.operation"
ONE_LOCK = {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
BEATS = "hoodie.client.heartbeat.interval_in_ms"
SHORT_LIVES = {BEATS: "4000", "hoodie.client.heartbeat.tolerable.misses": "1"}
DEAD_AFTER_S = 10
ARCHIVING = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}


@dataclass
class Both(SharedTable):
    """One table that both engines write in turns; `expected` is what it has to hold."""

    options: dict[str, str] = field(default_factory=lambda: {**SHARED, **ORDERED, **PARTITIONED})
    our_options: dict[str, str] = field(default_factory=lambda: {**OURS, **PARTITIONED})
    expected: dict[int, str] = field(default_factory=dict)

    def by_us(self, ids: range, ts: int, name: str, operation: str = "upsert", **more: str) -> None:
        options = {**self.our_options, OPERATION: operation, **more}
        lakelatch.write(self.spark.createDataFrame(rows_of(ids, ts, name)), self.path, options)
        self._note(ids, name, operation)

    def by_java(
        self, ids: range, ts: int, name: str, operation: str = "upsert", more: Mapping[str, str] = QUIET
    ) -> None:
        self.java.write(self.path, rows_of(ids, ts, name), {**self.options, OPERATION: operation, **more})
        self._note(ids, name, operation)

    def _note(self, ids: range, name: str, operation: str) -> None:
        for key in ids:
            if operation == "delete":
                self.expected.pop(key, None)
            else:
                self.expected[key] = f"{name}{key}"

    def agree(self) -> None:
        rows = self.agreed()
        assert {row["id"]: row["v"] for row in rows} == self.expected
        assert len(rows) == len(self.expected), "a key is there twice"

    def timeline(self, ending: str) -> list[str]:
        return sorted(file.name for file in (Path(self.path) / ".hoodie" / "timeline").glob(f"*{ending}"))


@pytest.fixture
def both(share: Callable[[type[Both]], Both]) -> Both:
    return share(Both)


def test_java_compacts_cleans_archives_and_rolls_back_and_we_go_on(both: Both) -> None:
    both.by_us(range(12), 10, "a")
    both.by_java(range(4), 11, "java")
    both.agree()
    both.by_us(range(2, 6), 12, "b")
    both.by_java(range(6, 8), 13, "c", more={**QUIET, **COMPACTING})
    both.agree()
    assert both.timeline("_*.commit"), "Java has compacted"
    both.by_us(range(1), 14, "", "delete")
    assert lakelatch.compact(both.spark, both.path, {"hoodie.compact.inline.max.delta.commits": "1"})
    both.agree()
    for step in range(5):
        both.by_java(range(8, 9 + step), 20 + step, f"s{step}-", more={**ARCHIVING, **COMPACTING})
    both.agree()
    assert both.timeline(".clean") and any((Path(both.path) / ".hoodie/timeline/history").glob("*.parquet"))
    both.by_us(range(3, 10), 40, "d")
    both.agree()
    kept = dict(both.expected)
    both.by_java(range(12), 41, "undone")
    undone = max(both.timeline("_*.deltacommit")).partition("_")[0]
    both.java.sql(f"call rollback_to_instant(table => '{both.java.register(both.path)}', instant_time => '{undone}')")
    both.expected = kept
    both.agree()
    both.by_us(range(5, 14), 42, "e")
    both.agree()
    assert lakelatch.compact(both.spark, both.path, {"hoodie.compact.inline.max.delta.commits": "1"})
    both.agree()
    both.by_java(range(14, 16), 43, "f", more={**ARCHIVING, **COMPACTING})
    both.agree()


def test_what_we_commit_and_java_archives_and_rolls_back_stays_so(both: Both) -> None:
    """The tail of our log is an instant that Java takes off the timeline: nothing of ours puts it back."""
    both.by_us(range(4), 10, "a")
    both.by_us(range(4, 8), 11, "undone")
    undone = max(both.timeline("_*.deltacommit")).partition("_")[0]
    both.java.sql(f"call rollback_to_instant(table => '{both.java.register(both.path)}', instant_time => '{undone}')")
    for key in range(4, 8):
        both.expected.pop(key)
    both.agree()
    both.by_us(range(2, 6), 12, "b")
    both.agree()
    assert not [name for name in both.timeline(".deltacommit") if name.startswith(undone)]


@pytest.fixture
def multi_writer(both: Both) -> Iterator[Both]:
    both.options |= {**OPTIMISTIC, **SHORT_LIVES, **ONE_LOCK}
    both.our_options |= SHORT_LIVES
    yield both


def test_a_killed_java_writer_is_rolled_back_by_us(multi_writer: Both) -> None:
    both = multi_writer
    both.by_us(range(6), 10, "a")
    lives = {**QUIET, BEATS: "60000"}  # whatever else the machine is doing
    both.by_java(range(3), 11, "b", more=lives)
    rows = rows_of(range(40), 99, "dead")
    dead = both.java.write_and_die(both.path, rows, {**both.options, **QUIET}, "*/.*.log.*")
    assert dead
    both.java.start()
    both.agree()
    REAL_SYSTEM.sleep(DEAD_AFTER_S)
    both.by_us(range(5, 8), 12, "c")
    while not both.timeline(".rollback"):
        both.by_us(range(5, 8), 12, "c")
    both.agree()
    both.by_java(range(2), 13, "d", more=lives)
    both.agree()


KILLED = """
import sys
from dataclasses import dataclass, field
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from live_table import LiveTable
table = LiveTable(Path(sys.argv[2]), mode="OPTIMISTIC_CONCURRENCY_CONTROL")
table.begin().put("p", [(key, 99, "dead") for key in range(0, 8, 2)]).commit()
"""


@pytest.mark.parametrize("step", ["data.after", "commit.before_slot", "commit.after_slot"])
def test_a_killed_writer_of_ours_is_rolled_back_by_java(multi_writer: Both, step: str) -> None:
    both = multi_writer
    both.by_us(range(6), 10, "a")
    died = subprocess.run(
        [sys.executable, "-c", KILLED, str(Path(__file__).parents[1] / "support"), both.path],
        env={**os.environ, "LAKELATCH_FAILPOINTS": f"{step}=kill"},
        timeout=120,
    )
    assert died.returncode == -9
    both.agree()
    REAL_SYSTEM.sleep(DEAD_AFTER_S)
    for _ in range(3):
        both.by_java(range(3), 11, "b", more={**QUIET, "hoodie.clean.automatic": "true"})
    assert both.timeline(".rollback")
    both.agree()
    both.by_us(range(2, 7), 12, "c")
    both.agree()
