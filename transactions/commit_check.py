"""What a commit is held against at each tail of the log: whether it was ended, and who completed meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lakelatch.timeline.commit_log import Tail
from lakelatch.timeline.events import COMPLETE, ROLLBACK, Event
from lakelatch.timeline.folder import TimelineFolder
from lakelatch.timeline.instants import WRITE_ACTIONS, inflight
from lakelatch.transactions.conflicts import (
    SERVICES_THAT_REPLACE,
    Contender,
    FileGroup,
    Others,
    OtherWrite,
    completed_writes,
)
from lakelatch.transactions.endings import completed_elsewhere, ended
from lakelatch.transactions.losses import Work, write_conflict
from lakelatch.transactions.rivals import Rivals

if TYPE_CHECKING:
    from lakelatch.transactions.manager import TransactionManager
    from lakelatch.transactions.transaction import TransactionState


class TableOthers(Others):
    """The others of one transaction, at one tail. `considered`, if set, is what its strategy has to look at."""

    def __init__(self, manager: TransactionManager, state: TransactionState, events: list[Event]) -> None:
        self._manager = manager
        self._state = state
        self._events = events
        self.considered: list[OtherWrite] | None = None

    def completed(self) -> list[OtherWrite]:
        if self.considered is not None:
            return self.considered
        manager = self._manager
        known = self._state.known_files | {event.file for event in self._events}
        foreign = [found for found in manager.folder.completed_since(known) if found.action in WRITE_ACTIONS]
        return completed_writes(manager.storage, self._events, foreign)

    def inflight(self, groups: Collection[FileGroup]) -> list[OtherWrite]:
        manager = self._manager
        rivals = Rivals(manager.storage, self._state.instant, manager.strategy.group_part, manager.observer)
        return [rival for rival in rivals.on(groups) if rival.inflight]


def known_to_plan(folder: TimelineFolder, instant: str, action: str) -> frozenset[str]:
    """Names of the timeline that whoever carries out a plan need not hold against it.

    A service that replaces file groups read them for its plan, so all that has completed since then counts, also if it
    did so before the service began and its slot is gone.
    """
    if action not in SERVICES_THAT_REPLACE:
        return folder.names
    later = [found for found in folder.completed_since(frozenset()) if (found.completion or "") > instant]
    return folder.names.difference(found.file_name for found in later)


def others_since(manager: TransactionManager, state: TransactionState, tail: Tail) -> TableOthers:
    """Who completed since the transaction began, up to this tail; the manager's folder must be as new.

    Errors: `TransactionEnded` if one of the events since then, or its absence, ends the transaction.
    """
    if any(found.requested == state.instant for found in manager.folder.completed_since(state.known_files)):
        raise completed_elsewhere(state)
    if state.start_slot + 1 < tail.watermark or not manager.owns_claim(state.instant, state.operation_id):
        raise ended(state, "its heartbeat was missed for too long")
    if not manager.folder.has(inflight(state.instant, state.action)):
        raise ended(state, "its inflight file is gone")
    events = manager.log.events_after(state.start_slot, tail)
    for event in events:
        if event.kind == COMPLETE and event.instant == state.instant:
            raise completed_elsewhere(state)
        if event.kind == ROLLBACK and event.target == state.instant:
            raise ended(state, f"rollback {event.instant} by {event.writer} condemned it")
    return TableOthers(manager, state, events)


def ensure_no_conflict(
    manager: TransactionManager, state: TransactionState, groups: frozenset[FileGroup], others: Others, work: Work
) -> None:
    """Raises `WriteConflict`, with the work that is lost, if the manager's strategy finds one."""
    conflict = manager.strategy.find(Contender(state.instant, state.action, groups), others)
    if conflict is not None:
        lost_s = (manager.system.realtime_ms() - state.began_ms) / 1000
        raise write_conflict(state.instant, conflict, lost_s, work, early=False)
