"""Incremental windows of both engines: where they differ it is for Hudi's own reasons, which these tests hold on to.

We give what became visible in the window: rows of its commits that still win at its end. Java merges only the files
that the window's commits wrote, so a row that loses to something *outside* the window is in its answer too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from java_hudi import JavaHudi, Rows
from live_table import LiveTable, Row

BEGINNING = "20000101000000000"


class Windows:
    """One table without Spark on our side; `completions` has those of all writes."""

    def __init__(self, java: JavaHudi, table: LiveTable) -> None:
        self.java, self.table = java, table
        self.completions = [BEGINNING]

    def write(self, rows: list[Row], operation: str = "upsert") -> None:
        self.completions.append(self.table.write(rows, operation=operation).completion)

    def compact(self) -> None:
        done = self.table.compact()
        assert done is not None
        self.completions.append(done.completion)

    def ours(self, begin: str, end: str) -> list[tuple[int, str]]:
        return [(row[1], row[3]) for row in self.table.since(begin, end)]

    def by_java(self, begin: str, end: str) -> Rows:
        return self.java.read_since(str(self.table.root), begin, end)

    def beaten(self, begin: str, end: str) -> list[tuple[int, str]]:
        """What Java has and we have not; every row of ours is among Java's."""
        ours = self.ours(begin, end)
        theirs = [(int(row["id"]), str(row["v"])) for row in self.by_java(begin, end)]
        assert set(ours) <= set(theirs) and len(set(theirs)) == len(theirs), (begin, end)
        return sorted(set(theirs) - set(ours))

    def all(self) -> list[tuple[str, str]]:
        return list(combinations(self.completions, 2))


@pytest.fixture
def windows(java: JavaHudi, tmp_path: Path) -> Windows:
    return Windows(java, LiveTable(tmp_path / "t"))


def values(ids: range, ts: int, name: str) -> list[Row]:
    return [(key, ts, f"{name}{key}") for key in ids]


def test_windows_are_the_same_while_newer_rows_come_later(windows: Windows) -> None:
    windows.write(values(range(6), 10, "a"))
    windows.write(values(range(2, 8), 11, "b"))
    windows.write(values(range(2), 20, ""), "delete")
    windows.write(values(range(1, 3), 30, "c"))
    windows.compact()
    windows.write(values(range(3), 40, "d"))
    assert {pair: windows.beaten(*pair) for pair in windows.all()} == {pair: [] for pair in windows.all()}
    assert windows.ours(*windows.completions[-2:]) == [(0, "d0"), (1, "d1"), (2, "d2")]


def test_java_adds_rows_that_lose_to_what_is_outside_the_window(windows: Windows) -> None:
    windows.write(values(range(4), 10, "a"))
    windows.write(values(range(1), 20, ""), "delete")
    windows.compact()
    windows.write(values(range(2), 5, "late"))  # 0 loses to a delete that the compaction kept, 1 to the row a1
    begin, end = windows.completions[-2:]
    assert windows.ours(begin, end) == []
    assert windows.beaten(begin, end) == [(0, "late0"), (1, "late1")]
    assert windows.ours(BEGINNING, end) == [(1, "a1"), (2, "a2"), (3, "a3")]
    # The compaction's commit names its base files, not the deletes that it kept beside them.
    assert windows.beaten(BEGINNING, end) == [(0, "late0")]


def test_java_misses_an_overtaken_writer_until_the_compaction_has_run(
    windows: Windows, hudi_rs: Callable[[str], Rows]
) -> None:
    """Requested before a compaction's plan and completed after it: its files belong to the slice that is to come.

    Java looks for slices no younger than the window's last *requested* time, and that slice is the plan's, so it finds
    none. The snapshot has the rows in all three readers.
    """
    windows.write(values(range(4), 10, "a"))
    overtaken = windows.table.begin().put("p", values(range(2), 20, "late"))
    plan = windows.table.plan()
    assert plan is not None
    windows.completions.append(overtaken.commit().completion)
    begin, end = windows.completions[-2:]
    assert windows.ours(begin, end) == [(0, "late0"), (1, "late1")]
    assert windows.by_java(begin, end) == []
    path = str(windows.table.root)
    assert windows.java.read(path) == hudi_rs(path)
    windows.completions.append(windows.table.execute(plan).completion)
    assert windows.beaten(begin, windows.completions[-1]) == []
    assert windows.ours(begin, windows.completions[-1]) == [(0, "late0"), (1, "late1")]
