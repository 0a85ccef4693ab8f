"""Lost completions: slots of the commit log whose completed files are missing from the timeline."""

from __future__ import annotations

from lakelatch.errors import CorruptTable
from lakelatch.storage.contract import Storage
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.log_reader import Tail

_LOOKS_MAX = 4


def lost_completions(log: CommitLog, tail: Tail, since: str = "") -> list[Event]:
    """Events later than a time whose completed files are missing, though nothing has undone or archived them.

    The `tail` comes from `CommitLog.look`. Costs a request for each slot that this process has not read, and three more
    to check again if a file is missing: only what two checks agree on is returned.
    """
    found: list[Event] = []
    for _ in range(_LOOKS_MAX):
        listing = log.snapshots.list() if tail.listing is None else tail.listing
        again = log.projections.lost(log.standing(tail, since), listing)
        if not again or again == found:
            return again
        found, tail = again, log.look(log.tail())
    return []  # others are at work on just these


def ensure_none_lost_to_readers(storage: Storage) -> None:
    """As `ensure_none_lost`, for a reader: the last slot's file may be missing, since the next writer makes it."""
    log, before = CommitLog(storage), list[Event]()
    for _ in range(_LOOKS_MAX):
        tail = log.tail()
        events = [event for event in log.standing(tail) if event.number < tail.number]
        found = log.projections.lost(events, log.snapshots.list())
        if found and found == before:
            raise lost_file(found[0])
        if not found:
            return
        before = found


def ensure_none_lost(log: CommitLog, tail: Tail, since: str = "") -> None:
    """Errors: `CorruptTable` if there are `lost_completions`."""
    for event in lost_completions(log, tail, since):
        raise lost_file(event)


def lost_file(event: Event) -> CorruptTable:
    """The error for a lost completion."""
    return CorruptTable(
        f"the completed file {event.path} is missing, and slot {event.number} of the commit log says that "
        f"{event.instant} has completed: without it the instant looks as if it had not. Restore it from a copy, or put "
        "it back with what the slot has as its content",
        path=event.path,
        slot=event.number,
        instant=event.instant,
    )
