"""Taking back what has completed: a rollback of one instant, and a restore, which undoes several.

The slot decides. It names the completed files that go, and they are off the timeline before anybody adds another slot,
so whoever commits afterwards does so on what is left. What follows only tidies up, and anybody may do it again: no name
of an undone instant is ever used for another one, so a process that was paused for hours removes nothing but that.

A restore goes through its instants in the order of its plan, the last completed one first: another engine's reader
finds the table as it was at some moment, whenever it looks, as far as cleans have left that. Ours know what goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakelatch.errors import InvariantBroken, TransactionEnded, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat, stopped_on_error
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import LOG_COMPACTION, RESTORE, SAVEPOINT
from lakelatch.timeline.log.events import PLAN, Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.metadata import CompactionPlan, FileGroup, RollbackMetadata
from lakelatch.timeline.plans.compacted_logs import compacted_log_name
from lakelatch.timeline.plans.restore_plan import RestoreMetadata, RestorePlan
from lakelatch.timeline.timeline import (
    COMPLETED,
    TIMELINE_FOLDER,
    Instant,
    TimelineFolder,
    inflight,
    parse_file_name,
    requested,
)
from lakelatch.transactions.attempt import Deciding, run, table_lock
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import GivenUp
from lakelatch.transactions.claims import clean_up, heartbeat_of
from lakelatch.transactions.commit import append_service_completion
from lakelatch.transactions.markers.direct import Markers, bar


@dataclass(frozen=True)
class Undo:
    """What a rollback or restore takes off the timeline: `completed` are the instants, the last completed one first."""

    plan: bytes
    completed: tuple[Instant, ...]
    target: str | None = None
    file_groups: frozenset[FileGroup] = frozenset()


def append_undo(
    context: TransactionContext, kind: str, action: str, build: Callable[[TimelineFolder], Undo], above: str = ""
) -> tuple[str, str]:
    """Adds the slot of a rollback or restore; its requested time, and the operation that has claimed it.

    `build` sees the timeline as it is before the place in the log, may be called several times, and refuses by raising:
    then nothing has changed.
    """
    operation_id = context.system.new_id()

    def decide(tail: Tail) -> Event:
        context.folder.refresh(tail.number, tail.listing)
        undo = build(context.folder)
        return Event(
            kind,
            action,
            "",
            operation_id,
            context.writer,
            undo.file_groups,
            target=undo.target,
            content=undo.plan,
            token=lease.token,
            undoes=tuple(instant.file_name for instant in undo.completed),
        )

    with table_lock(context) as lease:
        event: Event | GivenUp[None] = run(context, Deciding(decide, above, operation_id), lease)
    if isinstance(event, GivenUp):
        raise InvariantBroken(f"a {action} was given up")  # `build` raises where nothing is to be done
    return event.instant, operation_id


class RestoreBusy(Unavailable):
    """Another live process carries out this restore."""


class Restoring:
    """Carries out the restores of one table."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self._storage = context.storage

    def run(self, build: Callable[[TimelineFolder], Undo]) -> RestoreMetadata:
        """Plans a restore and carries it out. Errors: those of `build`, with nothing changed; those of `finish`."""
        restore, operation_id = append_undo(self._context, PLAN, RESTORE, build)
        failpoint("restore.after_slot")
        return self.finish(restore, operation_id)

    def finish(self, restore: str, operation_id: str = "") -> RestoreMetadata:
        """Carries out a restore that is on the timeline, from where it broke. `operation_id`: of a claim of ours.

        Errors: `RestoreBusy` while another live process works on it, `TransactionEnded` if one has completed it.
        """
        context = self._context
        tail = context.log.tail()
        context.log.project(tail)
        context.folder.refresh(tail.number)
        if all(
            pending.requested != restore for pending in context.folder.pending()
        ):  # a claim after its end would stay
            raise TransactionEnded(f"restore {restore} has completed, or was archived", instant=restore)
        began_ms = context.system.realtime_ms()
        operation = operation_id or context.system.new_id()
        state = TransactionState(restore, RESTORE, operation, tail.number, began_ms, frozenset())
        heartbeat = self._claim(state, own=bool(operation_id))
        with stopped_on_error(heartbeat):
            failpoint("restore.after_claim")
            ensure_created(self._storage, inflight(restore, RESTORE).path, b"", context.system)
            if not self._storage.exists(requested(restore, RESTORE).path):  # looked for last: nobody brings it back
                self._storage.delete(inflight(restore, RESTORE).path)
                raise TransactionEnded(f"restore {restore} has completed, and was archived", instant=restore)
            heartbeat.start()
            plan = RestorePlan.read(self._storage, requested(restore, RESTORE).path)
            rollbacks = self._undo(restore, plan)
            metadata = RestoreMetadata(restore, rollbacks, context.system.realtime_ms() - began_ms)
            append_service_completion(context, state, lambda _: metadata.to_avro())
            failpoint("restore.after_completed")
        heartbeat.stop()
        clean_up(context, restore)
        return metadata

    def _claim(self, state: TransactionState, own: bool) -> Heartbeat:
        heartbeat = heartbeat_of(self._context, state)
        if own and not heartbeat.owns_claim():
            raise TransactionEnded(f"restore {state.instant} was finished by others meanwhile", instant=state.instant)
        if own or not heartbeat.claim():
            if not own and state.instant not in self._context.observer.dead([state.instant]):
                raise RestoreBusy(
                    f"restore {state.instant} is being carried out by another process: wait for it",
                    instant=state.instant,
                )
            heartbeat.take_over()
        return heartbeat

    def _undo(self, restore: str, plan: RestorePlan) -> tuple[RollbackMetadata, ...]:
        found = files_of(self._context, plan.requested_times)
        rollbacks = []
        for victim, action in plan.instants:
            removed = take_away(self._context, victim, found.get(victim, ()))
            rollbacks.append(RollbackMetadata(restore, victim, action, tuple(removed)))
            failpoint("restore.after_instant")
        return tuple(rollbacks)


def files_of(context: TransactionContext, instants: Iterable[str]) -> dict[str, list[str]]:
    """The data files of each of these instants, by their names: one walk over the table."""
    wanted, found = set(instants), dict[str, list[str]]()
    for path in context.storage.walk(""):
        if path.startswith(".hoodie/"):
            continue
        name = path.rpartition("/")[2]
        for victim in (one for one in wanted if one in name):
            found.setdefault(victim, []).append(path)
    return found


def take_away(context: TransactionContext, victim: str, paths: Iterable[str]) -> list[str]:
    """Removes an instant's completed file, then its data files, then the rest of it; says which data files.

    Log files get tombstones: a request that made one may arrive once more, and readers that have the instant on their
    timeline find the name in place, and stop, where a missing one would be a row that was never there.
    """
    storage = context.storage
    mine = [
        one
        for one in map(parse_file_name, storage.names(TIMELINE_FOLDER))
        if one is not None and one.requested == victim and one.action != SAVEPOINT
    ]
    for one in (one for one in mine if one.state == COMPLETED):
        storage.delete(one.path)
    storage.delete(heartbeat_path(victim))  # bars the tasks of one that is at work
    markers = Markers(storage, victim)
    markers.close_all()
    removed = set(markers.close_and_sweep())
    for path in sorted(set(paths) - removed):
        try:
            if storage.stat(path).size_bytes:
                bar(storage, path)
                removed.add(path)
        except NotFound:
            continue
    removed.update(remove_compacted_logs(storage, victim))
    for one in sorted((one for one in mine if one.state != COMPLETED), key=lambda one: one.state):  # inflight first
        storage.delete(one.path)
    clean_up(context, victim)
    return sorted(removed)


def remove_compacted_logs(storage: Storage, instant: str) -> list[str]:
    """Removes what the log compaction of this requested time has made, or may have: files named by its runs, and not by
    its own time.

    They are only deleted, since another log compaction may need the name. Its plan must still be there.
    """
    plan = requested(instant, LOG_COMPACTION)
    try:
        operations = CompactionPlan.read(storage, plan.path).operations
    except NotFound:
        return []
    runs = [(one.partition, one.delta_files[-1]) for one in operations if one.delta_files]
    made = [path_below(partition, compacted_log_name(last)) for partition, last in runs]
    there = [path for path in made if storage.exists(path)]
    for path in there:
        storage.delete(path)
    return there
