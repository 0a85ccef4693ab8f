"""One commit: held against each tail of the log that it might follow, until its slot is created or it has lost."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from lakelatch.errors import CommitUnknown, TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.locks.lease import Lease
from lakelatch.timeline import actions
from lakelatch.timeline.actions import RESTORE, SERVICES_THAT_REPLACE, WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import HISTORY_NAME, Instant, inflight, is_completed, parse_file_name, requested_time
from lakelatch.timeline.log.commit_log import GivenUp
from lakelatch.timeline.log.events import ABORT, CANCEL, COMPLETE, PLAN, ROLLBACK, Event
from lakelatch.timeline.log.log_reader import LogMoved, Tail
from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.transactions.append import FirstLook, append_completion, in_turn, table_lock, token_of
from lakelatch.transactions.base.cancel_requests import request_of
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import Committed, Conflicted, Displaced, Ended, Outcome, PlanCancelled, Unknown
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.claims import owns_claim
from lakelatch.transactions.conflicts.contract import Conflict, Contender, Others, OtherWrite, completed_writes
from lakelatch.transactions.conflicts.report import Work, write_conflict
from lakelatch.transactions.early.concurrent_writers import ConcurrentWriters
from lakelatch.transactions.foreign import LockWatch
from lakelatch.transactions.pending_plans import InTheWay, plans_in_the_way


@dataclass(frozen=True)
class Resolved:
    """What is committed at a place in the log, and which of the writes completed since count as possible conflicts.

    `conflict` is one that no strategy knows of. `spared` are file groups that the metadata names and that the commit
    leaves alone: they are in nobody's way.
    """

    metadata: CommitMetadata
    considered: list[OtherWrite]
    conflict: Conflict | None = None
    spared: frozenset[FileGroup] = frozenset()


#: Called at the transaction's place in the log, perhaps several times. It sees the timeline as it is before that place,
#: and the writes that have completed since the transaction began.
Resolve: TypeAlias = Callable[[Snapshot, list[OtherWrite]], Resolved | Displaced]


def append_commit(
    context: TransactionContext,
    state: TransactionState,
    metadata: CommitMetadata,
    resolve: Resolve | None,
    work: Work | None,
    first: FirstLook | None = None,
    shown: Callable[[], None] | None = None,
) -> Outcome | InTheWay:
    """Adds the transaction's slot, with the table's lock or without it, or says why not. Cleans nothing up.

    `first`: the first try's look, if it was made. `shown`: called without the lock, when all can see the commit, beside
    the last look at the timeline. `InTheWay`: plans have to be called off first, in slots of their own; then call it
    again. Errors: those of the lock and of the storage, and `OneSidedLock`, with nothing added.
    """

    def decide(tail: Tail) -> Event | GivenUp[Outcome | InTheWay]:
        snapshot = context.snapshots.take(tail)
        others = others_since(context, state, tail, first.owned(tail) if first is not None else None)
        if isinstance(others, Ended):
            return GivenUp(others)
        foreign = others.foreign
        if foreign and watch is None:  # the log has gone on, or somebody writes who knows nothing but the lock
            raise LogMoved("no slot up to this one names some of the writes: read the tail again")
        resolved = Resolved(metadata, []) if resolve is None else resolve(snapshot, others.completed())
        if isinstance(resolved, Displaced):
            return GivenUp(resolved)
        if not cancelled_groups(context, state).isdisjoint(resolved.metadata.replaced_file_groups()):
            return GivenUp(Ended(PlanCancelled.of(state.action, state.instant)))
        groups = (resolved.metadata.file_groups() | resolved.metadata.replaced_file_groups()) - resolved.spared
        considered = others if resolve is None else others.only(resolved.considered)
        waiting = plans_in_the_way(context, Contender(state.instant, state.action, groups))
        if isinstance(waiting, InTheWay):
            return GivenUp(waiting)
        known = resolved.conflict or waiting or undone_since(context, state, groups, others.events)
        conflict = find_conflict(context, state, groups, considered, work or Work.of(metadata), known)
        if conflict is not None:
            if context.log.tail_number() != tail.number:  # the lock keeps nobody away
                raise LogMoved("what the conflict was found in may be newer than the tail: read it again")
            return GivenUp(watch.explain(conflict, foreign) if watch is not None else conflict)
        if watch is not None:
            watch.ensure_both_take_it(foreign, tail)
        failpoint("commit.after_check")
        decided.append((resolved.metadata, snapshot.names))
        token = token_of(watch.lease if watch is not None else None, tail)
        return _completion(context, state, token, resolved.metadata.to_avro(), groups)

    # The last one is that of the slot which is created, with the timeline that it was checked against.
    decided: list[tuple[CommitMetadata, frozenset[str]]] = []
    watch: LockWatch | None = None

    def append(lease: Lease | None) -> Outcome | InTheWay:
        nonlocal watch
        watch = LockWatch(context, lease) if lease is not None else None
        failpoint("commit.after_lock")
        try:
            tried = first.tail() if first is not None and lease is None else None
            event = append_completion(context, decide, state.instant, lease, tried, shown if lease is None else None)
        except CommitUnknown as error:
            return Unknown(error)
        except TransactionEnded as error:  # its slot was created, and a foreign writer rolled it back meanwhile
            return Ended(error)
        if isinstance(event, GivenUp):
            return event.why
        committed, checked = decided[-1]
        if watch is not None:
            watch.tell_afterwards(checked | {event.file}, event.number)
        return Committed(state.instant, event.time, event.number, event.token, committed)

    return in_turn(context, append)


def _completion(
    context: TransactionContext,
    state: TransactionState,
    token: int,
    content: bytes,
    groups: frozenset[FileGroup] = frozenset(),
) -> Event:
    return Event(
        COMPLETE,
        state.action,
        state.instant,
        state.operation_id,
        context.writer,
        file_groups=groups,
        content=content,
        token=token,
    )


def cancelled_groups(context: TransactionContext, state: TransactionState) -> frozenset[FileGroup]:
    """The file groups that a plan in progress has to leave alone by now; at its place in the log, all of them."""
    asked = request_of(context.storage, state.instant, state.action) if state.action in SERVICES_THAT_REPLACE else None
    return frozenset() if asked is None else asked.groups


def append_service_completion(
    context: TransactionContext, state: TransactionState, build: Callable[[Snapshot], bytes]
) -> Event:
    """Adds the slot of an instant that writes no rows (a clean, a savepoint, a restore): nothing is in its way.

    `build` sees the timeline as it is before the instant's place in the log, and may be called several times; what it
    raises ends the attempt, with nothing added. Errors: `TransactionEnded` if others have ended it, `CommitUnknown`.
    """

    def decide(tail: Tail) -> Event | GivenUp[Ended]:
        snapshot = context.snapshots.take(tail)
        others = others_since(context, state, tail)
        if isinstance(others, Ended):
            return GivenUp(others)
        content = build(snapshot)
        failpoint("commit.after_check")
        return _completion(context, state, lease.token, content)

    with table_lock(context) as lease:
        failpoint("commit.after_lock")
        event = append_completion(context, decide, state.instant, lease)
    if isinstance(event, GivenUp):
        raise event.why.error
    return event


class TableOthers(Others):
    """The others of one transaction, at one tail."""

    def __init__(
        self,
        context: TransactionContext,
        state: TransactionState,
        events: list[Event],
        foreign: list[Instant],
        considered: list[OtherWrite] | None = None,
    ) -> None:
        self._context = context
        self._state = state
        self.events = events
        self.foreign = foreign
        self._considered = considered

    def only(self, considered: list[OtherWrite]) -> TableOthers:
        """The same, but of the completed writes those alone."""
        return TableOthers(self._context, self._state, self.events, self.foreign, considered)

    def completed(self) -> list[OtherWrite]:
        if self._considered is not None:
            return self._considered
        slots = frozenset(event.file for event in self.events)
        foreign = [*self.foreign, *archived_since(self._context, self._state, slots)]
        return completed_writes(self._context.storage, still_there(self._context, self.events), foreign)

    def inflight(self, groups: Collection[FileGroup]) -> list[OtherWrite]:
        context = self._context
        writers = ConcurrentWriters(context.storage, self._state.instant, context.strategy.group_part, context.observer)
        return [write for write in writers.on(groups) if write.inflight]


def foreign_writes(context: TransactionContext, state: TransactionState, events: list[Event]) -> list[Instant]:
    """Completed writes since a transaction began that no slot names, in the last snapshot."""
    slots = {event.file for event in events}
    since = context.snapshot.completed_since(state.mark)
    return [found for found in since if found.action in WRITE_ACTIONS and found.file_name not in slots]


def still_there(context: TransactionContext, events: list[Event]) -> list[Event]:
    """The events without the completions that foreign writers have rolled back since.

    What such a commit replaced is live again, and nothing of it is in anybody's way. What was archived counts.
    """
    names = context.snapshot.names
    gone = {event.instant for event in events if event.kind == COMPLETE and event.file not in names}
    if gone:
        gone.difference_update(one for one in list(gone) if context.snapshot.has_completed(one))
        gone.difference_update(History.load(context.storage).find_all(gone))
    return [event for event in events if event.kind != COMPLETE or event.instant not in gone]


def archived_since(context: TransactionContext, state: TransactionState, slots: frozenset[str]) -> list[Instant]:
    """Writes that completed since a transaction began and have left the timeline, but for those of slots' files.

    Free while nothing can have been archived since. What an archiver takes first may be what completed last: it goes by
    requested times.
    """
    names = context.snapshot.names
    if HISTORY_NAME not in names or _kept_all(context, state):
        return []
    files = (instant for instant in map(parse_file_name, state.mark.names) if instant is not None)
    completions = [instant.completion or "" for instant in files]
    began_after = max([state.mark.time, *completions]) if completions else state.instant
    found = History.load(context.storage).instants(WRITE_ACTIONS, after=began_after)
    known = state.mark.names | slots | names
    return [one.instant for one in found if one.instant.file_name not in known]


def _kept_all(context: TransactionContext, state: TransactionState) -> bool:
    """Whether the timeline still has each name that it had when the transaction began, so no archiver has been at work.

    An archiver takes away the oldest first. Only a foreign write can have come and gone unseen, by being the oldest. So
    with a lock that such writers take the history itself is asked, and by a plan, which began before its executor did.
    """
    by_foreign = context.provider.taken_by_hudi
    return bool(state.mark.time) and not by_foreign and not context.snapshot.since(state.mark)[1]


def known_to_plan(snapshot: Snapshot, instant: str, action: str, slot: int) -> Mark:
    """What whoever carries out a plan need not hold against it.

    A service that replaces file groups read them for its plan, so all that has completed since then counts, also if it
    did so before the service began and its slot is gone.
    """
    if action not in SERVICES_THAT_REPLACE:
        return snapshot.mark(slot)
    later = [found for found in snapshot.by_completion if (found.completion or "") > instant]
    names = snapshot.names.difference(found.file_name for found in later)
    return Mark(slot, "", names, names & snapshot.moving)


def others_since(
    context: TransactionContext, state: TransactionState, tail: Tail, owned: bool | None = None
) -> TableOthers | Ended:
    """Who completed since the transaction began, up to this tail; the context's snapshot must be as new.

    `Ended` if one of the events since then, or its absence, has ended the transaction. `owned`: whether its claim was
    there, for a caller who has looked since it closed.
    """
    own = context.snapshot.of(state.instant)
    if any(one.completion is not None and one.file_name not in state.mark.names for one in own):
        return _completed_elsewhere(state)
    owned = owns_claim(context, state.instant, state.operation_id) if owned is None else owned
    if state.mark.slot + 1 < tail.watermark or not owned:
        return _ended(state, "its heartbeat was missed for too long")
    if not context.snapshot.has(inflight(state.instant, state.action)):
        return _ended(state, "its inflight file is gone")
    events = context.log.events_after(state.mark.slot, tail)
    for event in events:
        if event.target == state.instant and (event.kind == ABORT or (event.kind == CANCEL and not event.file_groups)):
            return Ended(PlanCancelled.of(state.action, state.instant))
        if event.kind == COMPLETE and event.instant == state.instant:
            return _completed_elsewhere(state)
        if event.kind == ROLLBACK and event.target == state.instant:
            return _ended(state, f"rollback {event.instant} by {event.writer} aborted it")
        if event.action == RESTORE and event.kind == PLAN:
            return _overtaken(state, f"restore {event.instant} by {event.writer} has taken the table back")
    foreign_restore = _pending_foreign_restore(context)
    if foreign_restore and state.action != RESTORE:
        return _overtaken(state, f"restore {foreign_restore} of another engine is under way, or was left unfinished")
    planned = state.action not in WRITE_ACTIONS  # which others may have begun, and rolled back, before
    snapshot = context.snapshot
    undoers = snapshot.undoers - snapshot.late
    foreign = context.log.projections.rollback_of(state.instant, undoers, pending_only=planned, beginning=True)
    if foreign:
        return _ended(state, f"rollback {foreign} of another engine, which takes no slots, aborted it")
    return TableOthers(context, state, events, foreign_writes(context, state, events))


def undone_since(
    context: TransactionContext, state: TransactionState, groups: frozenset[FileGroup], events: list[Event]
) -> Conflict | None:
    """The rollback of a completed write of these file groups since the transaction began, if that is in its way.

    Under non-blocking control a write has not looked at what was there, so it stands without it; what replaces file
    groups has.
    """
    if context.settings.mode == NON_BLOCKING and state.action not in SERVICES_THAT_REPLACE:
        return None
    for event in (event for event in events if event.kind == ROLLBACK and event.undoes):
        common = context.strategy.common(groups, event.file_groups)
        if common:
            other = OtherWrite(
                event.instant, actions.ROLLBACK, "", event.file_groups, event.writer, event.number, event.time
            )
            return Conflict(other, common)
    return None


def find_conflict(
    context: TransactionContext,
    state: TransactionState,
    groups: frozenset[FileGroup],
    others: Others,
    work: Work,
    known: Conflict | None,
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


def _pending_foreign_restore(context: TransactionContext) -> str:
    """The requested time of a restore that takes no slots and has not completed, or "". Ours have a claim until then.

    Its instants go one after the other, and what is committed meanwhile may stand on one that is still to go.
    """
    snapshot = context.snapshot
    names = [name for name in snapshot.undoers - snapshot.late if f".{RESTORE}" in name]
    done = {requested_time(name) for name in names if is_completed(name)}
    pending = sorted(set(map(requested_time, names)) - done)
    return next((restore for restore in pending if context.observer.beat_of(restore) is None), "")


def _overtaken(state: TransactionState, why: str) -> Ended:
    return Ended(
        TransactionEnded(
            f"transaction {state.instant} cannot be committed any more ({why}), and nothing of it is visible: what it "
            "was based on may be gone, so read the table again and begin a new one",
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
