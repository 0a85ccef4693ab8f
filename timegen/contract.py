"""Strictly increasing times for a table."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lakelatch.locks.contract import LockProvider
from lakelatch.locks.lease import Lease
from lakelatch.system import REAL_SYSTEM, System


class TimeGenerator(ABC):
    """Times that strictly increase over all processes that share the table, in milliseconds since 1970.

    Times are close to the wall clock, and never go back with it. The lock service's memory may be lost: `above` is
    the floor that the table itself knows, and the answer is always greater.
    """

    needs_lease = True  # whether each call takes the table's lease, and keeps others from committing meanwhile

    def __init__(self, provider: LockProvider, system: System = REAL_SYSTEM) -> None:
        self.provider = provider
        self.system = system

    @abstractmethod
    def next_many(self, count: int, above_ms: int = 0, held: Lease | None = None) -> list[int]:
        """`count` increasing times, each greater than every earlier one anywhere and than `above_ms`.

        `held` is the table's lease if the caller holds it: a generator that needs that lease then takes no second one.
        """

    def next(self, above_ms: int = 0, held: Lease | None = None) -> int:
        """One such time."""
        return self.next_many(1, above_ms, held)[0]
