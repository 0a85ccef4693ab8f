"""Writers, overwrites, deletions of partitions and compactions in any order, against a fold over what was committed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from live_table import LiveTable
from replaced_history import PARTITIONS, STEPS, Commit, History

from lakelatch.errors import TransactionEnded, Unavailable


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 59)), min_size=4, max_size=40))
def test_any_interleaving_reads_as_its_commits_in_order(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(LiveTable(Path(folder) / "t"))
        try:
            for name, pick in steps:
                history.step(name, pick)
            while history.open:
                history.step("commit", 0)
            history.check()
            while history.plans:
                history.step("execute", 0)
            history.check()
            history.table.compact()
            history.check()
        finally:
            for writing, _ in history.open:
                writing.transaction.abort()


def test_a_crowd_reads_as_its_commits_in_order(tmp_path: Path) -> None:
    """Threads, each with managers of its own, and nobody who tells them when."""
    table = LiveTable(tmp_path / "t")

    def write(worker: int) -> list[Commit]:
        done = []
        for number in range(5):
            partition = PARTITIONS[(worker + number) % 2]
            count = 100 * worker + number
            rows = [(key, (count * 10 + key) * 37 % 9973, f"w{count}") for key in range(worker, worker + 3)]
            result = table.begin().put(partition, rows).commit()
            done.append(Commit(result.completion, result.instant, [(partition, row) for row in rows]))
        return done

    def replace(worker: int) -> list[Commit]:
        done = []
        for number in range(5):
            partition = PARTITIONS[number % 2]
            rows = [(9, 9000 + 100 * worker + number, f"over{worker}-{number}")]
            operation = ("insert_overwrite", "insert_overwrite", "insert_overwrite_table")[(worker + number) % 3]
            result = table.begin(operation).put(partition, rows).commit()
            gone = None if operation == "insert_overwrite_table" else frozenset([partition])
            done.append(Commit(result.completion, result.instant, [(partition, row) for row in rows], gone))
        return done

    def compact(worker: int) -> list[Commit]:
        for _ in range(4):
            try:
                table.compact()
            except (TransactionEnded, Unavailable):
                continue
        return []

    workers: list[Callable[[int], list[Commit]]] = [write, write, write, replace, replace, compact]
    with ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(work, number) for number, work in enumerate(workers)]
        commits = [commit for future in futures for commit in future.result()]
    history = History(table, sorted(commits, key=lambda commit: commit.completion))
    assert len(commits) == 25 and len({commit.completion for commit in commits}) == 25
    history.check()
    table.compact()
    history.check()
