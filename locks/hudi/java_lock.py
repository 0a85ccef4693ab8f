"""A lock of Java Hudi's in its own layout, which its writers and ours exclude each other by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class JavaLockState:
    """The holder of a lock, as it says now; the version changes when it is renewed or changes hands.

    `lapsed` is true if the layout itself says that the lock is free to take.
    """

    owner: str
    version: str
    lease_s: float
    lapsed: bool = False


class JavaLock(ABC):
    """One lock in a layout of Java Hudi's, changed by conditional puts."""

    #: Whether a holder may be overtaken if the version has not changed for its lease time, on the taker's own monotonic
    #: clock; if not, only `lapsed` counts.
    expires_by_silence: bool

    @abstractmethod
    def owner_of(self, request: str) -> str:
        """The owner that stands in the lock for a request of ours; no two requests have the same."""

    @abstractmethod
    def read(self) -> JavaLockState | None:
        """The newest state; None if it is free and there is nothing to overtake."""

    @abstractmethod
    def write(self, owner: str, expected: JavaLockState | None) -> JavaLockState | None:
        """Takes or renews the lock if it is still as expected; None if it is not."""

    @abstractmethod
    def release(self, state: JavaLockState) -> tuple[bool, JavaLockState | None]:
        """Releases the lock if it is still in this state: whether it was, and what `read` would say now if so."""
