"""One commit: held against each tail of the log that it might follow, until its slot is created or it has lost."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from lakelatch.errors import CommitUnknown, TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.timeline.actions import SERVICES_THAT_REPLACE, WRITE_ACTIONS
from lakelatch.timeline.commit_log import GivenUp, Tail
from lakelatch.timeline.events import COMPLETE, ROLLBACK, Event
from lakelatch.timeline.history.history import History
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.timeline import HISTORY_NAME, Instant, TimelineFolder, inflight, parse_file_name
from lakelatch.transactions.append import append_completion, table_lock
from lakelatch.transactions.claims import owns_claim
from lakelatch.transactions.conflicts.contract import (
    Conflict,
    Contender,
    FileGroup,
    Others,
    OtherWrite,
    completed_writes,
)
from lakelatch.transactions.conflicts.report import Work, write_conflict
from lakelatch.transactions.context import TransactionContext, TransactionState
from lakelatch.transactions.early.concurrent_writers import ConcurrentWriters
from lakelatch.transactions.foreign import LockWatch
from lakelatch.transactions.outcome import Committed, Conflicted, Displaced, Ended, Outcome, Unknown


@dataclass(frozen=True)
class Resolved:
    """What is committed at a place in the log, and which of the writes completed since count as possible conflicts.

    `conflict` is one that no strategy knows of.
    """

    metadata: CommitMetadata
    considered: list[OtherWrite]
    conflict: Conflict | None = None


#: Called at the transaction's place in the log, perhaps several times. It sees the timeline as it is before that place,
#: and the writes that have completed since the transaction began.
Resolve: TypeAlias = Callable[[TimelineFolder, list[OtherWrite]], Resolved | Displaced]


def append_commit(
    context: TransactionContext,
    state: TransactionState,
    metadata: CommitMetadata,
    resolve: Resolve | None,
    work: Work | None,
) -> Outcome:
    """Takes the table's lock and adds the transaction's slot, or says why not. Cleans nothing up.

    Errors: those of the lock and of the storage, and `OneSidedLock`, with nothing added.
    """

    def decide(tail: Tail) -> Event | GivenUp[Outcome]:
        context.folder.refresh(tail.number)
        others = others_since(context, state, tail)
        if isinstance(others, Ended):
            return GivenUp(others)
        resolved = Resolved(metadata, []) if resolve is None else resolve(context.folder, others.completed())
        if isinstance(resolved, Displaced):
            return GivenUp(resolved)
        groups = resolved.metadata.file_groups() | resolved.metadata.replaced_file_groups()
        considered = others if resolve is None else others.only(resolved.considered)
        foreign = foreign_writes(context, state, others.events)
        conflict = find_conflict(context, state, groups, considered, work or Work.of(metadata), resolved.conflict)
        if conflict is not None:
            return GivenUp(watch.explain(conflict, foreign))
        watch.ensure_both_take_it(foreign, tail)
        failpoint("commit.after_check")
        decided.append(resolved.metadata)
        checked.append(context.folder.names)
        return Event(
            COMPLETE,
            state.action,
            state.instant,
            state.operation_id,
            context.writer,
            file_groups=groups,
            content=resolved.metadata.to_avro(),
            token=lease.token,
        )

    decided: list[CommitMetadata] = []  # the last one is that of the slot which is created
    checked: list[frozenset[str]] = []  # and the timeline that it was checked against
    with table_lock(context) as lease:
        watch = LockWatch(context, lease)
        failpoint("commit.after_lock")
        try:
            event = append_completion(context, decide, state.instant, lease)
        except CommitUnknown as error:
            return Unknown(error)
        except TransactionEnded as error:  # its slot was created, and a foreign writer rolled it back meanwhile
            return Ended(error)
        if isinstance(event, Event):
            watch.tell_afterwards(checked[-1] | {event.file}, event.number)
    if isinstance(event, GivenUp):
        return event.why
    return Committed(state.instant, event.time, event.number, event.token, decided[-1])


class TableOthers(Others):
    """The others of one transaction, at one tail."""

    def __init__(
        self,
        context: TransactionContext,
        state: TransactionState,
        events: list[Event],
        considered: list[OtherWrite] | None = None,
    ) -> None:
        self._context = context
        self._state = state
        self.events = events
        self._considered = considered

    def only(self, considered: list[OtherWrite]) -> TableOthers:
        """The same, but of the completed writes those alone."""
        return TableOthers(self._context, self._state, self.events, considered)

    def completed(self) -> list[OtherWrite]:
        if self._considered is not None:
            return self._considered
        known = self._state.known_files | {event.file for event in self.events}
        foreign = foreign_writes(self._context, self._state, self.events)
        foreign += archived_since(self._context, self._state, known)
        return completed_writes(self._context.storage, still_there(self._context, self.events), foreign)

    def inflight(self, groups: Collection[FileGroup]) -> list[OtherWrite]:
        context = self._context
        writers = ConcurrentWriters(context.storage, self._state.instant, context.strategy.group_part, context.observer)
        return [write for write in writers.on(groups) if write.inflight]


def foreign_writes(context: TransactionContext, state: TransactionState, events: list[Event]) -> list[Instant]:
    """Completed writes since a transaction began that no slot names, in the folder's last listing."""
    known = state.known_files | {event.file for event in events}
    return [found for found in context.folder.completed_since(known) if found.action in WRITE_ACTIONS]


def still_there(context: TransactionContext, events: list[Event]) -> list[Event]:
    """The events without the completions that foreign writers have rolled back since.

    What such a commit replaced is live again, and nothing of it is in anybody's way. What was archived counts.
    """
    names = context.folder.names
    gone = {event.instant for event in events if event.kind == COMPLETE and event.file not in names}
    if gone:
        completed = {instant.requested for instant in context.folder.completed_since(frozenset())}
        gone -= completed
        gone.difference_update(History.load(context.storage).find_all(gone))
    return [event for event in events if event.kind != COMPLETE or event.instant not in gone]


def archived_since(context: TransactionContext, state: TransactionState, known: frozenset[str]) -> list[Instant]:
    """Writes that completed since a transaction began and have left the timeline, but for those of known files.

    Free for a table that has archived nothing. What an archiver takes first may be what completed last: it goes by
    requested times.
    """
    names = context.folder.names
    if HISTORY_NAME not in names:
        return []
    files = (instant for instant in map(parse_file_name, state.known_files) if instant is not None)
    began_after = max((instant.completion or "" for instant in files), default=state.instant)
    found = History.load(context.storage).instants(WRITE_ACTIONS, after=began_after)
    return [one.instant for one in found if one.instant.file_name not in known | names]


def known_to_plan(folder: TimelineFolder, instant: str, action: str) -> frozenset[str]:
    """Names of the timeline that whoever carries out a plan need not hold against it.

    A service that replaces file groups read them for its plan, so all that has completed since then counts, also if it
    did so before the service began and its slot is gone.
    """
    if action not in SERVICES_THAT_REPLACE:
        return folder.names
    later = [found for found in folder.completed_since(frozenset()) if (found.completion or "") > instant]
    return folder.names.difference(found.file_name for found in later)


def others_since(context: TransactionContext, state: TransactionState, tail: Tail) -> TableOthers | Ended:
    """Who completed since the transaction began, up to this tail; the context's folder must be as new.

    `Ended` if one of the events since then, or its absence, has ended the transaction.
    """
    if any(found.requested == state.instant for found in context.folder.completed_since(state.known_files)):
        return _completed_elsewhere(state)
    if state.start_slot + 1 < tail.watermark or not owns_claim(context, state.instant, state.operation_id):
        return _ended(state, "its heartbeat was missed for too long")
    if not context.folder.has(inflight(state.instant, state.action)):
        return _ended(state, "its inflight file is gone")
    events = context.log.events_after(state.start_slot, tail)
    for event in events:
        if event.kind == COMPLETE and event.instant == state.instant:
            return _completed_elsewhere(state)
        if event.kind == ROLLBACK and event.target == state.instant:
            return _ended(state, f"rollback {event.instant} by {event.writer} aborted it")
    planned = state.action not in WRITE_ACTIONS  # which others may have begun, and rolled back, before
    foreign = context.log.projections.rollback_of(state.instant, context.folder.names, pending_only=planned)
    if foreign:
        return _ended(state, f"rollback {foreign} of another engine, which takes no slots, aborted it")
    return TableOthers(context, state, events)


def find_conflict(
    context: TransactionContext,
    state: TransactionState,
    groups: frozenset[FileGroup],
    others: Others,
    work: Work,
    known: Conflict | None = None,
) -> Conflicted | None:
    """What is `known` to be in the way of these file groups, or what the strategy finds, with the work that is lost."""
    conflict = known or context.strategy.find(Contender(state.instant, state.action, groups), others)
    if conflict is None:
        return None
    lost_s = (context.system.realtime_ms() - state.began_ms) / 1000
    return Conflicted(write_conflict(state.instant, conflict, lost_s, work, early=False))


def _completed_elsewhere(state: TransactionState) -> Ended:
    return Ended(
        TransactionEnded(
            f"{state.action} {state.instant} was completed by another process first: nothing is left to do",
            instant=state.instant,
        )
    )


def _ended(state: TransactionState, why: str) -> Ended:
    return Ended(
        TransactionEnded(
            f"transaction {state.instant} was ended by others ({why}), and nothing of it is visible: begin a new one. "
            "If this writer was paused, raise hoodie.client.heartbeat.interval_in_ms",
            instant=state.instant,
        )
    )
