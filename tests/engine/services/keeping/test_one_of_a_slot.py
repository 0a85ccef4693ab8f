"""Of the writers whose commits have one slot, one looks at what is due, for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from live_table import LiveTable
from table import Writing
from waiting_writes import Waiting, crowded

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.executor import Here
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.inline import after_commit, looks_for_its_slot
from lakelatch.engine.services.service import ServiceContext
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.actions import DELTA_COMMIT
from lakelatch.timeline.log.events import COMPLETE, Event

INLINE = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
EACH = {"lakelatch.rewrite.commits": "1"}
LATE = {"lakelatch.rewrite.commits": "4"}  # which the commits of one slot pass


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    return LiveTable(tmp_path / "table")


def _note(found: set[int], number: int, operation: str, path: str) -> None:
    found.add(number)


def lookers(table: LiveTable, committed: Sequence[tuple[Writing, CommitResult]], options: dict[str, str]) -> list[int]:
    """Which of these ask for anything after their commits."""
    found = set[int]()
    for number, (writing, result) in enumerate(committed):
        storage = FaultyStorage(table.storage, before=partial(_note, found, number))
        context = ServiceContext(replace(table.opened, storage=storage), writing.manager)
        after_commit(result, context, Call(options).services())
    return sorted(found)


def group(table: LiveTable) -> list[tuple[Writing, CommitResult]]:
    """Three commits of one slot."""
    first, second = (Waiting(table).put((key, 1, "waits")) for key in (1, 2))
    leader = crowded(table.begin()).put("p", [(3, 1, "leads")])
    results: list[tuple[Writing, CommitResult]] = []

    def lead() -> None:
        results.append((leader, leader.commit()))

    def wait() -> None:
        results.append((second.writing, second.commit(lead)))

    results.append((first.writing, first.commit(wait)))
    return results


def test_one_of_three_looks(table: LiveTable) -> None:
    committed = group(table)
    assert len({result.completion for _, result in committed}) == 3
    assert len(lookers(table, committed, EACH)) == 1


def test_who_looks_counts_the_commits_of_all(table: LiveTable) -> None:
    for number in range(2):
        table.write([(number, 1, "before")])
    assert len(lookers(table, group(table), LATE)) == 1, "the fourth is one of its slot, whichever looks"


class _Failing(Here):
    """Fails whatever it is given."""

    def map(self, *_: object, **__: object) -> NoReturn:
        raise OSError("no space left")


def test_what_was_in_vain_is_remembered_for_ten_slots_as_large(table: LiveTable) -> None:
    """Each writer remembers that for itself, and of a group of sixteen it would be tried in each slot."""
    options = Call(INLINE).services()

    def tries(writing: Writing, result: CommitResult) -> bool:
        return bool(after_commit(result, ServiceContext(table.opened, writing.manager, _Failing()), options).services)

    assert sum(tries(*one) for one in group(table)) == 1
    tried = []
    for number in range(31):
        later = table.begin().put("p", [(1, number, "alone")])
        if tries(later, later.commit()):
            tried.append(number)
    assert tried == [29]


def test_who_is_alone_in_its_slot_looks(table: LiveTable) -> None:
    writing = table.begin().put("p", [(1, 1, "alone")])
    assert lookers(table, [(writing, writing.commit())], EACH) == [0]


def slot(number: int, size: int, decision: str = "") -> list[Event]:
    times = [f"2026112212{number:02d}{place:05d}" for place in range(size)]
    return [Event(COMPLETE, DELTA_COMMIT, time, time, "w", time=time, decision=decision) for time in times]


def test_the_one_is_drawn_so_that_no_order_of_writers_leaves_it_to_one_that_looks_for_nothing() -> None:
    places = [
        [place for place, event in enumerate(events) if looks_for_its_slot(event.time, events)]
        for events in (slot(number, 4) for number in range(60))
    ]
    assert all(len(found) == 1 for found in places)
    assert {place for found in places for place in found} == {0, 1, 2, 3}


def test_of_a_transaction_over_several_tables_each_table_is_looked_at() -> None:
    events = slot(1, 4, decision="decided-elsewhere")
    assert all(looks_for_its_slot(event.time, events) for event in events)


def test_whose_slot_is_not_known_looks() -> None:
    assert looks_for_its_slot("20261122120000000", [])
