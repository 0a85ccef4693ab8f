"""Small writes of a table that stays open: each makes the next one ready, which goes by what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest
from bare_table import expire, write
from storages.counting import CountingStorage
from storages.opened import opened_in

from lakelatch import failpoints
from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.engine.table.manager import open_manager
from lakelatch.heartbeat.contract import LEASE
from lakelatch.locks.options import PROVIDER
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.timeline.instant import CLAIMS_FOLDER, TIMELINE_FOLDER
from lakelatch.timeline.log.events import slot_path
from lakelatch.timeline.log.log_reader import LogReader
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.transactions.attempts.claims import claim_time
from lakelatch.transactions.base.settings import HEARTBEAT_TYPE_OPTION, RETRIES_OPTION
from lakelatch.transactions.markers.files import MARKERS_FOLDER
from lakelatch.transactions.markers.own_files import NotBegun
from lakelatch.transactions.next_write import withdraw

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.compact.inline": "false",
    PROVIDER: "in_process",
}


@pytest.fixture
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CountingStorage:
    return opened_in(CountingStorage(request.node.name), monkeypatch)


@pytest.fixture
def system() -> ManualSystem:
    return ManualSystem(REAL_SYSTEM.realtime_ms())


def upsert(table: ArrowTable, *keys: str) -> str:
    return table.upsert(pa.table({"id": list(keys)})).instant


def opened(system: ManualSystem, storage: CountingStorage, **options: object) -> ArrowTable:
    """A table that stays open, and whose next write is ready."""
    table = ArrowTable("memory://orders", {**OPTIONS, **options}, system).__enter__()
    for key in ("a", "b"):
        upsert(table, key)
    assert len(claims(storage)) == 1
    storage.forget()
    return table


def claims(storage: Storage) -> list[str]:
    return list(storage.list(CLAIMS_FOLDER).files)


def markers(storage: Storage) -> list[str]:
    return list(storage.walk(MARKERS_FOLDER))


def pending(storage: Storage) -> list[str]:
    names = storage.list(TIMELINE_FOLDER).files
    ended = {name.partition("_")[0] for name in names if "_" in name}
    return [name for name in names if "_" not in name and name.partition(".")[0] not in ended]


def slots(storage: Storage) -> int:
    return LogReader(storage).tail().number


def others_write(storage: Storage, system: ManualSystem, group: str = "x") -> str:
    with open_manager(storage, ManagerOptions.from_options({PROVIDER: "in_process"}), system) as manager:
        manager.recover()
        return write(manager, group).instant


def test_the_write_has_the_time_that_was_claimed_for_it(storage: CountingStorage, system: ManualSystem) -> None:
    table = opened(system, storage)
    (claimed,) = claims(storage)
    storage.forget()
    assert upsert(table, "c") == claimed and storage.steps == 6, storage.story()
    assert pending(storage) == [] and len(claims(storage)) == 1


def test_the_end_of_the_block_gives_back_what_nobody_needs(storage: CountingStorage, system: ManualSystem) -> None:
    table = opened(system, storage)
    before = slots(storage)
    table.__exit__()
    assert claims(storage) == markers(storage) == pending(storage) == [] and slots(storage) == before + 1
    upsert(table, "c")
    assert claims(storage) == markers(storage) == []


def test_two_calls_at_once_leave_one_that_is_ready(storage: CountingStorage, system: ManualSystem) -> None:
    """What one of them has made ready is nobody's once the other one has kept what it knows."""
    table = opened(system, storage, **{RETRIES_OPTION: 1})
    begun: list[str] = []

    def write_meanwhile(_: str) -> None:
        begun.append("e")
        if len(begun) == 1:
            upsert(table, "c")
            upsert(table, "d")
            assert len(claims(storage)) > 1

    with failpoints.calling(write_meanwhile, ["write.before_rows"]):
        upsert(table, "e")
    assert len(claims(storage)) <= 1
    table.__exit__()
    assert claims(storage) == markers(storage) == pending(storage) == []


def test_others_have_committed_meanwhile(storage: CountingStorage, system: ManualSystem) -> None:
    """The write begins anew, and leaves nothing of the time that was ready for it."""
    table = opened(system, storage)
    (claimed,) = claims(storage)
    system.advance(1)
    other = others_write(storage, system)
    assert upsert(table, "c") > other > claimed
    assert claims(storage) == markers(storage) == pending(storage) == []


def test_nothing_is_made_ready_while_others_write_too(storage: CountingStorage, system: ManualSystem) -> None:
    table = opened(system, storage)
    for _ in range(3):
        system.advance(1)
        others_write(storage, system)
        upsert(table, "c")
        assert claims(storage) == []
    upsert(table, "d")
    assert len(claims(storage)) == 1


def test_no_lease_keeps_a_claim_alive_that_nobody_may_need(storage: CountingStorage, system: ManualSystem) -> None:
    table = ArrowTable("memory://orders", {**OPTIONS, HEARTBEAT_TYPE_OPTION: LEASE}, system).__enter__()
    for key in ("a", "b", "c"):
        upsert(table, key)
    assert not claims(storage)


def test_others_have_taken_it_for_dead(storage: CountingStorage, system: ManualSystem) -> None:
    table = opened(system, storage)
    (claimed,) = claims(storage)
    expire(storage, claimed)
    with open_manager(storage, ManagerOptions.from_options({PROVIDER: "in_process"}), system) as manager:
        assert manager.recover() == [claimed]
    assert upsert(table, "c") > claimed
    assert claims(storage) == markers(storage) == pending(storage) == []


def test_another_table_is_in_its_place(storage: CountingStorage, system: ManualSystem) -> None:
    table = opened(system, storage)
    for path in list(storage.walk("")):
        storage.delete(path)
    with ArrowTable("memory://orders", OPTIONS, system) as other:
        upsert(other, "x")
    before = slots(storage)
    upsert(table, "c")
    assert slots(storage) == before + 1 and pending(storage) == []


def test_another_slot_is_in_the_place_of_the_last_one(storage: CountingStorage, system: ManualSystem) -> None:
    """A copy of the table has a log that is older than its timeline, and others have gone on with it."""
    table = opened(system, storage)
    (claimed,) = claims(storage)
    last = slots(storage)
    storage.delete(slot_path(last))
    system.advance(1)
    with open_manager(storage, ManagerOptions.from_options({PROVIDER: "in_process"}), system) as manager:
        withdraw(manager.context, claim_time(manager.context, claimed, last - 1))
    assert slots(storage) == last and claims(storage) == [claimed]
    assert upsert(table, "c") > claimed and pending(storage) == []


def test_its_properties_have_changed(storage: CountingStorage, system: ManualSystem) -> None:
    table = opened(system, storage)
    (claimed,) = claims(storage)
    storage.put(PROPERTIES_PATH, storage.read(PROPERTIES_PATH) + b"hoodie.table.cdc.enabled=true\n")
    assert upsert(table, "c") != claimed and pending(storage) == []


def test_files_that_it_does_not_make_after_all(storage: CountingStorage, system: ManualSystem) -> None:
    """Their markers go with the others; no tombstone is needed, since nobody has begun to make such a file."""
    table = opened(system, storage, **{"hoodie.bucket.index.num.buckets": 8})
    (ready,) = markers(storage)
    for key in range(20):
        upsert(table, f"{key}")
    assert len(markers(storage)) == 1 and markers(storage) != [ready]
    data = [path for path in storage.walk("") if ".log." in path and not path.startswith(".hoodie/")]
    assert len(data) == 22 and all(storage.read(path) for path in data)
    table.__exit__()
    assert markers(storage) == claims(storage) == []


def test_a_write_for_a_new_partition(storage: CountingStorage, system: ManualSystem) -> None:
    options = {"hoodie.datasource.write.partitionpath.field": "day"}
    table = ArrowTable("memory://orders", {**OPTIONS, **options}, system).__enter__()
    steps = []
    for day in ("1", "1", "1", "2", "2", "2"):
        storage.forget()
        table.upsert(pa.table({"id": ["a"], "day": [day]}))
        steps.append(storage.steps)
    assert steps[2] == steps[-1] == 6 and steps[3] > 6


def test_others_are_about_to_take_it_for_dead(storage: CountingStorage, system: ManualSystem) -> None:
    """Their rollback has its slot, and has died before anything on the timeline says so."""
    table = opened(system, storage)
    (claimed,) = claims(storage)
    expire(storage, claimed)
    with (
        open_manager(storage, ManagerOptions.from_options({PROVIDER: "in_process"}), system) as manager,
        failpoints.calling(_die, ["commit.after_slot"]),
        pytest.raises(_Died),
    ):
        manager.recover()
    assert upsert(table, "c") > claimed and not [name for name in pending(storage) if name.startswith(claimed)]


class _Paused(ManualSystem):
    """One that is paused before it claims a time, while others go on."""

    def __init__(self, start_ms: int) -> None:
        super().__init__(start_ms)
        self.others: list[Callable[[], None]] = []

    def new_id(self) -> str:
        while self.others:
            self.others.pop()()
        return super().new_id()


def test_nobody_is_given_a_time_that_was_given_back(storage: CountingStorage, system: ManualSystem) -> None:
    """It may still be removed by a request that arrives late, with what its next owner has announced."""
    table = opened(system, storage)
    (claimed,) = claims(storage)
    paused = _Paused(system.realtime_ms())
    opening = partial(
        open_manager, storage, ManagerOptions.from_options({PROVIDER: "in_process"}), paused, remembers=True
    )
    with opening() as manager:
        manager.recover()
        manager.context.look()
    paused.others.append(table.__exit__)
    with opening(begins=True) as manager:
        manager.recover()
        transaction = manager.begin(for_tasks=False)
        assert transaction.instant == claimed and transaction.own_files is not None
        with pytest.raises(NotBegun):
            transaction.own_files.ensure_begun()


class _Died(BaseException):
    """As of a process that is killed."""


def _die(_: str) -> None:
    raise _Died
