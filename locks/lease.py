"""A lease: the value that a lock provider hands out."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from lakelatch.errors import LeaseLost
from lakelatch.system import System

EXPIRED = "its lease time passed without a renewal"


@dataclass
class Term:
    """The deadline of one lease, or of all leases of one session, and why they end at it, as far as that is known.

    `failure` says why the last renewal failed; `ended` says why the term ended otherwise than by its deadline.
    """

    deadline_ns: int | None
    failure: str = ""
    ended: str = ""

    def is_over(self, now_ns: int) -> bool:
        """Whether the deadline has passed."""
        return self.deadline_ns is not None and now_ns >= self.deadline_ns

    def reason(self) -> str:
        """Why a lease that is over ended."""
        failed = f"; the last try to renew it failed ({self.failure})" if self.failure else ""
        return self.ended or EXPIRED + failed


class Lease:
    """The right to a key, for a while. It does not stop its old holder: what must not happen twice needs a fence.

    `token` grows with every grant of the key. `deadline_ns` is on the own monotonic clock, None where the service
    holds the key for as long as the process lives (a kernel lock). `lost` is set when the lease ended and was not
    released, and `lost_because` says why. As a context manager it releases at the end. A pickled or forked copy refuses
    to act.
    """

    def __init__(
        self,
        key: str,
        token: int,
        owner: str,
        system: System,
        deadline_ns: int | None,
        release: Callable[[Lease], bool],
        still_held: Callable[[Lease], bool] | None = None,
    ) -> None:
        self.key = key
        self.token = token
        self.owner = owner
        self.lost = threading.Event()
        self._system = system
        self.lost_because = ""
        self._term = Term(deadline_ns)
        self._release = release
        self._still_held = still_held
        self._released = False
        self._releasing = system.new_lock()
        self._process = os.getpid()

    @property
    def deadline_ns(self) -> int | None:
        """When the lease ends unless it is renewed, on the own monotonic clock; None for never."""
        return self._term.deadline_ns

    def extend(self, deadline_ns: int) -> None:
        """For the provider's renewal: the service has confirmed the lease up to this deadline."""
        if not self.lost.is_set():
            self._term.deadline_ns = deadline_ns

    def follow(self, term: Term) -> None:
        """For the provider: from now on the deadline is this term's, which other leases may share."""
        self._term = term

    def lose(self, reason: str = "its lock service has given it away, or may have") -> None:
        """For the provider: the service has given the key away, or may have; the first reason is kept."""
        if not self._released and not self.lost.is_set():
            self.lost_because = reason
            self.lost.set()

    def valid(self) -> bool:
        """Whether the key cannot have been granted to another yet. Needs no network. Never turns true again."""
        if self._released or self.lost.is_set() or self._process != os.getpid():
            return False
        if self._term.is_over(self._system.monotonic_ns()):
            self.lose(self._term.reason())
            return False
        if self._still_held is not None and not self._still_held(self):
            self.lose()
            return False
        return True

    def ensure(self) -> None:
        """Raises `LeaseLost`, which says why, unless `valid()`."""
        if self.valid():
            return
        forked = "" if self._process == os.getpid() else "this is a forked copy of it"
        reason = forked or self.lost_because or "it was released"
        raise LeaseLost(
            f"the lease of {self.key!r} with token {self.token} is no longer held: {reason}",
            key=self.key,
            reason=reason,
        )

    def release(self) -> bool:
        """Gives the key back; False says that it was not held any more and nothing was changed.

        Errors: `LeaseLost` on a forked copy, whose parent may still hold the key.
        """
        if self._process != os.getpid():
            raise LeaseLost(f"this is a forked copy of the lease of {self.key!r}: only its own process may release it")
        with self._releasing:  # of two threads that release, one gives the key back and the other gets False
            if self._released:
                return False
            held = self._release(self)
            if held:
                self._released = True
            else:
                self.lose()
            return held

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"Lease(key={self.key!r}, token={self.token}, owner={self.owner!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise LeaseLost(f"the lease of {self.key!r} cannot be pickled: take one where it is needed")
