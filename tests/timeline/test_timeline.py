from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from storages.counting import CountingStorage

from lakelatch.errors import Unavailable
from lakelatch.storage import MemoryStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.instant import (
    COMPLETED,
    INFLIGHT,
    REQUESTED,
    TIMELINE_FOLDER,
    Instant,
    completed,
    inflight,
    parse_file_name,
    requested,
)
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.metadata import RollbackPlan
from lakelatch.timeline.snapshot import Mark, Snapshot

START, END = "20261121120000123", "20261121120001456"

# pending action, requested file, inflight file, completed file: as Hudi names them on timeline layout 2
NAMES = [
    ("commit", f"{START}.commit.requested", f"{START}.inflight", f"{START}_{END}.commit"),
    ("deltacommit", f"{START}.deltacommit.requested", f"{START}.deltacommit.inflight", f"{START}_{END}.deltacommit"),
    ("compaction", f"{START}.compaction.requested", f"{START}.compaction.inflight", f"{START}_{END}.commit"),
    (
        "logcompaction",
        f"{START}.logcompaction.requested",
        f"{START}.logcompaction.inflight",
        f"{START}_{END}.deltacommit",
    ),
    ("clustering", f"{START}.clustering.requested", f"{START}.clustering.inflight", f"{START}_{END}.replacecommit"),
    (
        "replacecommit",
        f"{START}.replacecommit.requested",
        f"{START}.replacecommit.inflight",
        f"{START}_{END}.replacecommit",
    ),
    ("clean", f"{START}.clean.requested", f"{START}.clean.inflight", f"{START}_{END}.clean"),
    ("rollback", f"{START}.rollback.requested", f"{START}.rollback.inflight", f"{START}_{END}.rollback"),
    ("restore", f"{START}.restore.requested", f"{START}.restore.inflight", f"{START}_{END}.restore"),
    ("savepoint", f"{START}.savepoint.requested", f"{START}.savepoint.inflight", f"{START}_{END}.savepoint"),
    ("indexing", f"{START}.indexing.requested", f"{START}.indexing.inflight", f"{START}_{END}.indexing"),
]


@pytest.mark.parametrize(("action", "asked", "running", "done"), NAMES)
def test_every_state_of_every_action_has_hudis_name(action: str, asked: str, running: str, done: str) -> None:
    assert requested(START, action).file_name == asked
    assert inflight(START, action).file_name == running
    assert completed(START, action, END).file_name == done


@pytest.mark.parametrize(("action", "asked", "running", "done"), NAMES)
def test_names_are_parsed_back_to_what_they_stand_for(action: str, asked: str, running: str, done: str) -> None:
    assert parse_file_name(asked) == Instant(START, action, REQUESTED)
    assert parse_file_name(running) == Instant(START, action, INFLIGHT)
    parsed = parse_file_name(done)
    assert parsed is not None
    assert (parsed.requested, parsed.state, parsed.completion, parsed.file_name) == (START, COMPLETED, END, done)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "history",
        ".hoodie_partition_metadata",
        f"{START}",
        f"{START}.commit",
        f"{START}.deltacommit.done",
        f"{START}.party.requested",
        f"{START}_.deltacommit",
        f"_{END}.deltacommit",
        f"{START}_{END}",
        f"{START}_{END}.deltacommit.inflight",
        f"{START}_{END}.compaction",
        f"{START}_{END}.deltacommit.crc",
        f".{START}_{END}.deltacommit.crc",
        f"{START[:-1]}.deltacommit.requested",
        f"{START}0_{END}.deltacommit",
        "2026112112000012³.deltacommit.requested",
        "٢٠٢٦١١٢١١٢٠٠٠٠١٢٣.deltacommit.requested",
    ],
)
def test_other_names_are_no_instants(name: str) -> None:
    assert parse_file_name(name) is None


def test_times_of_14_digits_are_read() -> None:
    assert parse_file_name("20261121120000.deltacommit.requested") == Instant(
        "20261121120000", "deltacommit", REQUESTED
    )


def test_a_listing_shows_the_furthest_state_of_each_instant() -> None:
    storage = MemoryStorage("furthest-states")
    later = "20261121120002000"
    for name in (
        f"{START}.compaction.requested",
        f"{START}.compaction.inflight",
        f"{START}_{END}.commit",
        f"{later}.deltacommit.requested",
        f"{later}.deltacommit.inflight",
        f"{END}.rollback.requested",
        "rubbish",
    ):
        storage.put(f"{TIMELINE_FOLDER}/{name}", b"")
    timeline = Snapshot.load(storage)
    assert [instant.file_name for instant in timeline.completed] == [f"{START}_{END}.commit"]
    assert timeline.pending == (Instant(END, "rollback", REQUESTED), Instant(later, "deltacommit", INFLIGHT))
    assert timeline.completion_times() == {START: END}
    assert timeline.latest_time == later
    assert Snapshot.of_names(()).latest_time == ""


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        (set(), True),
        ({"+rubbish"}, True),
        ({"+20261121120003000.deltacommit.requested", "+20261121120003000_20261121120004000.deltacommit"}, True),
        ({"+20261121120000500_20261121120004000.deltacommit"}, True),  # begun before, completed since
        ({"+20261121120000500.deltacommit.inflight", "+20261121120000500.inflight"}, True),  # has merely begun
        ({"+20261121120000500_20261121120001000.deltacommit"}, False),  # completed before what was shown
        ({f"+{END}_20261121120002000.deltacommit"}, False),  # at the very time of it
        ({"+20261121120000500.logcompaction.requested"}, False),  # a plan before what was shown
        ({"+20261121120003000.rollback.requested"}, True),
        ({f"-{START}.deltacommit.requested"}, False),
        ({f"-{START}_20261121120002000.deltacommit"}, False),
        ({"+history"}, False),
    ],
)
def test_one_listing_lacks_nothing_if_a_later_one_shows_nothing_older(change: set[str], whole: bool) -> None:
    storage = MemoryStorage("one-listing")
    names = {f"{START}.deltacommit.requested", f"{START}_20261121120002000.deltacommit"}
    for name in names:
        storage.put(f"{TIMELINE_FOLDER}/{name}", b"")
    look = Snapshot.look(storage)
    added = {name[1:] for name in change if name[0] == "+"}
    gone = {name[1:] for name in change if name[0] == "-"}
    assert look.lacks_nothing((names | added) - gone) is whole
    assert not look.lacks_nothing(names | {"20261121120003000_20261121120004000.commit"}, until="20261121120004000")
    for name in names:
        storage.delete(f"{TIMELINE_FOLDER}/{name}")


def test_a_timeline_is_at_rest_when_two_listings_agree() -> None:
    storage = CountingStorage("at-rest")
    snapshots = Snapshots(storage)
    assert snapshots.at_rest().names == frozenset() and len(storage.calls) == 2
    assert snapshots.at_rest() is snapshots.listing and len(storage.calls) == 3
    begun, more = (inflight(f"2026112212000000{number}", "deltacommit") for number in range(2))
    storage.put(begun.path, b"")
    storage.before("list", TIMELINE_FOLDER, lambda: storage.put(more.path, b""))
    storage.forget()
    assert snapshots.at_rest().names == {begun.file_name, more.file_name}
    assert [call.operation for call in storage.calls].count("list") == 2


def test_a_timeline_that_never_rests_is_not_available() -> None:
    class Busy(MemoryStorage):
        def names(self, folder: str) -> Sequence[str]:
            self.put(f"{folder}/{REAL_SYSTEM.new_id()}", b"")
            return super().names(folder)

    with pytest.raises(Unavailable, match="changed during each of"):
        Snapshots(Busy("busy")).at_rest()


def test_what_is_late_counts_in_no_snapshot_and_in_each_listing() -> None:
    storage = MemoryStorage("late")
    done = completed(START, "deltacommit", END)
    rollback = requested("20261122120000000", "rollback")
    storage.put(done.path, b"")
    storage.put(rollback.path, RollbackPlan(START, "deltacommit", ()).to_avro())
    snapshots = Snapshots(storage)
    assert not snapshots.take().has(done) and snapshots.list().has(done) and snapshots.at_rest().has(done)
    mark = snapshots.current.mark(3, END)
    assert pickle.loads(pickle.dumps(mark)) == mark and mark.names == {rollback.file_name}
    assert snapshots.current.completed_since(Mark(0)) == () and mark.snapshot().pending == (rollback,)


def test_a_listing_that_was_begun_earlier_does_not_come_back() -> None:
    """Of two threads, the one that listed first may be the last to say what it has seen."""
    storage = MemoryStorage("threads")
    snapshots = Snapshots(storage)
    earlier = Snapshot.take(storage, Snapshot())
    begun = inflight("20261122120000000", "deltacommit")
    storage.put(begun.path, b"")
    assert snapshots.take().has(begun)
    assert snapshots.take(Tail(1, (), earlier)).has(begun) and snapshots.current.has(begun)
    assert snapshots.take(Tail(1, (), Snapshot.take(storage, Snapshot()))).has(begun)
