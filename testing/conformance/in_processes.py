"""The parts of the conformance suites that run in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lakelatch.locks.contract import LockProvider

DEADLINE_S = 60.0


class Child:
    """A fresh process (spawned, not forked) that runs `target(connection, *arguments)`; what it needs is pickled."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
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
