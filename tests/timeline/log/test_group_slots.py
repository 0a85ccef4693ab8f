"""Slots of several events: their bytes, their times, their files in order, and what comes of a paused writer's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from archiver import Archiver
from slots import append, nobody_reads

from lakelatch import failpoints
from lakelatch.errors import CommitUnknown, CorruptTable, InvariantBroken, LakelatchError, TransactionEnded, Unavailable
from lakelatch.storage import MemoryStorage, Storage
from lakelatch.storage.checksums import CHECKSUM_KEY, checksummed_json
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.actions import ROLLBACK
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, inflight, requested
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, LOG_FOLDER, Event, slot_bytes, slot_events, slot_path
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.metadata import RollbackPlan
from lakelatch.timeline.snapshot import Snapshot

FIRST = 20261121120000000
Change = Callable[[dict[str, Any]], object]


def instant_of(name: int) -> str:
    return str(FIRST - 1000 + name)


def event(name: int) -> Event:
    return Event(COMPLETE, "deltacommit", instant_of(name), f"op-{name}", "me", content=b"x%d" % name)


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Storage:
    made = MemoryStorage(request.node.name)
    for name in range(100):  # all have begun: a completed file is made only beside its inflight file
        made.put(inflight(instant_of(name), "deltacommit").path, b"")
    return made


def next_time(above: str) -> str:
    return str(max(FIRST, int(above or 0)) + 1)


def at(time: int) -> Callable[[str], str]:
    """Times that begin with this one."""
    return lambda above: str(max(FIRST + time, int(above or 0) + 1))


def put_group(log: CommitLog, *names: int, take_time: Callable[[str], str] = next_time) -> Event | None:
    """One slot after the tail with these events; the first is the caller's own."""
    tail = log.look(log.tail())
    return log.create(event(names[0]), tail, take_time, nobody_reads, None, [event(name) for name in names[1:]])


def add(log: CommitLog, *names: int) -> None:
    for one in map(event, names):
        append(log, partial(_at_any, one), next_time)


def _at_any(one: Event, tail: Tail) -> Event:
    return one


def slot(storage: Storage, number: int) -> tuple[Event, ...]:
    return slot_events(storage.read(slot_path(number)), number)


def shown(storage: Storage) -> list[int]:
    """The events whose completed files are there, by completion time."""
    found = sorted(Snapshot.load(storage).completed, key=lambda one: one.completion or "")
    return [int(one.requested) - FIRST + 1000 for one in found if one.action == "deltacommit"]


def put_in_order(storage: Storage, faults: list[Fault] | None = None) -> tuple[FaultyStorage, list[str]]:
    """A storage, and the names of the completed files that were asked of it, in order."""
    puts: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(f"{TIMELINE_FOLDER}/"):
            puts.append(path.rpartition("/")[2])

    return FaultyStorage(storage, faults or [], before=before), puts


# -- bytes -----------------------------------------------------------------------------------------------------------


def group_of(*names: int, number: int = 7) -> list[Event]:
    return [event(name).placed(number, str(FIRST + name), f"f{name}", 3) for name in names]


def test_events_survive_the_slot_that_they_share() -> None:
    groups = frozenset({("", "a"), ("day=1", "b")})
    events = group_of(1, 2, 3)
    events[1] = replace(events[1], content=bytes(range(256)), file_groups=groups, token=7, lock_domain="d")
    assert slot_events(slot_bytes(events), 7) == tuple(events)


def test_a_slot_of_one_event_is_written_as_before() -> None:
    """Which other versions read."""
    assert json.loads(slot_bytes(group_of(1)))["format"] == 1
    assert json.loads(slot_bytes(group_of(1, 2)))["format"] == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.update(format=3),
        lambda values: values.update(format=1),
        lambda values: values.pop("format"),
        lambda values: values.update(number=8),
        lambda values: values["events"][1].update(number=8),
        lambda values: values["events"][1].update(time=values["events"][0]["time"]),
        lambda values: values["events"].reverse(),
        lambda values: values["events"].clear(),
        lambda values: values.pop("events"),
        lambda values: values["events"].append(None),
        lambda values: values["events"][2].pop("writer"),
        lambda values: values["events"][2].update(content="!"),
        lambda values: values["events"][2].update(time=5),
    ],
)
def test_a_slot_that_no_writer_wrote_is_refused(change: Change) -> None:
    values = json.loads(slot_bytes(group_of(1, 2, 3)))
    values.pop(CHECKSUM_KEY)
    assert slot_events(checksummed_json(values), 7)
    change(values)
    with pytest.raises(CorruptTable, match=slot_path(7)):
        slot_events(checksummed_json(values), 7)


def test_each_damaged_byte_of_such_a_slot_is_found() -> None:
    data = slot_bytes(group_of(1, 2))
    for place in range(0, len(data), 7):
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(CorruptTable):
            slot_events(damaged, 7)
        with pytest.raises(CorruptTable):
            slot_events(data[:place], 7)


# -- times, and files in their order ---------------------------------------------------------------------------------


def test_times_increase_and_are_above_the_tail_and_each_instant(storage: Storage) -> None:
    log = CommitLog(storage)
    add(log, 1)
    late = FIRST + 500
    storage.put(inflight(str(late), "deltacommit").path, b"")
    others = [event(3), replace(event(4), instant=str(late)), event(5)]
    log.create(event(2), log.look(log.tail()), next_time, nobody_reads, None, others)
    times = [int(one.time) for one in slot(storage, 2)]
    assert times == sorted(set(times)) and times[0] > int(slot(storage, 1)[0].time)
    assert times[1] < late < times[2] < times[3]
    add(log, 6)
    assert int(slot(storage, 3)[0].time) > times[3]


@pytest.mark.parametrize("repeated", [0, 1, 2])
def test_a_time_that_does_not_increase_is_refused(storage: Storage, repeated: int) -> None:
    log, taken = CommitLog(storage), [str(FIRST)]
    add(log, 1)

    def take(above: str) -> str:
        taken.append(above if len(taken) - 1 == repeated else next_time(above))
        return taken[-1]

    with pytest.raises(InvariantBroken, match="not above"):
        put_group(log, 2, 3, 4, take_time=take)
    assert log.tail_number() == 1 and shown(storage) == [1]


def test_what_the_slot_says_of_all_its_events_is_the_same(storage: Storage) -> None:
    log = CommitLog(storage, lock_domain="d")
    own = put_group(log, 1, 2, 3)
    events = slot(storage, 1)
    assert own == events[0] and [one.operation_id for one in events] == ["op-1", "op-2", "op-3"]
    assert {(one.number, one.watermark, one.lock_domain, one.token) for one in events} == {(1, 0, "d", 0)}
    assert [storage.read(one.path) for one in events] == [b"x1", b"x2", b"x3"]
    assert log.events_after(0, log.tail()) == list(events)


def test_files_appear_in_the_order_of_times(storage: Storage) -> None:
    watched, puts = put_in_order(storage)
    put_group(CommitLog(watched), 9, 2, 5)
    assert puts == [one.file for one in slot(storage, 1)] and shown(storage) == [9, 2, 5]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_the_next_writer_makes_the_rest_in_order_and_before_its_slot(storage: Storage, failing: int) -> None:
    group = (9, 2, 5)
    prefix = f"{TIMELINE_FOLDER}/{instant_of(group[failing])}_"
    faulty, _ = put_in_order(storage, [Fault(UNAVAILABLE, "put_if_absent", prefix)])
    with pytest.raises(CommitUnknown) as caught:
        put_group(CommitLog(faulty, ManualSystem()), *group)
    assert caught.value.details == {"instant": instant_of(9), "slot": 1}
    assert shown(storage) == list(group[:failing])
    watched, puts = put_in_order(storage)
    seen: list[list[int]] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == slot_path(2):
            seen.append(shown(storage))

    put_group(CommitLog(FaultyStorage(watched, before=before)), 7, 8)
    assert seen == [[9, 2, 5]] and shown(storage) == [9, 2, 5, 7, 8]
    assert puts == [one.file for one in (*slot(storage, 1)[failing:], *slot(storage, 2))]


@pytest.mark.parametrize("there", [0, 1, 2, 3])
def test_the_same_if_the_writer_died(storage: Storage, there: int) -> None:
    with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
        put_group(CommitLog(storage), 9, 2, 5)
    for one in slot(storage, 1)[:there]:
        storage.put(one.path, one.content)
    log = CommitLog(storage)
    listing = log.look(log.tail()).listing
    assert listing is not None and {one.file for one in slot(storage, 1)} <= listing.names
    assert shown(storage) == [9, 2, 5]


# -- lost answers, and other writers' slots --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LOST_AFTER, LOST_BEFORE])
@pytest.mark.parametrize("folder", [LOG_FOLDER, TIMELINE_FOLDER])
def test_a_lost_answer_commits_each_once(storage: Storage, kind: str, folder: str) -> None:
    faulty = FaultyStorage(storage, [Fault(kind, "put_if_absent", folder, times=2)])
    log = CommitLog(faulty, ManualSystem())
    own = put_group(log, 3, 1, 2)
    assert faulty.failed and own == slot(storage, 1)[0]
    assert shown(storage) == [3, 1, 2] and log.tail_number() == 1


def before_slot(storage: Storage, number: int, meanwhile: Callable[[], object]) -> FaultyStorage:
    """A storage whose user is paused before it asks for a slot of this number, once."""
    done: list[bool] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == slot_path(number) and not done:
            done.append(True)
            meanwhile()

    return FaultyStorage(storage, before=before)


def test_a_slot_of_others_that_has_my_event_is_mine(storage: Storage) -> None:
    faulty = before_slot(storage, 1, lambda: put_group(CommitLog(storage), 5, 1, take_time=at(50)))
    own = put_group(CommitLog(faulty), 1, 2)
    assert own == slot(storage, 1)[1] and own.time == str(FIRST + 51)
    assert shown(storage) == [5, 1]  # what was to be committed with it is not


def test_a_slot_of_others_that_has_but_a_member_of_mine_is_lost(storage: Storage) -> None:
    faulty = before_slot(storage, 1, lambda: put_group(CommitLog(storage), 5, 2))
    assert put_group(CommitLog(faulty), 1, 2) is None
    assert shown(storage) == [5, 2]


def test_whose_slot_of_others_has_my_event_shows_theirs_as_well(storage: Storage) -> None:
    """Its writer died before any file was there."""

    def meanwhile() -> None:
        with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
            put_group(CommitLog(storage), 5, 1, 6)

    own = put_group(CommitLog(before_slot(storage, 1, meanwhile)), 1)
    assert own is not None and shown(storage) == [5, 1, 6]


def test_and_of_those_that_began_after_its_own_look(storage: Storage) -> None:
    """A listing that is older than they are says nothing of what has become of them."""
    late = {name: inflight(instant_of(name), "deltacommit").path for name in (5, 6)}
    for path in late.values():
        storage.delete(path)

    def meanwhile() -> None:
        for path in late.values():
            storage.put(path, b"")
        with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
            put_group(CommitLog(storage), 5, 1, 6)

    own = put_group(CommitLog(before_slot(storage, 1, meanwhile)), 1)
    assert own is not None and shown(storage) == [5, 1, 6]


# -- slots below the watermark ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("same_time", [False, True])
def test_a_slot_that_comes_again_below_the_watermark_commits_nobody(storage: Storage, same_time: bool) -> None:
    """Its other event was committed by another slot, perhaps under the very time that it has here."""
    add(CommitLog(storage), 1)

    def meanwhile() -> None:
        log = CommitLog(storage, slots_kept=1)
        put_group(log, 8, take_time=at(20 if same_time else 30))
        put_group(log, 2, take_time=at(21 if same_time else 31))
        add(log, *range(10, 20))
        assert not storage.exists(slot_path(2))

    watched, puts = put_in_order(before_slot(storage, 2, meanwhile))
    assert put_group(CommitLog(watched, slots_kept=1), 99, 2, take_time=at(20)) is None
    assert puts == [] and shown(storage) == [1, 8, 2, *range(10, 20)] and not storage.exists(slot_path(2))


@pytest.mark.parametrize("same_time", [False, True])
def test_who_was_committed_by_others_meanwhile_makes_nothing_of_the_slot_that_comes_again(
    storage: Storage, same_time: bool
) -> None:
    add(CommitLog(storage), 1)

    def meanwhile() -> None:
        log = CommitLog(storage, slots_kept=1)
        put_group(log, 8, 99, take_time=at(19 if same_time else 29))
        add(log, *range(10, 20))
        assert not storage.exists(slot_path(2))

    watched, puts = put_in_order(before_slot(storage, 2, meanwhile))
    own = put_group(CommitLog(watched, slots_kept=1), 99, 2, take_time=at(20))
    assert (own is not None) == same_time  # else its owner looks for the file of its instant
    assert puts == [] and shown(storage) == [1, 8, 99, *range(10, 20)]


def test_the_slot_of_a_group_that_others_removed_is_counted(storage: Storage) -> None:
    """It was created, shown by others and removed before its writer heard so."""
    others, done = CommitLog(storage, slots_kept=1), [False]

    def before(operation: str, path: str) -> None:
        if operation == "read" and path == slot_path(1) and not done[0]:
            done[0] = True
            add(others, *range(10, 20))
            assert not storage.exists(slot_path(1))

    faulty = FaultyStorage(storage, [Fault(LOST_AFTER, "put_if_absent", LOG_FOLDER, times=1)], before=before)
    own = put_group(CommitLog(faulty, ManualSystem(), slots_kept=1), 3, 2)
    assert done[0] and own is not None and own.number == 1
    assert shown(storage) == [3, 2, *range(10, 20)]


# -- beside writers that archive and roll back -----------------------------------------------------------------------


def roll_back(storage: Storage, instant: str) -> None:
    """As Java does, up to its plan and the pending files."""
    rollback = str(FIRST + 900)
    storage.put(requested(rollback, ROLLBACK).path, RollbackPlan(instant, "deltacommit", ()).to_avro())
    storage.put(inflight(rollback, ROLLBACK).path, b"")
    storage.delete(inflight(instant, "deltacommit").path)


@pytest.mark.parametrize("rolled_back", [0, 1, 2])
def test_of_a_slot_whose_writer_died_all_are_shown_but_what_was_rolled_back(storage: Storage, rolled_back: int) -> None:
    group = [9, 2, 5]
    with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
        put_group(CommitLog(storage), *group)
    roll_back(storage, instant_of(group.pop(rolled_back)))
    add(CommitLog(storage), 7)
    assert shown(storage) == [*group, 7]


@pytest.mark.parametrize("is_own", [False, True])
def test_who_is_rolled_back_between_slot_and_file_is_told_and_no_other(storage: Storage, is_own: bool) -> None:
    def before(operation: str, path: str) -> None:
        if operation == "list" and path == LOG_FOLDER and storage.exists(slot_path(1)) and not shown(storage):
            roll_back(storage, instant_of(9 if is_own else 2))

    log = CommitLog(FaultyStorage(storage, before=before))
    if is_own:
        with pytest.raises(TransactionEnded, match="rolled it back before its file was there"):
            put_group(log, 9, 2, 5)
    else:
        assert put_group(log, 9, 2, 5) is not None
    assert shown(storage) == ([2, 5] if is_own else [9, 5])


def test_archived_members_do_not_come_back(storage: Storage) -> None:
    log = CommitLog(storage)
    put_group(log, 2, 3, 4)
    storage.put(completed(instant_of(6), "deltacommit", str(FIRST + 800)).path, b"java")
    Archiver(storage).archive([instant_of(2), instant_of(3)])
    fresh = CommitLog(storage)
    fresh.project(fresh.tail())
    assert shown(storage) == [4, 6]
    add(fresh, 7)
    assert sorted(shown(storage)) == [4, 6, 7]


@pytest.mark.parametrize("paused", [0, 1, 2])
@pytest.mark.parametrize("group", [[1, 2, 3], [3, 1, 2], [3, 2, 1]])
def test_members_archived_while_a_leader_was_paused_go_again(storage: Storage, group: list[int], paused: int) -> None:
    """The leader sees in its second look that they are history, and takes them away as an archiver does."""
    deleted: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and f"/{instant_of(group[paused])}_" in path:
            CommitLog(storage).project(CommitLog(storage).tail())
            Archiver(storage).archive(map(instant_of, group))
        deleted.extend([path] if operation == "delete" else [])

    assert put_group(CommitLog(FaultyStorage(storage, before=before)), *group, 4) is not None
    assert shown(storage) == [4] and deleted == sorted(one.path for one in slot(storage, 1)[:3])


def test_a_failure_of_a_look_before_the_slot_leaves_nothing(storage: Storage) -> None:
    faulty = FaultyStorage(storage, [Fault(UNAVAILABLE, "put_if_absent", LOG_FOLDER, times=1)])
    with pytest.raises(Unavailable) as caught:
        put_group(CommitLog(faulty, ManualSystem()), 1, 2)
    assert not isinstance(caught.value, CommitUnknown)
    assert storage.list(LOG_FOLDER).files == () and shown(storage) == []
