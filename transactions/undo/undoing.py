"""The steps that a rollback and a restore share: a slot that says what is undone, and the removal of files.

The slot decides. It names the completed files that go, and they are off the timeline before another slot is added, so
later commits build on what is left. The steps after it only remove files, and any process may repeat them: no name of
an undone instant is ever used for another one, so a process that was paused for hours removes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import LOG_COMPACTION, RESTORE, ROLLBACK, SAVEPOINT
from lakelatch.timeline.instant import Instant, parse_file_name, requested
from lakelatch.timeline.log.events import PLAN, Event
from lakelatch.timeline.log.events import ROLLBACK as ROLLBACK_EVENT
from lakelatch.timeline.metadata import CompactionPlan, FileGroup, RollbackPlan
from lakelatch.timeline.plans.compacted_logs import compacted_log_name
from lakelatch.timeline.plans.restore_plan import RestorePlan
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.intent import Deciding, Place, added
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.markers.direct import Markers, sweep_file

Plan = TypeVar("Plan", bound=RollbackPlan | RestorePlan)


@dataclass(frozen=True)
class Undo(Generic[Plan]):
    """A rollback or restore to add. `completed` are the instants that leave the timeline, the last completed first."""

    plan: Plan
    completed: tuple[Instant, ...] = ()
    file_groups: frozenset[FileGroup] = frozenset()


def append_undo(
    context: TransactionContext, build: Callable[[Place], Undo[Plan]], above: str = ""
) -> tuple[Event, Plan]:
    """Adds the slot of a rollback or restore; returns its event, whose operation has claimed it, and its plan.

    `build` may be called several times, for later tails of the log, and refuses by raising: then nothing has changed.
    """
    operation_id = context.system.new_id()
    plans: list[Plan] = []  # the last one is that of the slot

    def decide(place: Place) -> Event:
        undo = build(place)
        plans.append(undo.plan)
        aborts = undo.plan.instant if isinstance(undo.plan, RollbackPlan) else None
        return Event(
            PLAN if aborts is None else ROLLBACK_EVENT,
            RESTORE if aborts is None else ROLLBACK,
            "",
            operation_id,
            context.writer,
            undo.file_groups,
            target=aborts,
            content=undo.plan.to_avro(),
            undoes=tuple(instant.file_name for instant in undo.completed),
        )

    event: Event = added(run(context, Deciding(decide, above, operation_id)))
    return event, plans[-1]


def files_on_timeline(names: Iterable[str], instant: str) -> list[Instant]:
    """An instant's files by a listing, in the order in which they go: completed, inflight, requested. A savepoint of
    this requested time is an instant of its own."""
    found = map(parse_file_name, (name for name in names if name.startswith(instant)))
    mine = (one for one in found if one is not None and one.requested == instant and one.action != SAVEPOINT)
    return sorted(mine, key=attrgetter("state"))


def data_files_of(storage: Storage, instants: Iterable[str]) -> dict[str, list[str]]:
    """The data files of each of these instants, by their names: one walk over the table."""
    wanted, found = set(instants), dict[str, list[str]]()
    for path in storage.walk(""):
        if path.startswith(".hoodie/"):
            continue
        name = path.rpartition("/")[2]
        for victim in (one for one in wanted if one in name):
            found.setdefault(victim, []).append(path)
    return found


def remove_data(storage: Storage, victim: str, found: Iterable[str]) -> list[str]:
    """Removes an instant's data files, also those that are still to come; returns their paths.

    The claim goes first, so that running tasks stop; then the instant takes no more files, and all announced ones are
    swept; then those that no marker names (`found`; files of other instants among them stay). Log files get tombstones:
    a request that made one may arrive again, and readers that still have the instant on their timeline find the name
    and stop, where they would miss rows silently if it were gone.
    """
    storage.delete(heartbeat_path(victim))
    markers = Markers(storage, victim)
    markers.close_all()
    removed = set(markers.close_and_sweep())
    for path in sorted({path for path in found if victim in path.rpartition("/")[2]} - removed):
        try:
            if storage.stat(path).size_bytes:  # what is empty is a tombstone
                sweep_file(storage, path)
                removed.add(path)
        except NotFound:
            continue
    removed.update(_remove_compacted_logs(storage, victim))
    return sorted(removed)


def _remove_compacted_logs(storage: Storage, instant: str) -> list[str]:
    """Removes the files that the log compaction of this requested time may have made; they are named by its runs.

    They are only deleted, since another log compaction may need the name. Its plan must still be there.
    """
    try:
        operations = CompactionPlan.read(storage, requested(instant, LOG_COMPACTION).path).operations
    except NotFound:
        return []
    made = (path_below(one.partition, compacted_log_name(one.delta_files[-1])) for one in operations if one.delta_files)
    there = [path for path in made if storage.exists(path)]
    for path in there:
        storage.delete(path)
    return there
