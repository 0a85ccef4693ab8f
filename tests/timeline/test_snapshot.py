"""Whether a snapshot that was made from the one before is the one that the names alone say."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakelatch.storage import MemoryStorage
from lakelatch.timeline import snapshot
from lakelatch.timeline.actions import COMPACTION, DELTA_COMMIT, RESTORE, ROLLBACK, SAVEPOINT
from lakelatch.timeline.instant import (
    ABORTED,
    COMPLETED,
    INFLIGHT,
    TIMELINE_FOLDER,
    Instant,
    aborted,
    completed,
    inflight,
    parse_file_name,
    requested,
    undoes,
)
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.metadata import RollbackMetadata, RollbackPlan
from lakelatch.timeline.plans.restore_plan import RestoreMetadata, RestorePlan
from lakelatch.timeline.snapshot import Mark, Snapshot

T = [f"202611211200{number:05d}" for number in range(80)]

#: The rollback or restore of a requested time, and what it undoes. The last one is of a run of a service.
UNDOES = {
    T[40]: (ROLLBACK, (T[1],)),
    T[44]: (RESTORE, (T[6], T[9])),
    T[48]: (ROLLBACK, (T[40],)),
    T[52]: (ROLLBACK, (T[12],)),
}
_OF_A_RUN = T[52]


def _files(instant: str, action: str, *completions: str) -> list[str]:
    done = [completed(instant, action, completion) for completion in completions]
    return [one.file_name for one in (requested(instant, action), inflight(instant, action), *done)]


NAMES = [
    *(name for at in (0, 3, 6) for name in _files(T[at], DELTA_COMMIT, T[at + 20])),
    *_files(T[1], DELTA_COMMIT, T[35], T[60]),  # completed before its rollback, and by a name that came after
    *_files(T[9], "commit", T[21]),
    *_files(T[12], COMPACTION, T[24]),
    *_files(T[15], "clustering", T[27]),
    aborted(T[15], "clustering").file_name,
    *_files(T[18], "clean", T[30]),
    *_files(T[0], SAVEPOINT, T[33])[1:],  # which has the time of its commit
    *_files(T[6], SAVEPOINT, T[34])[1:],
    *(name for at in (40, 48) for name in _files(T[at], ROLLBACK, T[at + 1])),
    *_files(T[44], RESTORE, T[45]),
    *_files(_OF_A_RUN, ROLLBACK),
    f"{T[9]}.commit.inflight",  # another spelling
    *_files("20261121115959", DELTA_COMMIT, "20261121120001"),
    "history",
    "rubbish",
    "rubbish.commit.inflight",
    f"{T[2]}.party.requested",
]

_BEGUN = {inflight(one, action).file_name: requested(one, action).file_name for one, (action, _) in UNDOES.items()}


def _with_plans(names: frozenset[str]) -> frozenset[str]:
    """What undoes others has its plan beside it for as long as it has its inflight file."""
    return names.union(plan for begun, plan in _BEGUN.items() if begun in names)


listings = st.lists(st.frozensets(st.sampled_from(NAMES)).map(_with_plans), min_size=1, max_size=8)


def plans() -> MemoryStorage:
    storage = MemoryStorage("plans")
    for instant, (action, targets) in UNDOES.items():
        of = COMPACTION if instant == _OF_A_RUN else DELTA_COMMIT
        plan = RollbackPlan(targets[0], of, ()).to_avro()
        rollbacks = tuple(RollbackMetadata(instant, one, of, ()) for one in targets)
        done = rollbacks[0].to_avro()
        if action == RESTORE:
            plan = RestorePlan(tuple((one, of) for one in targets), "").to_avro()
            done = RestoreMetadata(instant, rollbacks, 0).to_avro()
        storage.put(requested(instant, action).path, plan)
        storage.put(completed(instant, action, T[T.index(instant) + 1]).path, done)
    return storage


def late_of(names: frozenset[str]) -> frozenset[str]:
    """The rule of `Rollbacks`, name by name."""
    found = [one for one in map(parse_file_name, names) if one is not None]
    undoers = [one for one in found if one.requested in UNDOES]
    done = {one.requested for one in undoers if one.state == COMPLETED}
    begun = {one.requested for one in undoers if one.state != "requested"}

    def is_late(one: Instant) -> bool:
        for undoer in {other.requested for other in undoers}:
            action, targets = UNDOES[undoer]
            if one.requested not in targets or one.action == SAVEPOINT:
                continue
            if action == RESTORE and (undoer in done or one.completion is not None):
                return True
            counts = undoer != _OF_A_RUN or undoer in begun
            if action == ROLLBACK and counts and one.completion is not None and one.completion < undoer:
                return True
        return False

    return frozenset(one.file_name for one in found if is_late(one))


def walked(listed: frozenset[str], late: frozenset[str], before: str) -> Snapshot:
    """The same snapshot, by walks over all names, each for one of its values."""
    names = listed - late
    found = {one for one in map(parse_file_name, names) if one is not None}
    done = sorted((one for one in found if one.completion), key=lambda one: (one.completion, one.requested, one.action))
    ended = {one.requested for one in found if one.state in (COMPLETED, ABORTED)}
    furthest: dict[str, Instant] = {}
    for one in sorted(found, key=lambda one: one.file_name):
        first = furthest.setdefault(one.requested, one)
        if one.action == first.action and one.state == INFLIGHT:
            furthest[one.requested] = one
    times = [max(one.requested, one.completion or "") for one in found]
    return Snapshot(
        listed,
        late,
        names,
        {
            time: tuple(sorted((one for one in found if one.requested == time), key=lambda one: one.file_name))
            for time in {one.requested for one in found}
        },
        tuple(done),
        {action: tuple(one for one in done if one.action == action) for action in {one.action for one in done}},
        tuple(one for one in done if one.action in ("commit", "deltacommit", "replacecommit")),
        tuple(furthest[time] for time in sorted(furthest.keys() - ended)),
        tuple(sorted(one for one in found if one.state == ABORTED)),
        frozenset(name for name in listed if undoes(name)),
        max([before, *times]),
    )


def assert_same(found: Snapshot, expected: Snapshot) -> None:
    for one in fields(Snapshot):
        if one.name != "number":
            assert getattr(found, one.name) == getattr(expected, one.name), one.name


@settings(max_examples=300, deadline=None)
@given(listings)
@example([frozenset(NAMES), frozenset(), frozenset(NAMES)])
@example([frozenset(NAMES[:3]), frozenset(NAMES[:6]), frozenset(NAMES[1:6])])
def test_each_snapshot_is_what_its_names_say(seen: list[frozenset[str]]) -> None:
    _assert_followed(seen)


def _assert_followed(seen: list[frozenset[str]]) -> None:
    storage = plans()
    snapshots = Snapshots(storage)
    latest, before, everything = "", Snapshot(), Snapshot()
    for number, names in enumerate(seen, 1):
        everything = everything.following(names, number=number)
        found = snapshots.take(Tail(number, (), everything))
        late = late_of(names) & names
        mark = Mark(0, names=before.names)
        expected = walked(names, late, latest)
        assert_same(found, expected)
        assert found.completed_since(mark) == tuple(
            one for one in expected.by_completion if one.file_name not in mark.names
        )
        assert everything.late == frozenset() and everything.names == names
        assert_same(replace(Snapshot.of_names(names), latest_time=everything.latest_time), everything)
        latest, before = found.latest_time, found


@pytest.mark.parametrize("changes_max", [0, 64])
def test_many_changes_and_few_give_the_same_order(monkeypatch: pytest.MonkeyPatch, changes_max: int) -> None:
    monkeypatch.setattr(snapshot, "_CHANGES_MAX", changes_max)
    steps = [frozenset(NAMES[:count]) for count in (3, 9, len(NAMES), 20, 7, len(NAMES))]
    _assert_followed(steps)


def test_a_listing_that_shows_the_same_makes_nothing_anew() -> None:
    storage = MemoryStorage("same")
    for name in NAMES:
        storage.put(f"{TIMELINE_FOLDER}/{name}", b"")
    first = Snapshot.take(storage, Snapshot())
    second = Snapshot.take(storage, first)
    assert second.by_completion is first.by_completion and second.by_requested is first.by_requested
    assert second == first and second.number > first.number
