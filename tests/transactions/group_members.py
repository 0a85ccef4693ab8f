"""Commits that others may put into the log with theirs, and writers that are paused once their records are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bare_table import add_file
from one_table import Table
from plain_member import PlainMember

from lakelatch.storage import Storage
from lakelatch.testing.faults.storage import Fault, FaultyStorage
from lakelatch.timeline.log.events import COMPLETE, LOG_FOLDER, Event
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.attempts.ready_commit import ready_commit
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.base.ready import READY_FOLDER, record_path
from lakelatch.transactions.base.settings import OPTIMISTIC
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction


@dataclass
class Writer:
    """A write whose files are there; `commit` behaves as after a slot that it has lost, so its record comes first."""

    manager: TransactionManager
    transaction: Transaction
    metadata: CommitMetadata

    @classmethod
    def begin(cls, manager: TransactionManager, *groups: str) -> Writer:
        transaction = manager.begin()
        stats = tuple(add_file(transaction, group) for group in groups)
        return cls(manager, transaction, CommitMetadata(stats, "UPSERT"))

    @property
    def instant(self) -> str:
        return self.transaction.instant

    @property
    def record(self) -> str:
        """The path of its record."""
        return record_path(self.instant)

    def commit(self) -> Committed:
        crowd(self.manager)
        return self.transaction.commit(self.metadata, member=PlainMember(self.metadata))


def crowd(manager: TransactionManager) -> TransactionManager:
    """As after a slot that its process has lost."""
    manager.memory.queue.left = 4
    return manager


class Paused:
    """Does a step when its user first asks for something of the storage beneath `folder`, once it has left a record."""

    def __init__(
        self,
        storage: Storage,
        step: Callable[[], object] = lambda: None,
        operation: str = "list",
        folder: str = LOG_FOLDER,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.step, self.done, self._left = step, False, False
        self._operation, self._folder = operation, folder
        self.storage = FaultyStorage(storage, faults, before=self._before)

    def _before(self, operation: str, path: str) -> None:
        if self._left and not self.done and operation == self._operation and path.startswith(self._folder):
            self.done = True
            self.step()
        self._left = self._left or (operation == "put_if_absent" and path.startswith(READY_FOLDER))


def records(storage: Storage) -> list[str]:
    """The names of what lies in the folder of those that are ready."""
    return sorted(storage.list(READY_FOLDER).files)


def begin(table: Table, *groups: str, paused: Paused | None = None, mode: str = OPTIMISTIC, **more: Any) -> Writer:
    """A write in a process of its own."""
    return Writer.begin(table.manager(mode, storage=paused.storage if paused else None, **more), *groups)


def slots(table: Table) -> list[list[tuple[str, str]]]:
    """Kind and instant of each event, slot by slot, without the ends of rollbacks."""
    found: dict[int, list[tuple[str, str]]] = {}
    for event in table.events():
        if event.kind == COMPLETE and event.action != "rollback":
            found.setdefault(event.number, []).append((COMPLETE, event.instant))
        elif event.kind != COMPLETE:
            found.setdefault(event.number, []).append((event.kind, event.target or ""))
    return list(found.values())


def events(table: Table) -> list[tuple[str, str]]:
    return [event for slot in slots(table) for event in slot]


def committed(*writers: Writer) -> list[tuple[str, str]]:
    return [(COMPLETE, writer.instant) for writer in writers]


def event_of(table: Table, writer: Writer) -> Event:
    return next(event for event in table.events() if event.kind == COMPLETE and event.instant == writer.instant)


def nothing_is_left(table: Table) -> bool:
    return table.leftovers() == [] and records(table.storage) == []


def record_bytes(writer: Writer) -> bytes:
    """What the writer would leave, or has left."""
    member = PlainMember(writer.metadata)
    found = ready_commit(writer.manager.context, writer.transaction.state, writer.metadata, member)
    assert found is not None
    return found.to_bytes()
