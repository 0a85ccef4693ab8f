"""Another engine beside the simulated writers, which takes the lock and knows no slots, as Java Hudi is one.

It archives, and it rolls back whatever it finds pending without a heartbeat that is fresh enough, each in Java's order.
"""

from __future__ import annotations

from actors import Actor
from archiver import Archiver, NameTaken
from course import Told
from seams import Place

from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.storage.contract import NotFound, PutUnknown
from lakelatch.testing.faults.plan import carry
from lakelatch.timeline.actions import ROLLBACK, WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.manifest import load_manifest
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, inflight, parse_file_name, requested
from lakelatch.timeline.metadata import RollbackMetadata, RollbackPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.markers.direct import Markers

_LATEST_ARRIVAL_MS = 8_500  # of a request that its caller gave up: what is younger may still be made once more
_RUNS = 4


class _Archiver(Archiver):
    """One that goes on after its own death between a manifest and `_version_`, as Hudi does."""

    def version(self) -> int:
        return load_manifest(self.storage).version

    def files_now(self) -> list[str]:
        return [file.name for file in load_manifest(self.storage).files]


def archive(actor: Actor, place: Place) -> None:
    """Some runs of an archiver, each under the table's lock, and each of all that has completed long enough ago."""
    for _ in range(_RUNS):
        actor.system.sleep(actor.random.random() * 2)
        with actor.provider().acquire(TABLE_KEY, 5.0):
            try:
                _archive_once(actor, place)
            except NameTaken:  # what an earlier run has left is in the way until there is more to archive
                place.count("archive in the way")


def roll_back(actor: Actor, place: Place) -> None:
    """Some looks for dead writers. A rollback that dies on the way is left to our recovery, which knows its plan."""
    for _ in range(_RUNS):
        actor.system.sleep(actor.random.random() * 2)
        for rollback, plan in _plan_rollbacks(actor, place):
            for path in plan.files:
                actor.storage.delete(path)
            for pending in (inflight(plan.instant, plan.action), requested(plan.instant, plan.action)):
                actor.storage.delete(pending.path)
            done = RollbackMetadata(rollback, plan.instant, plan.action, plan.files)
            with actor.provider().acquire(TABLE_KEY, 5.0) as lease:
                timeline = Snapshot.load(actor.storage)
                if any(found.requested == rollback for found in timeline.pending):
                    above = max(rollback, timeline.latest_time)  # the lock service may have forgotten its register
                    time = actor.manager(NON_BLOCKING).context.clock.next(above, lease)
                    actor.storage.put(completed(rollback, ROLLBACK, time).path, done.to_avro())
            actor.storage.delete(heartbeat_path(plan.instant))
            place.count("rolled back by another engine")


def _plan_rollbacks(actor: Actor, place: Place) -> list[tuple[str, RollbackPlan]]:
    context, plans = actor.manager(NON_BLOCKING).context, []
    with actor.provider().acquire(TABLE_KEY, 5.0) as lease:
        timeline = Snapshot.load(actor.storage)
        writes = [one for one in timeline.pending if one.action in WRITE_ACTIONS]
        dead = set(context.observer.dead([one.requested for one in writes]))
        timeline = Snapshot.load(actor.storage)  # once more: what has completed since has no heartbeat either
        writes = list(timeline.pending)
        known = {_target(actor, one.requested) for one in timeline.instants if one.action == ROLLBACK}
        for victim in writes:
            if victim.requested in dead - known:
                rollback = context.clock.next(max(timeline.latest_time, victim.requested), lease)
                files = tuple(Markers(actor.storage, victim.requested).announced())
                plan = RollbackPlan(victim.requested, victim.action, files)
                _announce(actor, place, rollback, plan)
                actor.storage.put(inflight(rollback, ROLLBACK).path, b"")
                plans.append((rollback, plan))
    return plans


def _announce(actor: Actor, place: Place, rollback: str, plan: RollbackPlan) -> None:
    """Puts a plan on the timeline. It counts from when it is there: a request may get lost, or come late.

    Java's requests may as well, and no lock holds them back: whoever commits before one arrives could not know of it.
    """

    def arrive(path: str, data: bytes) -> None:
        place.memory.put(path, data)
        place.rolled_back |= {plan.instant, rollback}
        if any(name.startswith(f"{plan.instant}_") for name in _timeline_names(place)):
            place.count("unfenced")
            place.unfenced.add(plan.instant)

    carry(actor.storage.plan, "put", arrive, (requested(rollback, ROLLBACK).path, plan.to_avro()), PutUnknown)


def _timeline_names(place: Place) -> list[str]:
    paths = (path for path in place.memory._objects if path.startswith(f"{TIMELINE_FOLDER}/"))
    return [path.rpartition("/")[2] for path in paths]


def _target(actor: Actor, rollback: str) -> str:
    try:
        return RollbackPlan.read(actor.storage, requested(rollback, ROLLBACK).path).instant
    except NotFound:
        return ""


def _archive_once(actor: Actor, place: Place) -> None:
    timeline = Snapshot.load(actor.storage)
    late = place.ever_late
    now_ms = actor.storage_time_ms()
    old: list[str] = []
    for instant in timeline.completed:
        age_ms = now_ms - actor.storage.stat(instant.path).modified_ms
        if late and age_ms < _LATEST_ARRIVAL_MS:
            break  # the oldest go first
        old.append(instant.requested)
    known = {one.requested for one in History.load(actor.storage).instants()}  # what an archiver that died has left
    died_on = [instant for instant in timeline.instants if instant.requested in known]
    for instant in sorted(died_on, key=lambda one: (one.completion is not None, one.requested)):
        actor.storage.delete(instant.path)
    fresh = [one for one in old if one not in known]
    if fresh:
        place.count("archived")
        for instant in timeline.instants:
            if instant.requested in fresh:
                place.archived_files[instant.path] = place.memory.read(instant.path)
        _Archiver(actor.storage).archive(fresh)
    place.archived.update(old)


def broken_beside(place: Place, problems: list[str], history: Told) -> list[str]:
    """What is wrong, of all problems: the checker takes what another engine has rolled back for a loss.

    A commit that completed between the other engine's look and its plan is lost, and what was built on it is wrong:
    one of the two had lost the lock by then, and the other engine knows no slots. Nothing can be said of such a run.
    """
    if place.unfenced:
        return []
    there = [one for one in map(parse_file_name, _timeline_names(place)) if one is not None]
    victims = {
        one for one in place.rolled_back if not any(of.requested == one and of.action == ROLLBACK for of in there)
    }
    told = {line["instant"] for line in history.lines if line["event"] == "return" and line["outcome"] == "committed"}
    return [
        *(problem for problem in problems if not any(one in problem for one in place.rolled_back)),
        *(f"{one.file_name} was archived, and is back" for one in there if one.requested in place.archived),
        *(f"{one.file_name} was rolled back, and is there" for one in there if one.requested in victims),
        *(f"{one} was rolled back, and its caller was told that it committed" for one in sorted(told & victims)),
    ]
