"""Instants of a table's timeline, and the names of the files that stand for them (Hudi timeline layout 2)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lakelatch.timeline.actions import COMMIT, COMPLETED_ACTIONS, DELTA_COMMIT, RESTORE, ROLLBACK

TIMELINE_FOLDER = ".hoodie/timeline"
CLAIMS_FOLDER = ".hoodie/.heartbeat"  # Hudi's name; heartbeat/contract.py has what lies in it
HISTORY_NAME = "history"  # of the folder in it to which archivers move what is old

REQUESTED = "requested"
INFLIGHT = "inflight"
COMPLETED = "completed"
ABORTED = "aborted"  # a plan that was cancelled; other engines pass over its file

_COMPLETED_NAMES = frozenset(COMPLETED_ACTIONS.values())
_STAGED = "9" * 14  # and the number of the commit
_ROLLBACK, _RESTORE = f".{ROLLBACK}", f".{RESTORE}"


class Instant(NamedTuple):
    """One file of the timeline. `action` is the completed action's name once completed, the pending one's before."""

    requested: str
    action: str
    state: str
    completion: str | None = None

    @property
    def file_name(self) -> str:
        if self.state == COMPLETED:
            return f"{self.requested}_{self.completion}.{self.action}"
        if self.action == COMMIT and self.state == INFLIGHT:
            return f"{self.requested}.inflight"
        return f"{self.requested}.{self.action}.{self.state}"

    @property
    def path(self) -> str:
        return f"{TIMELINE_FOLDER}/{self.file_name}"

    def is_as_old_as(self, time: str) -> bool:
        """Whether this file shows an event of that time or earlier; the beginning of a write is no event."""
        if self.state != COMPLETED and self.action in (COMMIT, DELTA_COMMIT):
            return False
        return (self.completion or self.requested) <= time


def requested(instant: str, action: str) -> Instant:
    return Instant(instant, action, REQUESTED)


def inflight(instant: str, action: str) -> Instant:
    return Instant(instant, action, INFLIGHT)


def aborted(instant: str, action: str) -> Instant:
    """The terminal state of a plan that was cancelled; `action` is the pending one's name."""
    return Instant(instant, action, ABORTED)


def completed(instant: str, pending_action: str, completion: str) -> Instant:
    """The completed instant of a pending action: a compaction completes as a commit."""
    return Instant(instant, COMPLETED_ACTIONS[pending_action], COMPLETED, completion)


@lru_cache(maxsize=65_536)  # the same folder is listed again and again
def parse_file_name(name: str) -> Instant | None:
    """The instant that a file of the timeline folder stands for, or None for a name that is no instant's."""
    head, _, rest = name.partition(".")
    start, underscore, completion = head.partition("_")
    if not is_time(start):
        return None
    if underscore:
        known = rest in _COMPLETED_NAMES and is_time(completion)
        return Instant(start, rest, COMPLETED, completion) if known else None
    if rest == INFLIGHT:
        return Instant(start, COMMIT, INFLIGHT)
    action, _, state = rest.partition(".")
    if action in COMPLETED_ACTIONS and state in (REQUESTED, INFLIGHT, ABORTED):
        return Instant(start, action, state)
    return None


def requested_time(name: str) -> str:
    """The time with which a name begins: of a file of the timeline, a claim, or a request to cancel a plan."""
    return name.partition(".")[0].partition("_")[0]


def is_time(text: str) -> bool:
    """Whether this is an instant's time."""
    return len(text) in (14, 17) and text.isascii() and text.isdigit()


def staged_time(number: int) -> str:
    """The completion time of a commit that its transaction has only staged, the first one being 0: after all others."""
    return f"{_STAGED}{number:03d}"


def is_staged_time(completion: str) -> bool:
    """Whether a completion time is one of these, and so no moment."""
    return completion.startswith(_STAGED)


def is_seen(completion: str, moment: str | None) -> bool:
    """Whether what completed then is seen at a moment: always, if the transaction that looks has staged it."""
    return moment is None or completion <= moment or is_staged_time(completion)


def is_completed(name: str) -> bool:
    """Whether a name on a timeline is that of a completed instant."""
    one = parse_file_name(name)
    return one is not None and one.completion is not None


def undoes(name: str) -> bool:
    """Whether a name on a timeline is one of a rollback or a restore, in any state."""
    return _ROLLBACK in name or _RESTORE in name
