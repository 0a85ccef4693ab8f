"""Waiting for the winner of a conflict, so that a write which is tried again does not lose to the same one at once."""

from __future__ import annotations

from lakelatch.errors import WriteConflict
from lakelatch.heartbeat.observer import Observer
from lakelatch.retry import Backoff, tries
from lakelatch.system import System

_BACKOFF = Backoff(first_s=0.05, longest_s=2.0)


def wait_for_winner(observer: Observer, conflict: WriteConflict, limit_s: float, system: System) -> bool:
    """Waits until the winner has ended or is dead, False if it is still at work after `limit_s`.

    A winner that had completed when the conflict was found is not waited for.
    """
    if not conflict.details.get("inflight"):
        return True
    return any(observer.dead([conflict.winner]) for _ in tries(system, _BACKOFF, limit_s=limit_s))
