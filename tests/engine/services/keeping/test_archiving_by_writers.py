"""Archiving by those who write: it comes in time, is tried where it promises something, and holds nobody up."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.report import DONE
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.removals.archiving import archive
from lakelatch.engine.table.manager import open_manager
from lakelatch.locks.contract import TABLE_KEY, LockProvider, LockScope, service_key
from lakelatch.locks.open import open_lock_provider
from lakelatch.storage import MemoryStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import load_table_config

MINUTE_S = 60
MOST, COMPACTED_EVERY = 8, 4


class Table:
    """A table in memory that is compacted every few commits, on a machine whose clock is set by hand."""

    def __init__(self, **options: str) -> None:
        self.system = ManualSystem()
        self.storage = MemoryStorage(REAL_SYSTEM.new_id(), self.system)
        self.options = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.write.lock.provider": "in_process",
            "hoodie.write.lock.wait_time_ms": "500",
            "hoodie.compact.inline": "true",
            "hoodie.compact.inline.max.delta.commits": str(COMPACTED_EVERY),
            "hoodie.clean.commits.retained": "1",
            "hoodie.keep.min.commits": "4",
            "hoodie.keep.max.commits": str(MOST),
            **{key.replace("__", "."): value for key, value in options.items()},
        }
        self.table = ArrowTable(self.storage.uri, self.options, self.system)

    def write(self, pause_s: float) -> CommitResult:
        result = self.table.upsert(pa.table({"id": ["a", "b"], "v": [self.system.realtime_ms()] * 2}))
        self.system.advance(pause_s)
        return result

    def active(self) -> int:
        """How many writes are on the active timeline."""
        return sum(one.action in WRITE_ACTIONS for one in Snapshot.load(self.storage).completed)


def services(result: CommitResult, service: str = "archive") -> list[str]:
    return [run.outcome for run in result.services if run.service == service]


@pytest.mark.parametrize(("pause_s", "commits"), [(2.0, 90), (20.0, 40), (3600.0, 30)])
def test_a_table_that_is_written_to_stays_small(pause_s: float, commits: int) -> None:
    table = Table()
    counts = []
    for _ in range(commits):
        table.write(pause_s)
        counts.append(table.active())
    young = MINUTE_S / pause_s * 1.25  # with the compactions
    assert max(counts) <= MOST + young * 1.1 + COMPACTED_EVERY, counts
    assert table.table.to_arrow().num_rows == 2


def test_what_is_too_young_is_not_tried(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    with caplog.at_level(logging.INFO, "lakelatch.spark"):
        assert not any(services(table.write(1)) for _ in range(40))
    assert table.active() > 40 and "nothing can be archived" not in caplog.text
    table.system.advance(MINUTE_S)
    assert services(table.write(1)) == [DONE] and table.active() <= MOST


def test_where_another_writer_is_at_it_nobody_waits() -> None:
    table = Table()
    for _ in range(12):
        table.write(0.1)
    table.system.advance(MINUTE_S)
    with provider_of(table).acquire(service_key("archive"), 0):
        result = table.write(1)
        assert services(result) == [] and table.active() > MOST
    while not services(result):  # what was passed over is due again some commits later
        result = table.write(1)
    assert services(result) == [DONE] and table.active() < 24


def test_nothing_waits_for_the_lock_where_nothing_may_leave() -> None:
    table = Table(hoodie__compact__inline="false")  # so that logs wait for a compaction
    for _ in range(12):
        table.write(0.1)
    table.system.advance(MINUTE_S)
    with provider_of(table).acquire(TABLE_KEY, 0):
        options = Call(table.options).services()
        with open_manager(table.storage, options.manager, table.system) as manager:
            done = archive(manager, load_table_config(table.storage), options.archiving)
    assert not done.instants and "waits for a compaction" in done.held_by


def provider_of(table: Table) -> LockProvider:
    return open_lock_provider(LockScope(table.storage.uri, table.options, table.system))
