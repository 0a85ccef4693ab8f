"""The checks of a commit at its place in the log, and their order.

Each looks at the timeline as it is before that place, and at what has completed since the transaction began. The first
verdict counts, and what comes after it is not looked at; one that has `Changed` what is committed is no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TypeAlias

from lakelatch.errors import TransactionEnded
from lakelatch.timeline import actions
from lakelatch.timeline.actions import (
    CLUSTER,
    CLUSTERING,
    SERVICE_OPERATIONS,
    SERVICES_THAT_REPLACE,
    WRITE_ACTIONS,
)
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import HISTORY_NAME, Instant, parse_file_name
from lakelatch.timeline.log.events import COMPLETE, ROLLBACK, Event
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.service_plan import ServicePlan
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.transactions.attempts.fate import ended
from lakelatch.transactions.attempts.intent import Place
from lakelatch.transactions.base.cancel_requests import plan_of, request_of
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import Cancel, Changed, Ended, PlanCancelled, Retry, Staged, Verdict
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.conflicts.contract import Conflict, Contender, Others, OtherWrite, completed_writes
from lakelatch.transactions.early.concurrent_writers import ConcurrentWriters


class At(Others):
    """A transaction at a place in the log. Nothing is read before it is asked for, and nothing twice.

    `staged` is what is committed as far as the checks before have decided it. As `Others` it shows a strategy what that
    leaves to it.
    """

    def __init__(
        self,
        context: TransactionContext,
        state: TransactionState,
        place: Place,
        staged: Staged,
        group: tuple[Event, ...] = (),
    ) -> None:
        self.context, self.state, self.place, self.staged = context, state, place, staged
        self.group = group  # completed writes that the same slot commits before this one

    @cached_property
    def events(self) -> list[Event]:
        """What has happened since the transaction began, as the log says. Errors: `LogMoved`."""
        return self.context.log.events_after(self.state.mark.slot, self.place.tail)

    @cached_property
    def foreign(self) -> list[Instant]:
        """Completed writes since then that no slot names."""
        slots = {event.file for event in self.events}
        since = self.place.snapshot.completed_since(self.state.mark)
        return [found for found in since if found.action in WRITE_ACTIONS and found.file_name not in slots]

    @cached_property
    def since(self) -> list[OtherWrite]:
        """All writes that have completed since what the transaction has seen, by completion."""
        foreign = [*self.foreign, *self._archived_since()]
        before = self.state.read.writes if self.state.read is not None else ()
        return [*before, *completed_writes(self.context.storage, [*self._still_there(), *self.group], foreign)]

    def completed(self) -> Sequence[OtherWrite]:
        return self.since if self.staged.possible is None else self.staged.possible

    def inflight(self, groups: Collection[FileGroup]) -> list[OtherWrite]:
        context = self.context
        writers = ConcurrentWriters(context.storage, self.state.instant, context.strategy.group_part, context.observer)
        return [write for write in writers.on(groups) if write.inflight]

    def _still_there(self) -> list[Event]:
        """The events without the completions that foreign writers have rolled back since.

        What such a commit replaced is live again, and nothing of it is in anybody's way. What was archived counts.
        """
        snapshot = self.place.snapshot
        gone = {one.instant for one in self.events if one.kind == COMPLETE and one.file not in snapshot.names}
        if gone:
            gone.difference_update(one for one in list(gone) if snapshot.has_completed(one))
            gone.difference_update(History.load(self.context.storage).find_all(gone))
        return [event for event in self.events if event.kind != COMPLETE or event.instant not in gone]

    def _archived_since(self) -> list[Instant]:
        """Writes that completed since then and have left the timeline, but for those that slots name.

        Free while nothing can have been archived since. What an archiver takes first may be what completed last: it
        goes by requested times.
        """
        state, names = self.state, self.place.snapshot.names
        if HISTORY_NAME not in names or self._kept_all():
            return []
        files = (instant for instant in map(parse_file_name, state.mark.names) if instant is not None)
        completions = [instant.completion or "" for instant in files]
        began_after = max([state.mark.time, *completions]) if completions else state.instant
        found = History.load(self.context.storage).instants(WRITE_ACTIONS, after=began_after)
        known = state.mark.names.union(names, (event.file for event in self.events))
        return [one.instant for one in found if one.instant.file_name not in known]

    def _kept_all(self) -> bool:
        """Whether the timeline still has each name that it had then, so no archiver has been at work.

        An archiver takes away the oldest first. Only a foreign write can have come and gone unseen, by being the
        oldest. So with a lock that such writers take the history itself is asked, and by a plan, which began before its
        executor did.
        """
        state, by_foreign = self.state, self.context.provider.taken_by_hudi
        return bool(state.mark.time) and not by_foreign and not self.place.snapshot.since(state.mark)[1]


#: One check. It is given the timeline as it is before the place in the log.
Check: TypeAlias = Callable[[Snapshot, At], Verdict | Changed | None]


def in_order(own: Sequence[Check] = (), last: Sequence[Check] = ()) -> tuple[Check, ...]:
    """The checks of a commit, with its `own` ones, which decide what it commits, and those that come `last`."""
    return (
        has_not_ended,  # first: of what has ended, nothing else may be said, or done
        is_fenced,  # then: all that follows may lack what no slot names, unless the lock keeps such writers away
        *own,  # what is committed, which everything below is about: its columns, its file groups, what it replaces
        is_not_cancelled,  # as late as can be: a request is looked for in the storage, and needs what is replaced
        no_plan_is_touched,  # before conflicts, of which the cancellation of a plan may be what avoids one
        nothing_was_undone,
        nothing_conflicts,
        both_take_the_lock,  # nothing is in the way, so that this is the only reason
        *last,  # what has an effect: nothing refuses the commit any more but its slot
    )


def has_not_ended(snapshot: Snapshot, at: At) -> Ended | None:
    """Others have ended the transaction, or may have."""
    if any(event.instant == at.state.instant for event in at.group):
        return Ended(TransactionEnded(f"{at.state.instant} is committed by the same slot", instant=at.state.instant))
    return ended(at.context, at.state, at.place)


def is_fenced(snapshot: Snapshot, at: At) -> Retry | None:
    """Some writes are in no slot: the log has gone on, or their writer knows nothing but the lock, and it is free."""
    if at.foreign and at.place.watch is None:
        return Retry("no slot up to this one names some of the writes", needs_lock=True)
    return None


def is_not_cancelled(snapshot: Snapshot, at: At) -> Ended | None:
    """Somebody has asked that file groups are left alone which the plan that is carried out would replace."""
    if cancelled_groups(at.context, at.state).isdisjoint(at.staged.metadata.replaced_file_groups()):
        return None
    return Ended(PlanCancelled.of(at.state.action, at.state.instant))


def no_plan_is_touched(snapshot: Snapshot, at: At) -> Cancel | Conflict | None:
    """Clusterings that wait, or are at work, on the file groups: to be cancelled first, or a conflict.

    A write that comes first and a clustering that goes on would lose rows, so one of the two has to yield. A
    cancellable plan does: whoever writes asks for that as soon as its file groups are known, and takes no notice of the
    plan from then on. An immutable one is to be carried out, and its executor may be one that looks at nobody (Java's),
    so the write yields. What has completed is no plan any more, but a write as any other. Free where no clustering is
    pending.
    """
    context, state, cancellable = at.context, at.state, []
    for pending in (one for one in snapshot.pending if one.action == CLUSTERING):
        plan = plan_of(context.storage, pending) if pending.requested != state.instant else None
        touched = context.strategy.common(plan.groups, at.staged.groups()) if plan is not None else None
        if plan is None or not touched:
            continue
        if not plan.policy.cancellable:
            if _yields_to(plan, at):
                winner = OtherWrite(plan.instant, plan.action, CLUSTER, plan.groups, inflight=True)
                return Conflict(winner, context.strategy.common(at.staged.groups(), plan.groups))
            continue
        if state.action not in WRITE_ACTIONS:  # of two cancellable services, the first to complete wins
            continue
        asked = request_of(context.storage, plan.instant, plan.action)
        if asked is None or not asked.covers(touched):
            cancellable.append((plan, touched if plan.policy.in_part else None))
    return Cancel(tuple(cancellable)) if cancellable else None


def nothing_was_undone(snapshot: Snapshot, at: At) -> Conflict | None:
    """A completed write of the file groups was rolled back since the transaction began.

    Under non-blocking control a write has not looked at what was there, so it stands without it; what replaces file
    groups has.
    """
    if at.context.settings.mode == NON_BLOCKING and at.state.action not in SERVICES_THAT_REPLACE:
        return None
    for event in (event for event in at.events if event.kind == ROLLBACK and event.undoes):
        common = at.context.strategy.common(at.staged.groups(), event.file_groups)
        if common:
            return Conflict(_undoing(event), common)
    return None


def nothing_conflicts(snapshot: Snapshot, at: At) -> Conflict | None:
    """What the table's strategy says of the writes that have completed since, and of those at work."""
    return at.context.strategy.find(Contender(at.state.instant, at.state.action, at.staged.groups()), at)


def written_since(at: At) -> Conflict | None:
    """The first write since the transaction's mark that has changed rows, or a rollback of one, wherever in the table.

    For what has read all of it, and is to be as if it were alone (serializable).
    """
    changes = [write for write in at.since if write.operation_type not in SERVICE_OPERATIONS]
    changes += [_undoing(event) for event in at.events if event.kind == ROLLBACK and event.undoes]
    return Conflict(changes[0], changes[0].file_groups) if changes else None


def both_take_the_lock(snapshot: Snapshot, at: At) -> None:
    """Errors: `OneSidedLock`."""
    if at.place.watch is not None:
        at.place.watch.ensure_both_take_it(at.foreign, at.place.tail)


def cancelled_groups(context: TransactionContext, state: TransactionState) -> frozenset[FileGroup]:
    """The file groups that a plan in progress has to leave alone by now; at its place in the log, all of them."""
    asked = request_of(context.storage, state.instant, state.action) if state.action in SERVICES_THAT_REPLACE else None
    return frozenset() if asked is None else asked.groups


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


def _yields_to(plan: ServicePlan, at: At) -> bool:
    """Whether the contender gives way to an immutable plan.

    Under non-blocking control an executor of ours leaves alone what was written since its plan, or gives up, so only
    one of another engine is in the way: it replaces the file group with all that is in it.
    """
    if at.state.action in WRITE_ACTIONS:
        return at.context.settings.mode != NON_BLOCKING or not plan.policy.planned_against
    return at.state.action in SERVICES_THAT_REPLACE


def _undoing(event: Event) -> OtherWrite:
    """The rollback of a completed write, as what it is in the way of."""
    return OtherWrite(event.instant, actions.ROLLBACK, "", event.file_groups, event.writer, event.number, event.time)
