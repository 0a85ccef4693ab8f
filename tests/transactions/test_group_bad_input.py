"""What should not lie in the folder of those that are ready, and storages that refuse it: no commit is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from group_members import (
    Paused,
    Writer,
    begin,
    committed,
    events,
    nothing_is_left,
    record_bytes,
    records,
    slots,
)
from one_table import Table
from plain_member import PlainMember

from lakelatch.errors import InvalidRequest
from lakelatch.storage import MemoryStorage, Storage
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.log.events import COMPLETE
from lakelatch.transactions.attempts.ready_commit import ReadyCommit, Unfit
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.base.ready import READY_FOLDER, instant_of_record, record_path

Change = Callable[[dict[str, Any]], object]
LONG_AGO = "20200101000000000"


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    return Table(MemoryStorage(request.node.name))


def changed(data: bytes, change: Change) -> bytes:
    """A record with other values, and the checksum of those."""
    values = open_checksummed_json(data)
    assert values is not None
    change(values)
    return checksummed_json(values)


def waited_s(table: Table, commit: Callable[[], Committed]) -> float:
    """How long a commit took, by the table's clock."""
    began_ns = table.system.monotonic_ns()
    commit()
    return (table.system.monotonic_ns() - began_ns) / 1e9


# -- the bytes of a record -------------------------------------------------------------------------------------------


def test_a_record_survives_its_file(table: Table) -> None:
    owner = begin(table, "a", "b")
    record = ReadyCommit.from_bytes(record_bytes(owner), owner.instant)
    assert record.state == owner.transaction.state and record.path == owner.record
    assert record.event.file_groups == {("", "a"), ("", "b")} and record.event.content == owner.metadata.to_avro()
    assert PlainMember(owner.metadata).staged_of(record).metadata == owner.metadata


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.update(format=2),
        lambda values: values.pop("format"),
        lambda values: values["event"].update(instant=LONG_AGO),
        lambda values: values["event"].update(kind="rollback"),
        lambda values: values["event"].update(kind=None),
        lambda values: values["event"].update(content_path="somewhere"),
        lambda values: values["event"].update(content=5),
        lambda values: values["event"].update(more="than known"),
        lambda values: values["event"].pop("operation_id"),
        lambda values: values["event"].update(action="nothing"),
        lambda values: values["event"].update(action="rollback"),
        lambda values: values["event"].update(action=["deltacommit"]),
        lambda values: values["event"].update(undoes=["20200101000000000_20200101000000001.deltacommit"]),
        lambda values: values.update(event=None),
        lambda values: values.update(event=[]),
        lambda values: values.update(slot="x"),
        lambda values: values.update(slot=None),
        lambda values: values.update(names=5),
        lambda values: values.update(names=[[]]),
        lambda values: values.update(facts=None),
        lambda values: values.update(facts=7),
        lambda values: values.pop("strategy"),
    ],
)
def test_a_record_that_cannot_be_understood_is_left_to_its_owner(table: Table, change: Change) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    data = changed(record_bytes(owner), change)
    with pytest.raises(Unfit, match=owner.instant):
        ReadyCommit.from_bytes(data, owner.instant)

    def damage() -> None:
        table.storage.put(owner.record, data)
        leader.commit()
        assert records(table.storage) == []

    paused.step = damage
    owner.commit()
    assert slots(table) == [committed(leader), committed(owner)] and nothing_is_left(table)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["facts"].clear(),
        lambda values: values["facts"].update(stats=None),
        lambda values: values["facts"].update(stats=5),
        lambda values: values["facts"].update(stats=[5]),
        lambda values: values["facts"].update(stats=[{"partition": 1}]),
        lambda values: values["facts"].update(operation=[]),
        lambda values: values["event"].update(file_groups=[["", "other"]]),
        lambda values: values.update(mode=5),
        lambda values: values["event"].update(lock_domain=5),
    ],
)
def test_facts_that_their_reader_does_not_understand_are_left_to_their_owner(table: Table, change: Change) -> None:
    """As those of another kind of writer, or of a version with other fields."""
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")

    def damage() -> None:
        table.storage.put(owner.record, changed(record_bytes(owner), change))
        leader.commit()

    paused.step = damage
    owner.commit()
    assert sorted(events(table)) == sorted(committed(leader, owner)) and nothing_is_left(table)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-2],
        lambda data: b"\xff\x00" + data,
        lambda data: data.replace(b'"deltacommit"', b'"compaction!"'),
        lambda data: b"[" * 100_000,
        lambda data: b"null",
        lambda data: json.dumps({"format": 1}).encode(),
        lambda data: b"x" * 5_000_000,
    ],
)
def test_a_damaged_record_is_removed_and_its_owner_commits_alone(
    table: Table, damage: Callable[[bytes], bytes]
) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")

    def harm() -> None:
        table.storage.put(owner.record, damage(record_bytes(owner)))
        leader.commit()
        assert records(table.storage) == []

    paused.step = harm
    owner.commit()
    assert slots(table) == [committed(leader), committed(owner)] and nothing_is_left(table)


def test_no_more_is_read_than_a_record_can_have(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelatch.transactions.attempts.group._SIZE_MAX_BYTES", 500)
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    assert len(record_bytes(owner)) > 500
    paused.step = leader.commit
    owner.commit()
    assert slots(table) == [committed(leader), committed(owner)] and nothing_is_left(table)


def test_the_record_of_another_instant_under_this_name_commits_neither(table: Table) -> None:
    paused = Paused(table.storage)
    other, owner, leader = begin(table, "c"), begin(table, "a", paused=paused), begin(table, "b")

    def swap() -> None:
        table.storage.put(owner.record, record_bytes(other))
        leader.commit()

    paused.step = swap
    owner.commit()
    assert slots(table) == [committed(leader), committed(owner)]
    other.transaction.abort()


def test_a_record_under_two_names_is_committed_once(table: Table) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    later = str(int(owner.instant) + 1)

    def double() -> None:
        table.storage.put(record_path(later), record_bytes(owner))
        leader.commit()

    paused.step = double
    owner.commit()
    assert slots(table) == [committed(leader, owner)] and nothing_is_left(table)


def test_a_record_of_another_table_is_removed(table: Table) -> None:
    """Nobody has a claim of its instant here."""
    elsewhere = begin(Table(MemoryStorage(f"{table.storage.uri}-other")), "a")
    table.storage.put(elsewhere.record, record_bytes(elsewhere))
    leader = begin(table, "b")
    leader.commit()
    assert slots(table) == [committed(leader)] and nothing_is_left(table)


# -- other files in the folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["notes.txt", ".json", "1.json", LONG_AGO, f"{LONG_AGO}.json.crc", "²" * 17 + ".json"])
def test_files_of_strangers_are_passed_over_and_stay(table: Table, name: str) -> None:
    assert instant_of_record(name) == ""
    table.storage.put(f"{READY_FOLDER}/{name}", b"mine")
    table.storage.put(f"{READY_FOLDER}/folder/{LONG_AGO}.json", b"mine")
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    paused.step = leader.commit
    owner.commit()
    assert slots(table) == [committed(leader, owner)] and records(table.storage) == [name]


def test_a_folder_that_somebody_emptied_lets_each_commit_alone(table: Table) -> None:
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")

    def empty() -> None:
        table.storage.delete_folder(READY_FOLDER)
        leader.commit()

    paused.step = empty
    owner.commit()
    assert slots(table) == [committed(leader), committed(owner)] and nothing_is_left(table)


@pytest.mark.parametrize("are_records", [False, True])
def test_thousands_of_strangers_names_cost_a_bounded_wait(table: Table, are_records: bool) -> None:
    for number in range(5000):
        name = record_path(str(int(LONG_AGO) + number)) if are_records else f"{READY_FOLDER}/{number}"
        table.storage.put(name, b"")
    paused = Paused(table.storage)
    owner, leader = begin(table, "a", paused=paused), begin(table, "b")
    paused.step = leader.commit
    assert waited_s(table, owner.commit) < 30
    assert sorted(events(table)) == sorted(committed(leader, owner))


def test_strangers_with_names_of_records_are_removed_turn_by_turn(table: Table) -> None:
    for number in range(200):
        table.storage.put(record_path(str(int(LONG_AGO) + number)), b"")
    for number in range(4):
        begin(table, f"g{number}").commit()
    assert nothing_is_left(table) and len(events(table)) == 4


def test_the_records_of_hundreds_that_stand_still_do_not_stop_who_comes_later(table: Table) -> None:
    """They are alive, and perhaps of another mode: nobody can commit for them."""
    for number in range(200):
        instant = str(int(LONG_AGO) + number)
        table.storage.put(record_path(instant), b"")
        table.storage.put(f".hoodie/.heartbeat/{instant}", b"")
    assert waited_s(table, begin(table, "a").commit) < 30


# -- storages that refuse --------------------------------------------------------------------------------------------


class Refusing(FaultyStorage):
    """Allows nothing of one kind in the folder, as a policy of a bucket may."""

    def __init__(self, behind: Storage, refused: str) -> None:
        super().__init__(behind, before=self._before)
        self._refused, self.asked = refused, 0

    def _before(self, operation: str, path: str) -> None:
        if operation == self._refused and path.startswith(READY_FOLDER):
            self.asked += 1
            raise InvalidRequest(f"{operation} of {path} is not allowed")


def refusing(table: Table, operation: str, kind: str) -> FaultyStorage:
    if kind == UNAVAILABLE:
        return FaultyStorage(table.storage, [Fault(UNAVAILABLE, operation, READY_FOLDER)])
    return Refusing(table.storage, operation)


@pytest.mark.parametrize("kind", [UNAVAILABLE, "refused"])
@pytest.mark.parametrize("operation", ["put_if_absent", "list", "delete"])
def test_who_may_not_use_the_folder_commits_all_the_same(table: Table, operation: str, kind: str) -> None:
    storage = refusing(table, operation, kind)
    writer = Writer.begin(table.manager(storage=storage), "a")
    assert writer.commit().slot == 1 and events(table) == committed(writer)
    assert not isinstance(storage, Refusing) or storage.asked


@pytest.mark.parametrize("kind", [UNAVAILABLE, "refused"])
@pytest.mark.parametrize("operation", ["put_if_absent", "list", "read", "delete"])
def test_a_leader_that_may_not_commits_for_itself_and_the_others_follow(
    table: Table, operation: str, kind: str
) -> None:
    paused = Paused(table.storage)
    owner = begin(table, "a", paused=paused)
    storage = refusing(table, operation, kind)
    leader = Writer.begin(table.manager(storage=storage), "b")
    table.storage.put(record_path(LONG_AGO), b"damaged")
    paused.step = leader.commit
    owner.commit()
    assert sorted(events(table)) == sorted(committed(leader, owner))
    assert [event.number for event in table.events() if event.kind == COMPLETE] in ([1, 1], [1, 2])


@pytest.mark.parametrize("kind", [UNAVAILABLE, "refused"])
@pytest.mark.parametrize("operation", ["list", "read", "delete"])
def test_an_owner_that_may_no_more_is_committed_once(table: Table, operation: str, kind: str) -> None:
    """Its record is there, and others commit it or it does."""
    others = Paused(table.storage)
    owner = Writer.begin(table.manager(storage=refusing(table, operation, kind)), "a")
    leader = begin(table, "b", paused=others)
    table.storage.put(record_path(LONG_AGO), b"damaged")
    others.step = owner.commit
    leader.commit()
    assert sorted(events(table)) == sorted(committed(leader, owner))
