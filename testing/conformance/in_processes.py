"""The parts of the conformance suites that run in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

from lakelatch.locks.contract import LockProvider

DEADLINE_S = 60.0


#: What all children need, imported once by the process that they are forked from.
_NEEDED = ["__main__", "lakelatch.locks.open", "lakelatch.testing.conformance.in_processes"]


class Child:
    """A process that runs `target(connection, *arguments)`, and shares nothing with this one; what it needs is pickled.

    It is forked, but from a process of multiprocessing's that has imported modules and done nothing else. One that is
    `started_anew` is not: for what a process takes from its environment before Python runs, such as LD_PRELOAD.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any, started_anew: bool = False) -> None:
        context: SpawnContext | ForkServerContext = multiprocessing.get_context("spawn")
        if not started_anew:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(_NEEDED)
        self.connection, theirs = context.Pipe()
        work = pickle.dumps((target, arguments))
        self._process = context.Process(target=_run, args=(theirs, dict(os.environ), work), daemon=True)
        self._process.start()
        theirs.close()

    def receive(self) -> Any:
        """The next message; fails if the child died or says nothing for a minute."""
        assert self.connection.poll(DEADLINE_S), "a child process sent nothing in time"
        return self.connection.recv()

    def send(self, message: Any) -> None:
        self.connection.send(message)

    def kill(self) -> None:
        """As a crash does: no clean-up runs in the child."""
        self._process.kill()
        self.join()

    def join(self) -> int | None:
        """The exit code."""
        self._process.join(DEADLINE_S)
        assert self._process.exitcode is not None, "a child process did not end"
        self.connection.close()
        return self._process.exitcode


def _run(connection: Connection, environment: dict[str, str], work: bytes) -> None:
    os.environ.clear()  # it is that of the process that was forked, which was started some time ago
    os.environ.update(environment)
    target, arguments = pickle.loads(work)
    target(connection, *arguments)


def run_together(count: int, target: Callable[..., None], *arguments: Any) -> list[Any]:
    """Runs one target in several processes, which start their work together; returns what each one sent."""
    children = [Child(target, *arguments) for _ in range(count)]
    try:
        for child in children:
            assert child.receive() == "ready"
        for child in children:
            child.send("go")
        return [child.receive() for child in children]
    finally:
        for child in children:
            child.kill()


def in_fork(check: Callable[[], None]) -> bool:
    """Whether a check passes in a forked child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that threads run, which is the very case to be tested
        child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            signal.alarm(int(DEADLINE_S))
            check()
            status = 0
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def start(connection: Connection) -> None:
    """For targets: says that this process is ready, and waits for the others."""
    connection.send("ready")
    connection.recv()


def hold(connection: Connection, provider: LockProvider, key: str) -> None:
    """Takes a key, reports its token, and keeps it until a message comes."""
    lease = provider.acquire(key, DEADLINE_S)
    connection.send(lease.token)
    connection.recv()
    connection.send(lease.release())


def wait_for(connection: Connection, provider: LockProvider, key: str) -> None:
    """Says that it begins to wait for a key, and does so."""
    connection.send("ready")
    hold(connection, provider, key)


def count_up(connection: Connection, provider: LockProvider, key: str, file: Path, rounds: int) -> None:
    """Adds to a number in a file in two steps, each time under the key's lease; sends the tokens that it had."""
    start(connection)
    connection.send([count_one(provider, key, file) for _ in range(rounds)])


def count_one(provider: LockProvider, key: str, file: Path) -> int:
    with provider.acquire(key, DEADLINE_S) as lease:
        number = int(file.read_text() or "0")
        file.write_text(str(number + 1))
        return lease.token


def reserve(connection: Connection, provider: LockProvider, key: str, rounds: int, count: int) -> None:
    """Sends the first values of what it reserved of a register."""
    start(connection)
    connection.send([provider.register(key).advance(0, count) for _ in range(rounds)])
