"""A gate that all calls into a client library pass, so that a process can be forked with no thread inside it.

A library with threads of its own (gRPC) may hang in a child that was forked while it was at work. So before each fork
new calls are stopped, those under way are waited for, and connections closed; the parent opens them again when it
needs them, and the child finds a library that is at rest.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

_PATIENCE_S = 1.0  # then calls are cut short, and after another such time the fork goes on whatever happens


class Connected(Protocol):
    """Something with connections that must not be open during a fork."""

    def disconnect(self) -> None:
        """Closes what is open now; the next call opens it anew."""


class ForkGate:
    """One for a library and process. Calls nest in no other call, or two threads could wait for each other."""

    def __init__(self) -> None:
        self.forked = False  # whether this is the child of a process that had used the library
        self._members: WeakSet[Connected] = WeakSet()
        self._registered = False
        self._reset()

    def add(self, member: Connected) -> None:
        """From now on it is disconnected before each fork, and before hooks that the library has registered by now."""
        with self._changed:
            self._members.add(member)
            if not self._registered:
                self._registered = True
                os.register_at_fork(before=self._shut, after_in_parent=self._open, after_in_child=self._begin_anew)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """For one call into the library; waits while the process is being forked."""
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                if self._forking:
                    self._changed.notify_all()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._forking = 0

    def _begin_anew(self) -> None:
        self.forked = True
        self._reset()

    def _shut(self) -> None:
        with self._changed:
            self._forking += 1
            self._changed.wait_for(lambda: self._inside == 0, _PATIENCE_S)
            members = list(self._members)
        for member in members:
            member.disconnect()
        with self._changed:
            self._changed.wait_for(lambda: self._inside == 0, _PATIENCE_S)

    def _open(self) -> None:
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()
