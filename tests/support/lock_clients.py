"""Clients that contend for a lock in processes of their own, for fault tests: what they see goes into a history."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from lock_history import GRANTED, Entry, Recorder, problems_in, read_history

from lakelatch.errors import LakelatchError
from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.system import REAL_SYSTEM, RealSystem
from lakelatch.testing.conformance.in_processes import Child

KEY = "table"
_ACQUIRE_S = 10.0
_LOOK_S = 0.02
_CONVERGE_S = 90.0
_LONG_HOLD_S = 10.0


class WaitingSystem(RealSystem):
    """Sleeps in a way that libfaketime can stand: under it, `time.sleep` fails once the clock was stepped."""

    def sleep(self, duration_s: float) -> None:
        threading.Event().wait(duration_s)


class Client:
    """One contending process."""

    def __init__(
        self, table_uri: str, options: Mapping[str, str], folder: Path, name: str, hold_s: float, faked_clock: bool
    ) -> None:
        self.name = name
        self._faked_clock = faked_clock
        self.file = folder / f"{name}.jsonl"
        self.file.touch()
        arguments = (table_uri, dict(options), self.file, name, hold_s)
        self._child = Child(contend, *arguments, started_anew=faked_clock)
        self.process_id: int = self._child.receive()

    def pause(self) -> None:
        """Stops the process (SIGSTOP)."""
        os.kill(self.process_id, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets the stopped process go on."""
        os.kill(self.process_id, signal.SIGCONT)

    def kill(self) -> None:
        """Kills the process and waits until it is dead."""
        self._child.kill()

    def freeze(self, duration_s: float) -> None:
        """Makes one that holds the lock for long call into C, which keeps the interpreter's lock for so long."""
        self._child.send(duration_s)

    def finish(self) -> None:
        """Ends the process in order, at its next chance."""
        self._child.send("stop")
        self._child.receive()
        if self._faked_clock:  # a thread of a client library that waits until a stepped time may keep it for hours
            self._child.kill()
        else:
            self._child.join()

    def entries(self) -> list[Entry]:
        """What this client has written down so far."""
        return read_history([self.file])

    def grants(self) -> int:
        """How many leases this client was granted so far."""
        return sum(entry.kind == GRANTED for entry in self.entries())


class Crowd:
    """The clients of one test, and the history of all."""

    def __init__(self, table_uri: str, options: Mapping[str, str], folder: Path) -> None:
        self._table_uri = table_uri
        self._options = options
        self._folder = folder
        self._alive: list[Client] = []
        self._all: list[Client] = []

    def add(
        self,
        hold_s: float = 0.03,
        environment: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Client:
        """One more client, which holds the lock for about so long each time; `options` are its own."""
        name, own = f"client-{len(self._all)}", {**self._options, **(options or {})}
        with environment_set(environment or {}):
            client = Client(self._table_uri, own, self._folder, name, hold_s, "LD_PRELOAD" in (environment or {}))
        self._alive.append(client)
        self._all.append(client)
        return client

    def kill(self, client: Client) -> None:
        """Kills one client, which then counts as ended."""
        client.kill()
        self._alive.remove(client)

    def others(self, *but: Client) -> list[Client]:
        """The living ones but for these."""
        return [client for client in self._alive if client not in but]

    def wait_for_grants(self, more: int = 2, clients: list[Client] | None = None) -> None:
        """Returns once each living client (or each of these) was granted the lock so many more times than now."""
        wanted = {client: client.grants() + more for client in clients or self._alive}
        deadline_ns = REAL_SYSTEM.monotonic_ns() + int(_CONVERGE_S * 1e9)
        while any(client.grants() < least for client, least in wanted.items()):
            if REAL_SYSTEM.monotonic_ns() > deadline_ns:
                said = {client.name: client.entries()[-1:] for client in wanted}
                raise AssertionError(f"they were not granted the lock in time: {said}")
            REAL_SYSTEM.sleep(0.05)

    def finish(self) -> list[Entry]:
        """Ends all clients, and returns the whole history."""
        for client in self._alive:
            client.finish()
        self._alive = []
        return self.entries()

    def entries(self) -> list[Entry]:
        """What all clients have written down so far."""
        return read_history([client.file for client in self._all])

    def problems(self) -> list[str]:
        """The promises that were broken, as `problems_in` finds them."""
        return problems_in(self.entries())

    def close(self) -> None:
        for client in self._alive:
            client.kill()


@contextmanager
def environment_set(values: Mapping[str, str]) -> Iterator[None]:
    """For processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def keep_interpreter(duration_s: float) -> None:
    """No other thread of this process runs meanwhile, not even one that renews a lease."""
    ctypes.PyDLL(None).usleep(int(duration_s * 1e6))


def contend(
    connection: Connection, table_uri: str, options: Mapping[str, str], file: Path, name: str, hold_s: float
) -> None:
    """Takes the lock again and again until told to stop, looking at the lease all the while that it has it."""
    system = WaitingSystem()
    recorder = Recorder(file, name, system)
    provider = open_lock_provider(LockScope(table_uri, options, system))
    connection.send(os.getpid())
    while not (connection.poll() and connection.recv() == "stop"):
        lease = recorder.acquire(provider, KEY, _ACQUIRE_S)
        if lease is None:
            system.sleep(0.1)
            continue
        until_ns = system.monotonic_ns() + int(hold_s * (0.5 + system.random()) * 1e9)
        while recorder.look(lease) and system.monotonic_ns() < until_ns:
            system.sleep(min(_LOOK_S, hold_s))
            if hold_s >= _LONG_HOLD_S and connection.poll():
                keep_interpreter(float(connection.recv()))
        recorder.release(lease)
        system.sleep(0.01)
    try:
        provider.close()
    except LakelatchError as error:
        connection.send(str(error))
    else:
        connection.send("closed")
