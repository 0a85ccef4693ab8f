"""Trying again: the one loop of tries with waits between them, on the injected clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakelatch.system import System


@dataclass(frozen=True)
class Backoff:
    """How long to wait between tries: `first_s`, then `factor` times as long each time, `longest_s` at most.

    `jitter` is the share of a wait that is left to chance: 0 waits exactly, 1 anything between nothing and twice as
    long, so that those who collided do not meet again.
    """

    first_s: float
    longest_s: float
    factor: float = 2.0
    jitter: float = 0.5

    def wait_s(self, tried: int, system: System) -> float:
        """The wait after this many tries, counted from 1."""
        wait_s = min(self.first_s * self.factor ** min(tried - 1, 64), self.longest_s)
        return wait_s * (1 + self.jitter * (2 * system.random() - 1)) if self.jitter else wait_s


def tries(system: System, backoff: Backoff, most: int | None = None, limit_s: float | None = None) -> Iterator[int]:
    """Numbers of tries, from 1, with a wait after each but the last: `most` of them, or as many as begin in `limit_s`.

    The caller leaves the loop when it has succeeded, and says what is wrong when the loop has run out. A wait is cut
    short so that the last try comes at the end of the limit.
    """
    deadline_ns = None if limit_s is None else system.monotonic_ns() + round(limit_s * 1e9)
    tried = 0
    while True:
        tried += 1
        yield tried
        if tried == most:
            return
        wait_s = backoff.wait_s(tried, system)
        if deadline_ns is not None:
            left_s = (deadline_ns - system.monotonic_ns()) / 1e9
            if left_s <= 0:
                return
            wait_s = min(wait_s, left_s)
        system.sleep(wait_s)
