"""Writers, overwrites, deletions of partitions and compactions in any order, and a fold over what was committed.

The fold knows no file: it goes over the commits in order of completion, forgets a partition when it is replaced, and of
several rows of a key takes the one with the greatest ordering value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from live_table import LiveTable, Row, TableRows
from table import Writing

PARTITIONS = ("p", "q")
BEGINNINGS = ("begin", "begin_overwrite", "begin_overwrite_table")
STEPS = (*BEGINNINGS, *["put"] * 3, *["commit"] * 3, "drop", "plan", "execute", "abort")
OPEN_MAX = 4


@dataclass
class Commit:
    """What one commit did, as a user would tell it. `replaced` is None for every partition."""

    completion: str
    instant: str
    rows: list[tuple[str, Row]]
    replaced: frozenset[str] | None = frozenset()


def expected(commits: list[Commit], as_of: str) -> dict[tuple[str, int], tuple[Row, str]]:
    """The winning row of each key, and its commit."""
    rows: dict[tuple[str, int], tuple[Row, str]] = {}
    for commit in commits:
        if commit.completion > as_of:
            continue
        rows = {key: row for key, row in rows.items() if commit.replaced is not None and key[0] not in commit.replaced}
        for partition, row in commit.rows:
            held = rows.get((partition, row[0]))
            if held is None or row[1] > held[0][1]:
                rows[partition, row[0]] = (row, commit.instant)
    return rows


def as_snapshot(rows: dict[tuple[str, int], tuple[Row, str]]) -> TableRows:
    return sorted((partition, *row) for (partition, _), (row, _) in rows.items())


@dataclass
class History:
    """Carries out steps on a table, and keeps the commits."""

    table: LiveTable
    commits: list[Commit] = field(default_factory=list)
    open: list[tuple[Writing, list[tuple[str, Row]]]] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)
    count: int = 0

    def step(self, name: str, pick: int) -> None:
        if name.startswith("begin") and len(self.open) < OPEN_MAX:
            operation = name.replace("begin_", "insert_") if "_" in name else "upsert"
            self.open.append((self.table.begin(operation), []))
        elif name == "put" and self.open:
            self._put(pick)
        elif name == "commit" and self.open:
            self._commit(*self.open.pop(pick % len(self.open)))
        elif name == "abort" and self.open:
            self.open.pop(pick % len(self.open))[0].transaction.abort()
        elif name == "drop":
            self._drop(PARTITIONS[pick % 2])
        elif name == "plan":
            plan = self.table.plan()
            self.plans += [plan] if plan else []
        elif name == "execute" and self.plans:
            self.table.execute(self.plans.pop(pick % len(self.plans)))

    def _put(self, pick: int) -> None:
        writing, rows = self.open[pick % len(self.open)]
        partition = PARTITIONS[pick // 2 % 2]
        fresh = []
        for key in (pick % 5, (pick + 2) % 5):
            self.count += 1
            fresh.append((key, self.count * 37 % 997, f"v{self.count}"))  # no two have one ordering value
        writing.put(partition, fresh, f"{len(rows)}-0-0")
        rows += [(partition, row) for row in fresh]

    def _commit(self, writing: Writing, rows: list[tuple[str, Row]]) -> None:
        operation = writing.options.operation
        done = writing.commit()
        replaced: frozenset[str] | None = frozenset()
        if operation == "insert_overwrite":
            replaced = frozenset(partition for partition, _ in rows)
        elif operation == "insert_overwrite_table":
            replaced = None
        self.commits.append(Commit(done.completion, done.instant, rows, replaced))

    def _drop(self, partition: str) -> None:
        done = self.table.drop(partition)
        self.commits.append(Commit(done.completion, done.instant, [], frozenset([partition])))

    def check(self) -> None:
        """Both readers at the end, time travel to each commit, and the window between any two."""
        table, commits = self.table, self.commits
        if not commits:
            return
        assert table.agreed() == as_snapshot(expected(commits, commits[-1].completion))
        assert table.optimized() == table.by_hudi_rs(optimized=True)
        for number, commit in enumerate(commits):
            rows = expected(commits, commit.completion)
            assert table.as_of(commit.completion) == as_snapshot(rows), number
            for begin in ("20000101000000000", *(earlier.completion for earlier in commits[:number])):
                inside = {other.instant for other in commits if begin < other.completion <= commit.completion}
                window = {key: row for key, row in rows.items() if row[1] in inside}
                assert table.since(begin, commit.completion) == as_snapshot(window), (number, begin)
