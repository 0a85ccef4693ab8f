"""What a look at the log has to show that was made when a claim was there."""

from __future__ import annotations

from lakelatch.errors import Unavailable
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.log_reader import LogMoved, Tail


def ensure_same_log(log: CommitLog, known: int, tail: Tail) -> None:
    """Errors: `Unavailable` if the log is shorter than it was known to be, because its table has gone."""
    if tail.number < known:
        raise Unavailable(
            f"the commit log of {log.storage.uri} ends with slot {tail.number}, and had {known}: the table was removed "
            "a moment ago, or another one is in its place. Nothing was written: try again"
        )


def came_in_time(log: CommitLog, start_slot: int, tail: Tail) -> bool:
    """Whether a claim keeps the slots after this one: who has looked for claims before it was there removes none."""
    return tail.number - start_slot <= log.slots_kept // 2


def was_used(log: CommitLog, instant: str, start_slot: int, tail: Tail) -> bool:
    """Whether a slot after this one is of an instant, has ended it or given it back, or nobody can know any more."""
    if log.may_have_ended(instant, start_slot, tail):
        return True
    try:
        return any(instant in (event.instant, event.target) for event in log.events_after(start_slot, tail))
    except LogMoved:
        return True
