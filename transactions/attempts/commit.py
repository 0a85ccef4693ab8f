"""Commits as intents of the loop of attempts: of what has files, and of services that write no rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from lakelatch.errors import CommitUnknown, InvalidRequest, InvariantBroken
from lakelatch.failpoints import failpoint
from lakelatch.timeline.history.same_table import ensure_there
from lakelatch.timeline.log.events import COMPLETE, WITHDRAW, Event
from lakelatch.timeline.log.lock_names import WrongLocks
from lakelatch.timeline.metadata import CHANGES_KEY, FileGroup
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.cancellation import request_cancel
from lakelatch.transactions.attempts.checks import At, Check, written_since
from lakelatch.transactions.attempts.earlier_reads import earlier_read
from lakelatch.transactions.attempts.fate import ended
from lakelatch.transactions.attempts.group import Turn, found_completed
from lakelatch.transactions.attempts.intent import Deciding, Intent, Look, Place, added
from lakelatch.transactions.attempts.ready_commit import GroupMember, ready_commit
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import (
    Added,
    Cancel,
    Changed,
    Committed,
    Conflicted,
    Counted,
    Displaced,
    Ended,
    GivenUp,
    Outcome,
    Retry,
    Staged,
    Verdict,
)
from lakelatch.transactions.base.ready import record_path, remove_record
from lakelatch.transactions.conflicts.contract import Conflict
from lakelatch.transactions.conflicts.report import write_conflict
from lakelatch.transactions.several.part import Part

_log = logging.getLogger("lakelatch.transactions")


class Owner(Protocol):
    """A transaction, as its commit has it see to its files and to its end."""

    state: TransactionState
    record: str | None  # where the record of the commit lies, if one was left for others

    def close(self, keep: Iterable[str], look: Look) -> Conflicted | Ended | None:
        """Sees to it that these are there, and that no others are, nor will be, while the look asks what it wants."""
        ...

    def reopen(self) -> None:
        """Lets tasks make files again. Errors: `TransactionEnded`."""
        ...

    def tidy(self, made: Iterable[str]) -> None:
        """Removes what announced these and others, once the commit can be seen. Raises nothing."""
        ...

    def claim_next(self, event: Event) -> Sequence[Callable[[], None]]:
        """Requests that claim the time of the next write, if the table stays open for it; they raise nothing."""
        ...

    def announce_next(self, made: Sequence[str]) -> Sequence[Callable[[], None]]:
        """Requests that announce the files of the next write, if it was claimed and goes where this one went."""
        ...

    def end(self, outcome: Outcome, made: Iterable[str], keep: bool) -> Outcome:
        """Ends as the commit has ended; what is left is said by the outcome."""
        ...


class Commit(Intent[Outcome]):
    """The commit of a transaction's files, held against each tail of the log that it might follow."""

    tries_first = True

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self._turn: Turn | None = None
        self._part: Part[Commit] | None = None  # of a transaction over several tables
        self._followed_by: tuple[Event, ...] = ()  # later changes of the same table in it, at the last place
        self._has_read: TransactionState | None = None  # as what is held against all that others have written since

    def start(
        self,
        owner: Owner,
        staged: Staged,
        checks: Sequence[Check],
        relocate: Callable[[Displaced], Staged] | None = None,
        keep_files: bool = False,
        member: GroupMember | None = None,
        part: Part[Commit] | None = None,
    ) -> Commit:
        """The same, ready for the files of this transaction. As a `member` of a group, others may commit it; as a
        `part` of a transaction over several tables it counts if all of them do.

        `relocate` makes files elsewhere where they were displaced, and stages those; without it `Displaced` is the
        outcome. `keep_files`: those of a commit that lost stay, for another one.
        """
        self._owner, self._checks, self._relocate, self._keep_files = owner, checks, relocate, keep_files
        self._decided = self._staged = staged
        self._closed, self.above = False, owner.state.instant
        self._member, self._turn, self._withdrawn, self._part = member, None, False, part
        return self

    @property
    def _made(self) -> list[str]:
        """The paths of the files that are committed, unless checks leave some out."""
        return [stat.path for stat in self._staged.metadata.stats]

    def prepare(self, look: Look) -> Added | Verdict | None:
        """Closes, but for a commit that has been closed and goes on after it has cancelled plans."""
        if self._closed:
            return None
        self._closed = True
        if self._part is not None and self._part.has_read is not None:
            self._has_read = self._since_read(self._part.has_read)
        return self._owner.close(self._made, look)

    def _since_read(self, mark: Mark) -> TransactionState:
        """The transaction as what is held against all that was written since a read, which may be its own or later."""
        state = self._owner.state
        if mark.slot >= state.mark.slot:
            return replace(state, mark=mark, read=None)
        return state if state.read is not None else replace(state, read=earlier_read(self._context, mark, state.mark))

    def queue(self) -> Turn | None:
        """Leaves the commit's record, once, unless others cannot decide it."""
        may_leave = self._part is None and not self._withdrawn and self._context.elision.groups
        if self._turn is None and self._member is not None and may_leave:
            state = self._owner.state
            record = ready_commit(self._context, state, self._staged.metadata, self._member)
            turn = None if record is None else Turn(self._context, record, self._member)
            if turn is not None:
                self._owner.record = record_path(state.instant)  # before it is there: an error may end this in between
                self._turn = turn if turn.leave() else None
                if self._turn is None:
                    self._owner.record = None
                else:
                    failpoint("group.after_record")
        return self._turn

    def begin_turn(self) -> None:
        failpoint("commit.after_lock")

    def decide(self, place: Place) -> Event | Verdict:
        """The event, if no check finds anything in its way; `Conflict` only of what the log at this tail shows."""
        if self._turn is not None:
            own = found_completed(self._context, self._owner.state, place)
            if own is not None:
                return Counted(own)
        if self._part is not None and self._part.sees is not None:
            place = replace(place, snapshot=place.snapshot.with_files(self._part.sees.files))
        at = At(self._context, self._owner.state, place, self._staged)
        for check in self._checks:
            verdict = check(place.snapshot, at)
            if isinstance(verdict, Changed):
                at.staged = verdict.staged
            elif isinstance(verdict, Conflict):
                return self._conflicted(verdict, at)
            elif verdict is not None:
                return verdict
        if self._has_read is not None:
            conflict = written_since(At(self._context, self._has_read, place, at.staged))
            if conflict is not None:
                return self._conflicted(conflict, at)
        failpoint("commit.after_check")
        self._decided = at.staged = self._naming_others(at.staged)
        content = at.staged.metadata.to_avro()
        event = _completion(self._context, self._owner.state, content, at.staged.groups())
        if self._part is None:
            return event
        if not place.tail.number:  # else a log that is shorter than it was says so
            ensure_there(self._context.storage)
        own = self._part.prepared(event, place.tail.number)
        if own is None:
            return Retry("another part of the transaction tries again")
        return self._followed(own, place) if self._part.leads else own

    def _followed(self, own: Event, place: Place) -> Event | Retry:
        """The event, if nothing is in the way of what follows it in its slot either."""
        events: list[Event] = []
        before = [self._decided.metadata]
        for part, later in self._later():
            found = later.decide(replace(place, owned=None, before=tuple(before)))
            if isinstance(found, Retry):
                return found
            if not isinstance(found, Event):
                part.pass_on(found)
                return Retry("a later change of the same table has to see to something first")
            events.append(found)
            before.append(later._decided.metadata)
        self._followed_by = tuple(events)
        return own

    def _naming_others(self, staged: Staged) -> Staged:
        """The commit, which says what has to be seen with it if others of its transaction come after it in its slot."""
        if self._part is None or self._part.is_last:
            return staged
        parts = [self._part.leader, *self._part.leader.followers]
        instants = [one.write.above for one in parts if one.write is not None]
        extra = {**staged.metadata.extra, CHANGES_KEY: ",".join(instants)}
        return replace(staged, metadata=replace(staged.metadata, extra=extra))

    def _later(self) -> Iterator[tuple[Part[Commit], Commit]]:
        """The changes of the same table that follow this one, whose threads wait."""
        for part in self._part.followers if self._part is not None else ():
            if part.write is None:
                raise InvariantBroken(f"a part of {part.table} follows another one, and writes nothing")
            yield part, part.write

    def others(self) -> Sequence[Event]:
        return self._followed_by

    def part(self) -> Part[Commit] | None:
        return self._part

    def beside_file(self, event: Event) -> Sequence[Callable[[], None]]:
        return self._owner.claim_next(event)

    def beside_last_look(self) -> Sequence[Callable[[], None]]:
        if self._part is not None:
            self._part.show()
        removals = self._turn.removals() if self._turn is not None else ()
        return (partial(self._owner.tidy, self._made), *self._owner.announce_next(self._made), *removals)

    def added(self, event: Event, place: Place) -> Committed:
        if place.watch is not None:
            place.watch.tell_afterwards(place.snapshot.names | {event.file}, event.number)
        events = self._part.events if self._part is not None else ()
        for part, later in self._later():
            own = next(one for one in events if one.operation_id == later._owner.state.operation_id)
            part.pass_on(later.added(own, replace(place, watch=None)))
        return Committed(self.above, event.time, event.number, event.token, self._decided.metadata)

    def counted(self, event: Event, place: Place) -> Committed:
        self._decided = self._staged  # the record's, whatever the last try of its own has made of it
        return self.added(event, place)

    def follow(self, found: Added | Verdict) -> Outcome | None:
        if isinstance(found, Cancel):
            _cancel(self._context, found)
            return None
        changes_files = isinstance(found, Displaced) or (isinstance(found, Conflicted) and self._keep_files)
        if self._turn is not None and (changes_files or isinstance(found, Ended)):
            found = self._withdraw() or found
        if isinstance(found, Displaced) and self._relocate is not None:
            _log.debug("%s: %d file groups were replaced, so rows move", self.above, len(found.successors))
            self._owner.reopen()
            failpoint("relocate.after_reopen")
            self._staged, self._closed = self._relocate(found), False
            return None
        if not isinstance(found, Committed | Conflicted | Displaced | Ended):
            raise InvariantBroken(f"{found} is not what comes of a commit")
        if self._part is not None:
            (self._part.show if isinstance(found, Committed) else self._part.fail)()
        return self._owner.end(found, self._made, self._keep_files)

    def _withdraw(self) -> Committed | None:
        """Has the log say that the record counts no more; the commit if others were faster.

        Only then its files may change, and may a caller hear that it is not committed.
        """
        context, state, owner = self._context, self._owner.state, self._owner

        def decide(place: Place) -> Event | GivenUp[Event | None]:
            own = found_completed(context, state, place)
            if own is not None:
                context.log.conclude(own, place.tail)
                return GivenUp(own)
            if context.log.may_have_ended(state.instant, state.mark.slot, place.tail):
                return GivenUp(None)
            return Event(WITHDRAW, state.action, "", context.system.new_id(), context.writer, target=state.instant)

        event = run(context, Deciding(decide, state.instant))
        own = event.why if isinstance(event, GivenUp) else None
        self._turn, self._withdrawn = None, True
        if own is not None:
            return Committed(state.instant, own.time, own.number, own.token, self._staged.metadata)
        failpoint("group.after_withdrawal")
        if owner.record is not None:
            remove_record(context.storage, owner.record)
            owner.record = None
        return None

    def _conflicted(self, conflict: Conflict, at: At) -> Conflicted | Retry:
        if self._context.log.tail_number() != at.place.tail.number:  # the lock keeps nobody away
            return Retry("what the conflict was found in may be newer than the tail")
        state, watch = self._owner.state, at.place.watch
        lost_s = (self._context.system.realtime_ms() - state.began_ms) / 1000
        found = Conflicted(write_conflict(state.instant, conflict, lost_s, self._staged.work, early=False))
        return found if watch is None else watch.explain(found, at.foreign)


class Completion(Deciding[None]):
    """The end of an instant that writes no rows (a clean, a savepoint, a restore): nothing is in its way.

    `build` makes the content of its completed file from the timeline as it is before its place in the log; it may be
    called several times, and what it raises ends the attempt.
    """

    def __init__(
        self, context: TransactionContext, state: TransactionState, build: Callable[[Snapshot], bytes]
    ) -> None:
        self._context, self._state, self._build = context, state, build
        self.above = state.instant

    def begin_turn(self) -> None:
        failpoint("commit.after_lock")

    def decide(self, place: Place) -> Event | Verdict:
        verdict = ended(self._context, self._state, place)
        if verdict is not None:
            return verdict
        content = self._build(place.snapshot)
        failpoint("commit.after_check")
        return _completion(self._context, self._state, content)


def append_service_completion(
    context: TransactionContext, state: TransactionState, build: Callable[[Snapshot], bytes]
) -> Event:
    """Adds the slot of such an instant. Errors: `TransactionEnded` if others have ended it, `CommitUnknown`."""
    return added(run(context, Completion(context, state, build)))


def _completion(
    context: TransactionContext, state: TransactionState, content: bytes, groups: frozenset[FileGroup] = frozenset()
) -> Event:
    return Event(COMPLETE, state.action, state.instant, state.operation_id, context.writer, groups, content=content)


def _cancel(context: TransactionContext, verdict: Cancel) -> None:
    """Asks for the cancellation of these plans. Whatever comes of it, the next look at the log knows."""
    for plan, part in verdict.plans:
        try:
            request_cancel(context, plan.instant, part)
        except WrongLocks:
            raise
        except (InvalidRequest, CommitUnknown) as error:
            _log.info("%s %s was not cancelled: %s", plan.action, plan.instant, error.message)
