"""The columns of a commit that another process has put are known from its slot, and its file is not read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from bare_table import manager_of
from storages.counting import CountingStorage
from storages.opened import opened_in

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.write import MERGE_SCHEMA
from lakelatch.engine.table.making import prepare_table
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.schema import keeps_schema, learn_slot
from lakelatch.locks.options import PROVIDER
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.commit_log import SLOTS_KEPT
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.log_reader import LogReader
from lakelatch.timeline.metadata import SCHEMA_KEY, CommitMetadata
from lakelatch.transactions.attempts.checks import At
from lakelatch.transactions.attempts.intent import Place
from lakelatch.transactions.base.context import TransactionState
from lakelatch.transactions.base.outcome import Changed, Staged
from lakelatch.transactions.conflicts.report import Work
from lakelatch.transactions.memory import TableMemory

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.compact.inline": "false",
    PROVIDER: "in_process",
}


class OtherProcess(CountingStorage):
    """A table as a process sees it that has read nothing of it."""

    def __init__(self, name: str, storage: Storage) -> None:
        super().__init__(name)
        for path in list(storage.walk("")):
            self.put(path, storage.read(path))
        self.forget()

    def commits_read(self) -> list[str]:
        return [call.path for call in self.calls if call.operation == "read" and call.path.startswith(TIMELINE_FOLDER)]


@pytest.fixture
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CountingStorage:
    return opened_in(CountingStorage(request.node.name), monkeypatch)


def last_events(storage: Storage) -> tuple[Event, ...]:
    return LogReader(storage).tail().events


def write(*columns: str) -> None:
    with ArrowTable("memory://orders", {**OPTIONS, MERGE_SCHEMA: "true"}) as table:
        table.upsert(pa.table({name: ["1"] for name in columns}))


@pytest.mark.parametrize("columns", [("id", "v"), ("id", "v", "new")], ids=["the same columns", "one more"])
def test_the_columns_are_those_of_the_last_slot(storage: CountingStorage, columns: tuple[str, ...]) -> None:
    write("id", "v")
    before = OtherProcess("before", storage)
    assert open_table(before).schema.names == ["id", "v"]
    write(*columns)
    for learns in (False, True):
        other = OtherProcess("other", storage)
        if learns:
            learn_slot(other, last_events(storage))
        assert open_table(other).schema.names == list(columns)
        assert bool(other.commits_read()) is not learns, other.story()


def test_who_writes_learns_them_from_the_slot_that_it_has_read_last(storage: CountingStorage) -> None:
    """As one does that has waited for others to commit its write with theirs."""
    write("id", "v")
    other = OtherProcess("other", storage)
    memory = TableMemory.new(other, REAL_SYSTEM, SLOTS_KEPT, "")
    memory.log.tail()
    check = manager_of(other, memory=memory).memory_check
    table = prepare_table(other, Call(OPTIONS).write(), pa.schema([("id", pa.string()), ("v", pa.string())]), check)
    assert table.schema.names == ["id", "v"] and not other.commits_read(), other.story()


def test_who_commits_for_many_knows_the_columns_from_the_tail(storage: CountingStorage) -> None:
    write("id", "v")
    other = OtherProcess("other", storage)
    table = open_table(other)
    write("id", "v", "new")
    for path in storage.walk(""):
        other.put(path, storage.read(path))
    other.forget()
    manager = manager_of(other)
    tail, snapshot = manager.context.look()
    state = TransactionState("20260101000000000", "deltacommit", "operation", snapshot.mark(tail.number), 0)
    staged = Staged(CommitMetadata((), "UPSERT"), Work())
    found = keeps_schema(table)(snapshot, At(manager.context, state, Place(tail, snapshot), staged))
    assert isinstance(found, Changed) and "new" in found.staged.metadata.extra[SCHEMA_KEY]
    assert not other.commits_read(), other.story()
