"""Events added to a commit log, each as its writer decides it at the tail that it finds."""

from __future__ import annotations

from collections.abc import Callable

from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.log_reader import Tail


def nobody_reads() -> int:
    """The oldest slot that somebody needs."""
    return 2**62


def append(
    log: CommitLog,
    decide: Callable[[Tail], Event],
    take_time: Callable[[str], str],
    oldest_needed: Callable[[], int] = nobody_reads,
) -> Event:
    """Tries slot after slot, with a fresh time for each."""
    while True:
        tail = log.look(log.tail())
        added = log.create(decide(tail), tail, take_time, oldest_needed)
        if added is not None:
            return added
