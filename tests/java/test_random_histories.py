"""Random histories of writers, overwrites, deleted partitions and compactions: Java Hudi reads them as the third."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from pathlib import Path

import pytest
from java_hudi import JavaHudi
from live_table import LiveTable, TableRows
from replaced_history import STEPS, History, as_snapshot, expected

STEPS_OF_A_HISTORY = 40


def by_java(java: JavaHudi, table: LiveTable, optimized: bool = False) -> TableRows:
    """Rows as `LiveTable.read(meta=True)` has them."""
    read = java.read_optimized if optimized else java.read
    return sorted(tuple(row.items()) for row in read(str(table.root)))


def check_with_java(java: JavaHudi, history: History) -> None:
    history.check()
    if history.commits:
        table = history.table
        assert as_snapshot(expected(history.commits, history.commits[-1].completion)) == table.read()
        assert table.read(meta=True) == by_java(java, table)
        assert table.read({"hoodie.datasource.query.type": "read_optimized"}, meta=True) == by_java(java, table, True)


@pytest.mark.parametrize("seed", range(6))
def test_java_reads_any_interleaving_as_its_commits_in_order(java: JavaHudi, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    history = History(LiveTable(tmp_path / "t"))
    try:
        for _ in range(STEPS_OF_A_HISTORY):
            history.step(chance.choice(STEPS), chance.randrange(60))
        check_with_java(java, history)
        while history.open:
            history.step("commit", 0)
        while history.plans:
            history.step("execute", 0)
        check_with_java(java, history)
        history.table.compact()
        check_with_java(java, history)
    finally:
        for writing, _ in history.open:
            writing.transaction.abort()
