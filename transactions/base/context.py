"""What the transactions of one table share in one process, and the state of each: both frozen, and passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import LockProvider
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.system import System, process_name
from lakelatch.telemetry import PROVIDER, STRATEGY, TABLE, WRITER, kind_name
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.transactions.base.elision import LockElision
from lakelatch.transactions.base.instant_clock import InstantClock
from lakelatch.transactions.base.lock_check import LockCheck
from lakelatch.transactions.base.settings import TransactionSettings
from lakelatch.transactions.conflicts.contract import ConflictStrategy, OtherWrite


class Beside(Protocol):
    """What a write asks beside the check. It is given up where nothing comes of it."""

    @property
    def requests(self) -> Sequence[Callable[[], None]]: ...

    @property
    def instant(self) -> str | None: ...

    def give_up(self) -> None: ...


class MemoryCheck:
    """Asks whether the table that lies there is the one that is remembered, and who else has a claim.

    Nothing in the table is changed, but by what a write asks `beside` it.

    Somebody may have removed the table since, and made another one in its place, or brought an older copy back. Then
    the last slot that was read is not there, or says something else, or its file is not on the timeline.
    """

    def __init__(self, log: CommitLog, observer: Observer) -> None:
        self._log = log
        self._last = log.last
        self._observer = observer
        self.beside: Beside | None = None
        self.forget()

    def forget(self) -> None:
        """Drops the answers, so that they are asked for again: an opening beside them has failed."""
        if self.beside is not None:
            self.beside.give_up()
        self.beside = None
        self.has_slot: bool | None = None  # None until it is known
        self.holds = False  # until somebody has seen that it is the same table
        self._claims: frozenset[str] = frozenset()
        self.listing = Snapshot()

    @property
    def last_events(self) -> Sequence[Event]:
        """Those of the last slot that this process has read of the table, as far as that is known to be the same."""
        last = self._log.last
        return last.events if last is not None else ()

    @property
    def claims(self) -> frozenset[str]:
        """The instants that are claimed, but for the own one."""
        own = None if self.beside is None else self.beside.instant
        return self._claims - {own}

    @property
    def requests(self) -> Sequence[Callable[[], None]]:
        """What is to be asked, each once, side by side; `is_same` asks it if nobody has."""
        beside = () if self.beside is None else self.beside.requests
        return (self._ask_slot, self._list_claims, self._list_timeline, *beside)

    def is_same(self) -> bool:
        """Whether it is the same table, whose timeline is then remembered as it is now."""
        log, last = self._log, self._last
        if last is None or not last.events:
            return False
        if self.has_slot is None:
            log.storage.together(*self.requests)
        # The listing began when the slot was there, so its files have to be on it, but for those that were archived, or
        # that its writer is still making: then the slot before is the last one that the listing shows.
        projections, listing = log.projections, self.listing
        if not self.has_slot or not all(map(projections.is_listed, last.events)):
            return False
        missing = [one for one in last.events if not projections.needs_nothing(one, listing, looked_at=False)]
        if not all(projections.is_awaited(event, listing) for event in missing):
            return False
        log.has_seen(last, all_files=not missing)
        log.snapshots.take(replace(last, number=last.number - bool(missing), listing=listing))
        return True

    def _ask_slot(self) -> None:
        self.has_slot = self._last is not None and self._log.still_has(self._last)

    def _list_claims(self) -> None:
        self._claims = frozenset(self._observer.instants())

    def _list_timeline(self) -> None:
        self.listing = self._log.snapshots.list()


@dataclass(frozen=True)
class TransactionContext:
    """One table's storage, log, locks and clocks, and how its transactions behave. Threads may share it."""

    storage: Storage
    settings: TransactionSettings
    provider: LockProvider
    observer: Observer
    strategy: ConflictStrategy
    system: System
    log: CommitLog
    clock: InstantClock
    elision: LockElision
    lock_check: LockCheck | None = None

    @property
    def writer(self) -> str:
        """The name under which others see these transactions."""
        return self.settings.writer

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """What the measurements of these transactions have in common. A writer has to have been named by its user."""
        found = {TABLE: without_secrets(self.storage.uri), PROVIDER: kind_name(type(self.provider), "LockProvider")}
        return found if self.writer == process_name() else {**found, WRITER: self.writer}

    @cached_property
    def conflict_labels(self) -> Mapping[str, str]:
        """The same for conflicts, with what decides them."""
        return {**self.labels, STRATEGY: kind_name(type(self.strategy), "ConflictStrategy")}

    def look(self) -> tuple[Tail, Snapshot]:
        """The tail now, and the snapshot of then. One listing, if the file of the tail's slot is known to be there."""
        tail = self.log.look(self.log.tail())
        return tail, self.snapshots.take(tail)

    @property
    def meets_others(self) -> bool:
        """Whether others are known to commit just now, and for each other: then a slot is not tried alone first."""
        return self.elision.crowded or self.log.waiting.others or self.log.has_met_group

    @property
    def snapshots(self) -> Snapshots:
        """Where snapshots of the timeline are taken."""
        return self.log.snapshots

    @property
    def snapshot(self) -> Snapshot:
        """The last one that was taken."""
        return self.log.snapshots.current


@dataclass(frozen=True)
class EarlierRead:
    """What a transaction has read before it began, and which writes have completed between the two. Pickles.

    The log need not have those any more: a claim keeps only the slots since a transaction's beginning.
    """

    mark: Mark
    writes: tuple[OtherWrite, ...] = ()


@dataclass(frozen=True)
class TransactionState:
    """What another process needs in order to go on with a transaction. Pickles.

    `mark` is the timeline as it was when it began. What may have ended it is in the log since then; what may be in its
    way has completed since what it has `seen`.
    """

    instant: str
    action: str
    operation_id: str
    mark: Mark
    began_ms: int
    read: EarlierRead | None = None

    @property
    def seen(self) -> Mark:
        """The timeline that its rows are computed from."""
        return self.mark if self.read is None else self.read.mark
