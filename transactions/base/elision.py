"""Lock elision: a commit that nobody is in the way of asks no lock.

The next slot of the commit log decides. So a commit tries the slot first. Once it has lost one, it leaves a record for
others and waits for its turn (0037), or queues at the lock if they cannot commit it, and so do some commits more. Who
has the turn or the lock and still loses its slots says so in the log's folder, and then no commit tries the slot first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakelatch.locks.contract import LockProvider
from lakelatch.timegen.contract import TimeGenerator

ELISION_OPTION = "lakelatch.lock.elision"
AUTO, OFF = "auto", "off"
_QUEUED_COMMITS = 4
_PASSED_MAX = 1000


@dataclass
class QueuedCommits:
    """How many of a process's next commits ask the lock first."""

    left: int = 0
    try_ns: int = 0  # how long one took from its place in the log to its slot, lately
    passed: set[str] = field(default_factory=set)  # instants that had the turn and did not take it: they may be dead


class LockElision:
    """Whether the next commit of one table in this process asks the lock first. Threads may share it.

    Java writers know no slots, so nothing but the lock keeps them away: with a lock that they take it is always asked.
    So it is with a time generator that needs the table's lease.
    """

    def __init__(
        self,
        kind: str,
        provider: LockProvider,
        generator: TimeGenerator,
        queue: QueuedCommits | None = None,
        groups: bool = False,
    ) -> None:
        self.allowed = kind == AUTO and not provider.taken_by_hudi and not generator.needs_lease
        self.groups = groups and self.allowed  # one writer may commit for others
        self.queue = queue or QueuedCommits()

    def tries_first(self, others_wait: bool) -> bool:
        """Whether to try without the lock."""
        return self.allowed and (self.groups or (not others_wait and not self.crowded))

    @property
    def crowded(self) -> bool:
        """Whether this process has lost a slot not long ago."""
        return self.queue.left > 0

    def lost(self) -> None:
        """Others were faster."""
        self.queue.left = _QUEUED_COMMITS

    def queued(self) -> None:
        """A commit has had the lock, or its turn while no others were ready."""
        self.queue.left = max(0, self.queue.left - 1)

    def passes(self, instants: Iterable[str]) -> None:
        """Notes who had the turn and did not take it, so that no later commit of this process waits for them."""
        if len(self.queue.passed) > _PASSED_MAX:
            self.queue.passed.clear()
        self.queue.passed.update(instants)

    def took(self, try_ns: int) -> None:
        """Notes how long a try has taken."""
        self.queue.try_ns = (3 * self.queue.try_ns + try_ns) // 4 if self.queue.try_ns else try_ns
