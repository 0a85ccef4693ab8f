"""Another engine beside the simulated writers, which takes the lock and knows no slots: it archives, as Java Hudi does."""

from __future__ import annotations

from actors import Actor
from archiver import Archiver
from seams import Place

from lakelatch.locks.contract import TABLE_KEY
from lakelatch.timeline.history.history import History
from lakelatch.timeline.timeline import TIMELINE_FOLDER, Timeline, parse_file_name

_LATEST_ARRIVAL_MS = 8_500  # of a request that its caller gave up: what is younger may still be made once more
_RUNS = 4


def archive(actor: Actor, place: Place) -> None:
    """Some runs of an archiver, each under the table's lock, and each of all that has completed long enough ago."""
    for _ in range(_RUNS):
        actor.system.sleep(actor.random.random() * 2)
        with actor.provider().acquire(TABLE_KEY, 5.0):
            _archive_once(actor, place)


def _archive_once(actor: Actor, place: Place) -> None:
    timeline = Timeline.load(actor.storage)
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
    fresh = [requested for requested in old if requested not in known]
    if fresh:
        place.count("archived")
        for instant in timeline.instants:
            if instant.requested in fresh:
                place.archived_files[instant.path] = place.memory.read(instant.path)
        Archiver(actor.storage).archive(fresh)
    for requested in old:
        place.archived.add(requested)


def brought_back(place: Place) -> list[str]:
    """What an archiver has taken off the timeline, and is there again."""
    names = (path.rpartition("/")[2] for path in place.memory._objects if path.startswith(f"{TIMELINE_FOLDER}/"))
    found = (parse_file_name(name) for name in names)
    return sorted(
        f"{one.file_name} was archived, and is back" for one in found if one and one.requested in place.archived
    )
