"""A table with a history of 100,000 instants: what its age costs a transaction, and what finding an old one costs.

Transactions are taken in turns with those of an empty table. The history is made with the writer that archivers use,
in level files as they come of archiving ten instants at a time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.harness import Result, time_ms

from lakelatch.format.file_groups import replace_commits
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage.local import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.level_file import forget_all
from lakelatch.timeline.history.manifest import load_manifest
from lakelatch.timeline.history.writer import HistoryRow, HistoryWriter
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import TransactionManager

_INSTANTS = int(os.environ.get("LAKELATCH_BENCH_INSTANTS", "100000"))
_FOLDER = os.environ.get("LAKELATCH_BENCH_FOLDER", "")
_LEVELS = (50_000, 10_000, 1_000, 100, 10)  # sizes of level files, the oldest first
_COMMITS = 200
_FINDS = 50
_METADATA_BYTES = 2000
_GOAL_COMMIT, _GOAL_LOAD_MS, _GOAL_FIND_MS = 1.1, 50.0, 20.0


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(dir=_FOLDER or Path.cwd(), prefix="bench-") as folder:
        storage = LocalStorage(f"{folder}/old")
        _make_history(storage)
        return [*_transactions(storage, LocalStorage(f"{folder}/young")), *_looks(storage)]


def _transactions(storage: LocalStorage, empty: LocalStorage) -> list[Result]:
    with _manager(storage) as old, _manager(empty) as young:
        for manager in (old, young):
            for _ in range(25):
                _commit(manager)
        forget_all()
        first_ms = time_ms(partial(_commit, old))
        times: dict[str, list[float]] = {"old": [], "young": []}
        both = [("old", old), ("young", young)]
        for number in range(_COMMITS):
            for name, manager in both if number % 2 else both[::-1]:
                times[name].append(time_ms(partial(_commit, manager)))
    old_ms, young_ms = statistics.median(times["old"]), statistics.median(times["young"])
    ratio = old_ms / young_ms
    files = len(load_manifest(storage).files)
    return [
        Result(
            "timeline_commit",
            round(old_ms, 2),
            "ms",
            None,
            round(young_ms, 2),
            round(ratio, 3),
            f"at most {_GOAL_COMMIT:g} times an empty table",
            ratio <= _GOAL_COMMIT,
            f"median of {_COMMITS}, {_INSTANTS:,} instants in {files} level files; a process' first {first_ms:.1f} ms",
        ),
    ]


def _looks(storage: LocalStorage) -> list[Result]:
    load_ms = statistics.median(time_ms(partial(Snapshot.load, storage)) for _ in range(20))
    cold = [time_ms(partial(_find, storage, number, True)) for number in range(_FINDS)]
    names = storage.names(TIMELINE_FOLDER)
    forget_all()
    replaces_cold_ms = time_ms(partial(replace_commits, storage, names))
    replaces_ms = statistics.median(time_ms(partial(replace_commits, storage, names)) for _ in range(20))
    since_ms = statistics.median(time_ms(partial(_since_now, storage)) for _ in range(50))
    warm = [time_ms(partial(_find, storage, number, False)) for number in range(_FINDS)]
    find_ms = statistics.median(cold)
    return [
        Result(
            "timeline_replaces",
            round(replaces_ms, 2),
            "ms",
            None,
            None,
            None,
            "none",
            True,
            f"replace commits, as each write looks for them; a process' first {replaces_cold_ms:.1f} ms; what was "
            f"archived since, as each commit looks for it: {since_ms:.2f} ms",
        ),
        Result(
            "timeline_load",
            round(load_ms, 2),
            "ms",
            None,
            None,
            None,
            f"under {_GOAL_LOAD_MS:g} ms",
            load_ms < _GOAL_LOAD_MS,
            "the active timeline",
        ),
        Result(
            "timeline_find",
            round(find_ms, 2),
            "ms",
            None,
            round(statistics.median(warm), 2),
            None,
            f"median under {_GOAL_FIND_MS:g} ms",
            find_ms < _GOAL_FIND_MS,
            f"a completion time, nothing read before; longest {max(cold):.1f} ms; peer: once more",
        ),
    ]


def _make_history(storage: LocalStorage) -> None:
    writer, number = HistoryWriter(storage, REAL_SYSTEM), 0
    while number < _INSTANTS:
        left = _INSTANTS - number
        size = next((one for one in _LEVELS if one * 1.2 <= left), left)
        writer.append([_row(one) for one in range(number, number + size)])
        number += size


def _row(number: int) -> HistoryRow:
    action = {0: "clean", 5: "commit", 7: "rollback"}.get(number % 50, "deltacommit")
    plan = b"plan" * 100 if action in ("clean", "commit") else None
    return HistoryRow(_time(number), _time(number, 10), action, os.urandom(_METADATA_BYTES), plan)


def _time(number: int, more: int = 0) -> str:
    """Times a second apart, by the digits of the clock."""
    minutes, seconds = divmod(number, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"202001{1 + days:02d}{hours:02d}{minutes:02d}{seconds:02d}{more:03d}"


def _find(storage: LocalStorage, number: int, cold: bool) -> None:
    if cold:
        forget_all()
    wanted = number * (_INSTANTS // _FINDS)
    found = History.load(storage).find(_time(wanted))
    assert found is not None and found.completion == _time(wanted, 10)


def _since_now(storage: LocalStorage) -> None:
    assert not History.load(storage).instants(WRITE_ACTIONS, after="2026")


def _commit(manager: TransactionManager) -> None:
    manager.recover()
    transaction = manager.begin()
    stat = WriteStat("p", "00000000-0000-0000-0000-000000000000-0", f"p/.f_{transaction.instant}.log.1_0-0-0")
    transaction.commit(CommitMetadata((stat,), "UPSERT", {"schema": "{}"}))


@contextmanager
def _manager(storage: LocalStorage) -> Iterator[TransactionManager]:
    provider = FilesystemLockProvider(LockScope(storage.uri, {}))
    try:
        yield TransactionManager(storage, provider, HybridTimeGenerator(provider))
    finally:
        provider.close()
