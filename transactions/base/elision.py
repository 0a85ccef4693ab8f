"""Lock elision: a commit that nobody is in the way of asks no lock.

The lock orders writers, and the next slot of the commit log decides. So a commit tries the slot first, and queues at
the lock once it has lost one, for some commits more. Who holds the lock and still loses its slots says so in the log's
folder, and then everybody queues.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelatch.locks.contract import LockProvider
from lakelatch.timegen.contract import TimeGenerator

ELISION_OPTION = "lakelatch.lock.elision"
AUTO, OFF = "auto", "off"
_QUEUED_COMMITS = 4


@dataclass
class QueuedCommits:
    """How many of a process's next commits ask the lock first."""

    left: int = 0


class LockElision:
    """Whether the next commit of one table in this process asks the lock first. Threads may share it.

    Java writers know no slots, so nothing but the lock keeps them away: with a lock that they take it is always asked.
    So it is with a time generator that needs the table's lease.
    """

    def __init__(
        self, kind: str, provider: LockProvider, generator: TimeGenerator, queue: QueuedCommits | None = None
    ) -> None:
        self.allowed = kind == AUTO and not provider.taken_by_hudi and not generator.needs_lease
        self.queue = queue or QueuedCommits()

    def tries_first(self, others_wait: bool) -> bool:
        """Whether to try without the lock."""
        return self.allowed and not others_wait and self.queue.left == 0

    def lost(self) -> None:
        """Others were faster."""
        self.queue.left = _QUEUED_COMMITS

    def queued(self) -> None:
        """A commit has had the lock."""
        self.queue.left = max(0, self.queue.left - 1)
