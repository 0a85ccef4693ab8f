"""Whether an instant has ended: by the log, which decides it, and by the timeline, which shows how."""

from __future__ import annotations

from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.log_reader import LogMoved, LogReader, Tail
from lakelatch.timeline.log.whole_timeline import find_archived
from lakelatch.transactions.base.context import TransactionContext


def ended_in_log(log: LogReader, instant: str, start_slot: int, tail: Tail) -> bool:
    """Whether an instant that began after this slot can complete no more, by the slots up to the tail.

    True also if slots since then are gone: nobody can know any more, so its commit would be refused.
    """
    if start_slot + 1 < tail.watermark:
        return True
    try:
        return any(event.ends(instant) for event in log.events_after(start_slot, tail))
    except LogMoved:
        return True


def find_ended(context: TransactionContext, instant: str) -> Instant | None:
    """The completed or aborted instant of this requested time, in the context's snapshot or in the history."""
    snapshot = context.snapshot
    for one in (*snapshot.by_completion, *snapshot.aborted):
        if one.requested == instant:
            return one
    archived = find_archived(context.storage, snapshot.names, instant)
    return None if archived is None else archived.instant
