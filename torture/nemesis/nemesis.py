"""The clients of a round, and the faults that they suffer from outside."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random  # noqa: TID251  (seeded by the run)
from typing import Any

from lakelatch import failpoints
from lakelatch.errors import InvariantBroken, LakelatchError
from lakelatch.system import REAL_SYSTEM, Thread
from lakelatch.torture.history.recorder import Recorder
from lakelatch.torture.nemesis.lock_server import LockServer
from lakelatch.torture.nemesis.store_ways import TableStore
from lakelatch.torture.settings import OF_SEVERAL, ROLES, Place, TortureSettings
from lakelatch.torture.traffic.clients import Name, be_client

_SECOND_NS = 1_000_000_000
_END_S = 400.0  # of a job of Spark that has just begun, on a busy machine
_THREADS_END_S = 15.0
_ARMED_S = 4.0
_ARMED_LONG_S = 12.0  # services reach some of their steps only once in a while
_ZOMBIE = "zombie"


_COMMITTING = ("lock", "commit", "group", "cleanup", "log", "rollback")


def _steps(*parts: str) -> tuple[str, ...]:
    return tuple(name for name in failpoints.NAMES if name.partition(".")[0] in parts)


#: The failpoints that a client reaches; the others are in code that no client of a round runs.
STEPS_OF = {
    "write": _steps("begin", "mark", "data", "close", *_COMMITTING),
    "compact": _steps("compact", *_COMMITTING),
    "serve": _steps("cluster", "clean", "archive", "cancel", "execute", "compact"),
    "cancel": _steps("cancel"),
    "move": _steps("several", "begin", "mark", "data", "close", "commit", "log", "rollback"),
}
_VISITS = 3  # of a step that each part of a transaction over several tables comes to
#: The clients that keep the table; their faults are kinds of their own.
SERVICE_ROLES = ("serve", "cancel")
#: These, and those that work on several tables: what a fault does to them is told apart.
OWN_ROWS = (*SERVICE_ROLES, "move")


@dataclass
class Running:
    """One client's process, as the nemesis sees it. `harmed` names the fault that it suffers now."""

    name: Name
    process: BaseProcess
    orders: Connection
    harmed: str = ""
    expected_dead: bool = False

    @property
    def client(self) -> str:
        return self.name.client

    def alive(self) -> bool:
        return self.process.is_alive()

    def stopped(self) -> bool:
        """Whether it is stopped by a signal."""
        with suppress(OSError):
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def signal(self, number: signal.Signals) -> None:
        if self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def tell(self, order: str, **more: Any) -> None:
        """Sends an order to the client; one that is dead does not hear it."""
        with suppress(OSError):
            self.orders.send({"order": order, **more})

    def heard(self) -> list[dict[str, str]]:
        """Failpoints that it reached since the last call."""
        found = []
        with suppress(OSError, EOFError):
            while self.orders.poll():
                found.append(self.orders.recv())
        return found


@dataclass
class Fault:
    """A fault in force: how to end it, and when."""

    kind: str
    target: str
    number: int
    heal: Callable[[], None]
    until_ns: int


@dataclass
class Nemesis:
    """The process that injects faults into one round, its clients, and the faults that are in force."""

    settings: TortureSettings
    place: Place
    locks: LockServer
    draw: Random
    coverage: Counter[str]  # failpoints and faults so far, in the whole run
    clients: dict[str, Running] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    on_memory_disk: bool = False
    store: TableStore | None = None  # that the table lies in
    problems: list[str] = field(default_factory=list)
    hanging: set[int] = field(default_factory=set)  # tables whose storage does not answer anybody
    threads: list[Thread] = field(default_factory=list)  # of faults that take a while to come about
    _number: int = 0
    _later: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    _calm: bool = False

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.place.history / "nemesis.jsonl")
        self._processes = multiprocessing.get_context("forkserver")

    def start(self, name: Name, lease_s: float | None = None) -> None:
        """Begins a client's process, or begins it anew."""
        place = replace(self.place, lease_s=lease_s or self.place.lease_s)
        if self.store is not None:
            draw = Random(f"{self.place.seed} {name.client}")
            place = replace(place, place_options=self.store.options_of(name.client, draw, self.place.late_s))
        ours, theirs = self._processes.Pipe()
        options = self.locks.options(name.client, lease_s)
        process = self._processes.Process(target=be_client, args=(name, place, options, theirs), daemon=True)
        process.start()
        theirs.close()
        self.clients[name.client] = running = Running(name, process, ours)
        for table in self.hanging:
            running.tell("storage", values={"hangs": True}, table=table)

    def start_all(self) -> None:
        """Begins every client that the settings ask for."""
        for role, option in ROLES.items():
            for number in range(getattr(self.settings, option)):
                if role in OF_SEVERAL and self.settings.tables == 1:
                    continue
                self.start(Name(role, number + 1))

    def revive(self, running: Running, lease_s: float | None = None) -> None:
        """Starts another process in the place of one that is dead."""
        running.orders.close()
        name = running.name
        self.start(Name(name.role, name.number, name.incarnation + 1), lease_s)

    def pick(self, *roles: str) -> Running | None:
        """A client in good health."""
        healthy = [
            found
            for found in self.clients.values()
            if not found.harmed and found.alive() and (not roles or found.name.role in roles)
        ]
        return self.draw.choice(healthy) if healthy else None

    # -- faults -----------------------------------------------------------------------------------------------------

    def begin(self, kind: str, target: str, heal: Callable[[], None], lasts_s: float, detail: str = "") -> None:
        """Notes a fault that is in force now, and when it has to end."""
        self._number += 1
        self.coverage[kind] += 1
        self.recorder.note("fault", fault=kind, target=target, id=self._number, detail=detail)
        until_ns = REAL_SYSTEM.monotonic_ns() + int(lasts_s * _SECOND_NS)
        self.faults.append(Fault(kind, target, self._number, heal, until_ns))

    def harm(self, running: Running, kind: str, undo: Callable[[], None], lasts_s: float, detail: str = "") -> None:
        """As `begin`, for one client, which is not in good health until `undo` has ended the fault."""
        running.harmed = kind

        def end() -> None:
            running.harmed = ""
            undo()

        self.begin(kind, running.client, end, lasts_s, detail)

    def busy(self, target: str) -> bool:
        """Whether this target suffers a fault now."""
        return any(fault.target == target for fault in self.faults)

    def heal_due(self, now: bool = False) -> None:
        """Ends the faults whose time has come, or all."""
        for fault in list(self.faults):
            if now or REAL_SYSTEM.monotonic_ns() >= fault.until_ns:
                self.faults.remove(fault)
                try:
                    fault.heal()
                except LakelatchError as error:  # a server that does not start at once, say
                    self.problems.append(f"{fault.kind} could not be ended: {error.message}")
                self.recorder.note("heal", fault=fault.kind, target=fault.target, id=fault.number, detail="")

    def later(self, after_s: float, act: Callable[[], None]) -> None:
        """Has the nemesis's own thread do something; any thread may ask for it."""
        self._later.append((REAL_SYSTEM.monotonic_ns() + int(after_s * _SECOND_NS), act))

    def tick(self) -> None:
        """Does everything that is due now."""
        self.look()
        now_ns = REAL_SYSTEM.monotonic_ns()
        for due in [due for due in self._later if due[0] <= now_ns]:
            self._later.remove(due)
            due[1]()
        self.heal_due()

    def calm(self) -> None:
        """Ends all faults; stopped clients go on, and dead ones are begun anew."""
        self._calm = True
        for thread in self.threads:
            thread.join(_THREADS_END_S)
        self._later.clear()
        for running in self.clients.values():
            running.tell("failpoint", text="")
        self.look()
        self.heal_due(now=True)
        for running in list(self.clients.values()):
            running.signal(signal.SIGCONT)
            running.harmed = ""
        self.locks.put_right()
        if self.store is not None:
            self.store.put_right()

    def finish(self, *roles: str) -> None:
        """Has clients end what they have begun, and waits for their ends."""
        ending = [found for found in self.clients.values() if not roles or found.name.role in roles]
        for running in ending:
            running.tell("finish")
        for running in ending:
            running.signal(signal.SIGCONT)
            running.process.join(_END_S)
            if running.alive():
                self.problems.append(f"{running.name} did not finish within {_END_S:g} s")
                running.signal(signal.SIGKILL)
                running.process.join()
            elif running.process.exitcode and not running.expected_dead:
                self.problems.append(f"{running.name} ended with exit code {running.process.exitcode}")
            del self.clients[running.client]

    def close(self) -> None:
        """Ends everything at once."""
        for running in self.clients.values():
            running.signal(signal.SIGKILL)
            running.process.join(10)
        self.recorder.close()

    def look(self) -> None:
        """Handles clients that reached failpoints, and those that ended without a fault."""
        for running in list(self.clients.values()):
            alive = running.alive()  # before what it said last is heard
            for said in running.heard():
                if "fault" in said:
                    self.begin(said["fault"], running.client, lambda: None, 0)
                else:
                    self._at_failpoint(running, said["failpoint"], said["action"])
            if not alive and not running.expected_dead:
                code = running.process.exitcode
                self.problems.append(f"{running.name} ended by itself with exit code {code}")
                self.revive(running)

    def _at_failpoint(self, running: Running, name: str, action: str) -> None:
        self.coverage[f"{name}={action}"] += 1
        kind = self._row(running, f"{action}_at_step")
        if action == "raise":
            self.begin(kind, running.client, lambda: None, 0, detail=name)
            running.harmed = ""
        elif action == "kill":
            self.kill(running, kind, name)
        else:
            self._stopped_at(running, name)

    @staticmethod
    def _row(running: Running, kind: str) -> str:
        return f"{running.name.role}_{kind}" if running.name.role in OWN_ROWS else kind

    def kill(self, running: Running, kind: str, detail: str = "", lease_s: float | None = None) -> None:
        """Waits until it is dead, and begins it anew a little later."""
        running.expected_dead = True
        running.harmed = running.harmed or kind
        running.process.join(10)
        if running.alive():
            raise InvariantBroken(f"{running.name} was killed and lives")
        later_s = self.draw.random() * 1.5 * self.place.lease_s
        self.begin(kind, running.client, partial(self.revive, running, lease_s), later_s, detail)

    def _stopped_at(self, running: Running, name: str) -> None:
        again = self.draw.random() < 0.4  # and right into the next one: the same zombie, another generation
        kind = self._row(running, "zombie_again" if running.harmed == _ZOMBIE else "stop_at_step")

        def wake() -> None:
            running.harmed = ""
            if again and not self._calm:
                self.arm(running, "stop", _ZOMBIE)
            running.signal(signal.SIGCONT)

        lasts_s = self.place.lease_s * (1.1 + self.draw.random())
        self.begin(kind, running.client, wake, lasts_s, name)

    def arm(self, running: Running, action: str, harmed: str) -> None:
        """Sets a failpoint in a client, and removes it if the client does not reach it soon."""
        running.harmed = harmed
        visit = self.draw.randint(1, _VISITS) if running.name.role in OF_SEVERAL else 1
        running.tell("failpoint", text=f"{self._next_step(running, action)}={action}@{visit}")

        def disarm() -> None:
            if running.harmed == harmed and not running.stopped():
                running.tell("failpoint", text="")
                running.harmed = ""

        self.later(_ARMED_LONG_S if running.name.role in OWN_ROWS else _ARMED_S, disarm)

    def _next_step(self, running: Running, action: str) -> str:
        """One of the steps that this client reaches at which it was harmed least often."""
        steps = STEPS_OF.get(running.name.role, STEPS_OF["write"])
        least = min(self.coverage[f"{name}={action}"] for name in steps)
        return self.draw.choice([name for name in steps if self.coverage[f"{name}={action}"] <= least + 1])
