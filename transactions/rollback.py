"""Rollback: of aborted transactions by their owner, of dead ones by whoever comes next, each once.

A rollback is decided first and carried out afterwards. Its place in the commit log decides against the victim's own
commit: whichever slot comes first wins. What follows can be done again by anybody, any number of times: remove the
victim's files, remove its timeline files, complete the rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from lakelatch.errors import CorruptTable, TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.contract import heartbeat_path, least_age_ms
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.storage.contract import NotFound, SupportsSweep
from lakelatch.timeline import actions
from lakelatch.timeline.log.events import COMPLETE, ROLLBACK, Event
from lakelatch.timeline.log.log_reader import LogMoved, Tail
from lakelatch.timeline.log.lost_completions import ensure_none_lost
from lakelatch.timeline.log.whole_timeline import find_archived
from lakelatch.timeline.metadata import RollbackMetadata, RollbackPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.timeline import COMPLETED, TIMELINE_FOLDER, Instant, inflight, parse_file_name, requested
from lakelatch.transactions.attempt import Deciding, run, table_lock
from lakelatch.transactions.base.context import MemoryCheck, TransactionContext
from lakelatch.transactions.base.outcome import GivenUp
from lakelatch.transactions.claims import clean_up
from lakelatch.transactions.early.notes import noted_instants
from lakelatch.transactions.markers.direct import Markers, bar, instants_with_markers, marked_instants, open_instants
from lakelatch.transactions.undoing import RestoreBusy, Restoring, remove_compacted_logs

_STAGED_FOR_S = 86_400.0  # far above any put
_UNKNOWN_ACTION = actions.DELTA_COMMIT  # of an instant that has nothing but its claim


class Recovery:
    """The rollbacks of one table."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self._storage = context.storage

    def recover(self) -> list[str]:
        """Finishes rollbacks whose executor died, rolls back dead writes, and removes what ended ones left behind.

        Errors: `CorruptTable` if what looks dead has completed, as the log says, and its completed file is gone.
        """
        context = self._context
        tail, beating, noted, marked = self._look_at_all()
        context.folder.refresh(tail.number, tail.listing)
        for undone in context.log.projections.undone(context.folder.listing):
            self._storage.delete(undone.path)
        self._forget_aborted()
        pending = context.folder.pending()
        plans = {instant.requested for instant in pending if instant.action in actions.PLANNED_SERVICES}
        suspects = {instant.requested for instant in pending} - plans
        suspects |= (beating | noted | marked).difference(instant.requested for instant in pending) | (plans & beating)
        dead = set(context.observer.dead(sorted(suspects)))
        rolled_back = []
        for instant in pending:
            if instant.requested in dead and instant.action == actions.ROLLBACK and self._is_left(instant):
                rolled_back += self.finish(instant.requested)
            if instant.requested in dead and instant.action == actions.RESTORE:
                rolled_back += self._finish_restore(instant.requested)
        abortable = [one for one in pending if one.requested in dead and one.action in actions.WRITE_ACTIONS]
        if abortable:  # one of them may have completed, and somebody has removed its completed file
            ensure_none_lost(context.log, tail, since=min(one.requested for one in abortable))
        for instant in abortable:
            if self.roll_back(instant.requested, instant.action):
                rolled_back.append(instant.requested)
        for left in self._not_pending(dead.difference(instant.requested for instant in pending)):
            if self._has_ended(left, context.log.tail()):
                self.bar_unless_completed(left, Markers(self._storage, left).announced())
                clean_up(context, left, left in noted)
            elif self.roll_back(left, _UNKNOWN_ACTION):
                rolled_back.append(left)
        for plan in context.observer.dead(sorted(dead & plans)):  # asked again: it may have been taken over meanwhile
            self._storage.delete(heartbeat_path(plan))
        if isinstance(self._storage, SupportsSweep):
            self._storage.sweep(_STAGED_FOR_S)
        return rolled_back

    def _look_at_all(self) -> tuple[Tail, set[str], set[str], set[str]]:
        """The tail with the timeline, and the instants that have a heartbeat, notes, markers or an opening.

        In any order: whom one of these looks suspects is asked for a heartbeat again, and then the log.
        """
        log, storage = self._context.log, self._storage
        tail = log.tail()
        looked: list[Tail] = []
        beating: set[str] = set()
        noted: set[str] = set()
        marked: set[str] = set()
        storage.together(
            lambda: looked.append(log.look(tail)),
            lambda: beating.update(self._context.observer.instants()),
            lambda: noted.update(noted_instants(storage)),
            lambda: marked.update(instants_with_markers(storage)),
            lambda: marked.update(open_instants(storage)),
        )
        return looked[0], beating, noted, marked

    def finds_nobody(self, check: MemoryCheck | None = None) -> bool:
        """Whether nothing is pending but plans, and nobody has a claim; two listings, and none of what others left.

        Who leaves anything else behind that matters leaves one of these two as well. `check` has made them both.
        """
        context, last = self._context, self._context.log.last
        if last is None:
            return False
        if check is not None:
            claims, listing = check.claims, check.listing
        else:
            context.log.ensure_projected(last)
            claimed, listed = list[str](), list[Snapshot]()
            context.storage.together(
                lambda: claimed.extend(context.observer.instants()),
                lambda: listed.append(context.log.projections.list_timeline()),
            )
            claims, listing = frozenset(claimed), listed[0]
            context.folder.refresh(last.number, listing)
        if claims:
            return False
        begun = (one for one in context.folder.pending() if one.action not in actions.PLANNED_SERVICES)
        return (
            next(begun, None) is None and not context.folder.aborted() and not context.log.projections.undone(listing)
        )

    def roll_back(self, victim: str, action: str) -> bool:
        """Rolls one instant back; False if it has completed, or somebody else's rollback has seen to it."""
        with table_lock(self._context) as lease:
            operation_id = self._context.system.new_id()

            def decide(tail: Tail) -> Event | GivenUp[str]:
                self._context.folder.refresh(tail.number, tail.listing)
                ended = self._why_not_abortable(victim, tail)
                if ended:
                    return GivenUp(ended)
                nonlocal action  # of a claim nobody knows it before the instant is on the timeline
                begun = (one.action for one in self._context.folder.pending() if one.requested == victim)
                found = next(begun, action)
                if found not in (action, *actions.WRITE_ACTIONS):
                    return GivenUp(f"{victim} is a {found} that has begun meanwhile")
                action = found
                plan = RollbackPlan(victim, action, tuple(Markers(self._storage, victim).announced()))
                return Event(
                    ROLLBACK,
                    actions.ROLLBACK,
                    "",
                    operation_id,
                    self._context.writer,
                    target=victim,
                    content=plan.to_avro(),
                    token=lease.token,
                )

            event = run(self._context, Deciding(decide, above=victim, claims_as=operation_id), lease)
        if isinstance(event, GivenUp):
            return False
        failpoint("rollback.after_slot")
        self._carry_out(event.instant, victim, action)
        return True

    def bar_unless_completed(self, instant: str, announced: list[str]) -> None:
        """Bars the announced files of an instant that has ended without completing.

        Rollbacks of ours have done so before. One of Java's, which is in no log, may have come before the files did.
        """
        context = self._context
        tail = context.log.look(context.log.tail()) if announced else None
        if tail is None:
            return
        context.folder.refresh(tail.number, tail.listing)
        completed = context.folder.snapshot.has_completed(instant)
        if not completed and find_archived(self._storage, context.folder.names, instant) is None:
            for path in announced:
                bar(self._storage, path)

    def _forget_aborted(self) -> None:
        """Removes the timeline files of plans that were cancelled: a late request made them, or a crash left them."""
        for over in self._context.folder.aborted():
            for left in (inflight(over.requested, over.action), requested(over.requested, over.action)):
                if self._context.folder.has(left):
                    self._storage.delete(left.path)

    def _why_not_abortable(self, victim: str, tail: Tail) -> str:
        """Under the log: "" if the instant has not ended, and no other rollback is ending it."""
        folder = self._context.folder
        pending = {instant.requested: instant for instant in folder.pending()}
        if victim not in pending and self._has_ended(victim, tail):
            return f"{victim} has ended"
        # A listing during an archiver's deletions may show the requested file and lack the completed one.
        if find_archived(self._storage, folder.names, victim) is not None:
            return f"{victim} has completed, and was archived"
        for instant in pending.values():
            plan = self._plan(instant.requested) if instant.action == actions.ROLLBACK else None
            if plan is not None and plan.instant == victim:
                return f"{victim} is being rolled back by {instant.requested}"
            rollbacks = self._context.log.projections.rollbacks
            if instant.action == actions.RESTORE and victim in rollbacks.targets_of(instant.requested, folder.listed):
                return f"{victim} is being undone by {instant.requested}"
        return ""

    def _is_left(self, rollback: Instant) -> bool:
        """Whether a rollback's executor is gone. Java's have no heartbeat, so the age of their last file decides."""
        if self._context.observer.beat_of(rollback.requested) is not None:
            return True  # it is one of ours, and counts as dead
        try:
            modified_ms = self._storage.stat(rollback.path).modified_ms
        except NotFound:
            return False
        age_ms = least_age_ms(self._context.observer.storage_time_ms(), modified_ms)
        return age_ms > self._context.settings.heartbeat.expiry_ms

    def _finish_restore(self, restore: str) -> list[str]:
        """What it has undone. Java's have no claim, and stay: only Java knows whether its process lives."""
        if self._context.observer.beat_of(restore) is None:
            return []
        try:
            return [one.instant for one in Restoring(self._context).finish(restore).rollbacks]
        except (RestoreBusy, TransactionEnded):  # others were faster
            return []

    def finish(self, rollback: str) -> list[str]:
        """Carries out a rollback that is on the timeline, from where it broke; returns what it undoes.

        One whose victim has completed since its requested time, or was archived, is taken away instead: Java would
        carry it out, and undo what somebody was told is committed. So is one whose executor died while writing its
        plan, as Java does, and one of a run of a service that has completed before the rollback began: Java passes over
        it, and the run counts.
        """
        plan = self._plan(rollback)
        left = partial(self._is_unreadable, rollback) if plan is None else partial(self._is_overtaken, rollback, plan)
        if left(self._storage.names(TIMELINE_FOLDER)):
            self._withdraw(rollback, left)
            return []
        if plan is None:
            return []
        self._carry_out(rollback, plan.instant, plan.action, plan)
        return [plan.instant]

    def _carry_out(self, rollback: str, victim: str, action: str, plan: RollbackPlan | None = None) -> None:
        """`plan`: that of an executor that died. Java's may be of what has completed, and alone know its files."""
        context = self._context
        if not self._storage.exists(requested(rollback, actions.ROLLBACK).path):
            return  # others have finished it since, and yet others have archived it
        ensure_created(self._storage, inflight(rollback, actions.ROLLBACK).path, b"", context.system)
        failpoint("rollback.after_plan")
        listed = map(parse_file_name, context.folder.listed) if plan is not None else ()
        for done in (one for one in listed if one is not None and one.requested == victim and one.completion):
            self._storage.delete(done.path)
        known = [*(plan.files if plan is not None else ()), *self._unmarked(victim, action)]
        self._storage.delete(heartbeat_path(victim))  # bars the victim's tasks
        markers = Markers(self._storage, victim)
        markers.close_all()
        removed = markers.close_and_sweep()
        removed += self._remove_foreign(victim, known, set(removed))
        removed += remove_compacted_logs(self._storage, victim)
        failpoint("rollback.after_files")
        for pending in (action, *(actions.PENDING_OF.get(action, ()) if plan is not None else ())):
            self._storage.delete(inflight(victim, pending).path)
            self._storage.delete(requested(victim, pending).path)
        self._complete(rollback, RollbackMetadata(rollback, victim, action, tuple(removed)))
        failpoint("rollback.after_completed")
        clean_up(context, victim)
        clean_up(context, rollback)

    def _is_overtaken(self, rollback: str, plan: RollbackPlan, names: Collection[str]) -> bool:
        """Whether its own executor has come back, or its victim has completed: before its plan came, or once more."""
        victim = plan.instant
        if find_archived(self._storage, names, victim) is not None:
            return True
        waiting = self._context.log.projections.rollbacks.is_waiting(rollback, names)
        completions = {rollback: "", victim: "" if waiting else rollback}  # and what a completion must be above
        for found in (one for one in map(parse_file_name, names) if one is not None and one.completion):
            if found.requested in completions and (found.completion or "") > completions[found.requested]:
                return True
        return False

    def _withdraw(self, rollback: str, wanted: Callable[[Collection[str]], bool]) -> None:
        """Takes a rollback off the timeline, unless it has completed, or that is not `wanted` any more by the names.

        Its claim is the witness of the requested file, so it goes first; the requested file goes last, since an
        inflight one without it could not be read.
        """
        with table_lock(self._context):
            names = self._storage.names(TIMELINE_FOLDER)
            found = [one for one in map(parse_file_name, names) if one is not None]
            mine = sorted((one for one in found if one.requested == rollback), key=lambda one: one.state)
            if all(one.state != COMPLETED for one in mine) and wanted(names):
                clean_up(self._context, rollback)
                for one in mine:  # by state, inflight first
                    self._storage.delete(one.path)

    def _unmarked(self, victim: str, action: str) -> list[str]:
        """The data files of an instant without markers, by their names: a walk over the table.

        A foreign one has none (any more), and a clustering's files begin file groups, so that it needs none.
        """
        beating = self._context.observer.beat_of(victim) is not None
        if action not in actions.SERVICES_THAT_REPLACE and (beating or victim in marked_instants(self._storage)):
            return []
        paths = (path for path in self._storage.walk("") if not path.startswith(".hoodie/"))
        return [path for path in paths if victim in path.rpartition("/")[2]]

    def _remove_foreign(self, victim: str, known: list[str], swept: set[str]) -> list[str]:
        """Removes what no marker names; says which. What is empty is a tombstone of ours, and stays."""
        removed = []
        for path in sorted(set(known) - swept):
            try:
                if victim in path.rpartition("/")[2] and self._storage.stat(path).size_bytes:
                    bar(self._storage, path)
                    removed.append(path)
            except NotFound:
                continue
        return removed

    def _complete(self, rollback: str, metadata: RollbackMetadata) -> None:
        context = self._context
        operation_id = context.system.new_id()
        with table_lock(context) as lease:

            def decide(tail: Tail) -> Event | GivenUp[str]:
                context.folder.refresh(tail.number, tail.listing)
                if not context.folder.has(requested(rollback, actions.ROLLBACK)):  # archived since it was looked for
                    self._storage.delete(inflight(rollback, actions.ROLLBACK).path)
                    return GivenUp(f"{rollback} has been archived")
                if all(instant.requested != rollback for instant in context.folder.pending()):
                    return GivenUp(f"{rollback} has completed")
                return Event(
                    COMPLETE,
                    actions.ROLLBACK,
                    rollback,
                    operation_id,
                    context.writer,
                    content=metadata.to_avro(),
                    token=lease.token,
                )

            run(context, Deciding(decide, above=rollback), lease)

    def _plan(self, rollback: str) -> RollbackPlan | None:
        """The plan of a pending rollback; None if others have ended it since, or are still writing it.

        Errors: `CorruptTable` if it is lost.
        """
        path = requested(rollback, actions.ROLLBACK).path
        try:
            return RollbackPlan.read(self._storage, path)
        except CorruptTable:
            if not self._is_unreadable(rollback, self._storage.names(TIMELINE_FOLDER)):
                raise
            return None
        except NotFound:
            if not self._storage.exists(inflight(rollback, actions.ROLLBACK).path):
                return None
            raise CorruptTable(f"rollback {rollback} is pending and its plan {path} is missing") from None

    def _is_unreadable(self, rollback: str, names: Collection[str]) -> bool:
        return self._context.log.projections.rollbacks.is_unreadable(rollback, names)

    def _not_pending(self, dead: set[str]) -> list[str]:
        """Those that are not pending now either: one that began after our listing may be in the middle of a rollback.

        Its markers are what that rollback finds its files by.
        """
        if not dead:
            return []
        tail = self._context.log.tail()
        self._context.folder.refresh(tail.number, tail.listing)
        pending = self._context.folder.pending()
        try:
            plans = [self._plan(one.requested) for one in pending if one.action == actions.ROLLBACK]
        except CorruptTable:  # whoever finishes that rollback says so; until then nobody knows whose markers it needs
            return []
        victims = {plan.instant for plan in plans if plan is not None}
        return sorted(dead.difference(victims, (instant.requested for instant in pending)))

    def _has_ended(self, instant: str, tail: Tail) -> bool:
        """Whether the log bars the commit of an instant that is not on the timeline.

        It may be between its claim and its requested file, and only slow. Its markers must not go before the log says
        that it is aborted: a beat under way could bring its claim back, and it would commit without them. While its
        claim is there, so are the slots that its commit would be checked against.
        """
        beat = self._context.observer.beat_of(instant)
        if beat is None or beat.start_slot + 1 < tail.watermark:
            return True
        try:
            events = self._context.log.events_after(beat.start_slot, tail)
        except LogMoved:
            return True
        return any(event.ends(instant) for event in events)
