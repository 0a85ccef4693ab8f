"""How an instant has ended, as the timeline and the history show it. `LogReader.may_have_ended` asks the log."""

from __future__ import annotations

from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.whole_timeline import find_archived
from lakelatch.transactions.base.context import TransactionContext


def find_ended(context: TransactionContext, instant: str) -> Instant | None:
    """The completed or aborted instant of this requested time, in the context's snapshot or in the history."""
    snapshot = context.snapshot
    for one in (*snapshot.by_completion, *snapshot.aborted):
        if one.requested == instant:
            return one
    archived = find_archived(context.storage, snapshot.names, instant)
    return None if archived is None else archived.instant
