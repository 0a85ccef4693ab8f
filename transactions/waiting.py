"""Waiting for the winner of a conflict, so that a write which is tried again does not lose to the same one at once."""

from __future__ import annotations

from lakelatch.errors import WriteConflict
from lakelatch.heartbeat.observer import Observer
from lakelatch.system import System

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0


def wait_for_winner(observer: Observer, conflict: WriteConflict, limit_s: float, system: System) -> bool:
    """Waits until the winner has ended or is dead, False if it is still at work after `limit_s`.

    A winner that had completed when the conflict was found is not waited for.
    """
    if not conflict.details.get("inflight"):
        return True
    deadline_ns = system.monotonic_ns() + round(limit_s * 1e9)
    wait_s = _FIRST_WAIT_S
    while not observer.dead([conflict.winner]):
        left_s = (deadline_ns - system.monotonic_ns()) / 1e9
        if left_s <= 0:
            return False
        system.sleep(min(wait_s * (0.5 + system.random()), left_s))
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
    return True
