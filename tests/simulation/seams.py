"""What simulated processes see of storage and locks: one memory for all of them, behind a network that misbehaves.

Each call takes time on its way there and back, in which others run. It may fail cleanly, get lost on the way there, on
the way back, or arrive long after its caller gave it up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from world import Process, SimulatedSystem, World, here

from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.record_service import RecordService
from lakelatch.locks.records import MemoryRecordStore, Put, Record, RecordStore
from lakelatch.locks.service import LockService
from lakelatch.locks.session_provider import SessionLockProvider
from lakelatch.storage import MemoryStorage
from lakelatch.storage.contract import FileStatus, Listing, PutUnknown, Storage

T = TypeVar("T")
URI = "memory://simulation"
STORAGE, LOCKS = "storage", "locks"
_FAST_S, _SLOW_S = (0.0005, 0.0075), (0.05, 1.45)  # the least, and how much more it may be


@dataclass
class Weather:
    """How likely each call of each process is to go wrong; all zero once the faults are over."""

    slow: float = 0.0
    unavailable: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    late: float = 0.0  # arrives after its caller was told that nobody knows
    at_step: Callable[[Process, str], None] | None = None  # what happens at the named steps of the protocol

    def calm(self) -> None:
        self.slow = self.unavailable = self.lost_before = self.lost_after = self.late = 0.0
        self.at_step = None


@dataclass
class Place:
    """The one storage, the one lock service, and who cannot reach them until when."""

    world: World
    weather: Weather = field(default_factory=Weather)
    cut_off: dict[tuple[str, str], int] = field(default_factory=dict)  # (process, service): until then, in ns

    def __post_init__(self) -> None:
        machine = SimulatedSystem(Process(self.world, "storage"))
        self.memory = MemoryStorage("simulation", machine)
        self.records = MemoryRecordStore(machine)
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def call(
        self,
        process: Process,
        service: str,
        what: str,
        effect: Callable[..., T],
        arguments: tuple[Any, ...],
        lost: type[LakelatchError] | None = None,
    ) -> T:
        """One call from a process. `lost` is the error of a change whose answer nobody knows; None for a look.

        `what` and the first argument say what it is in the run's record. The answer to a look takes no time: whatever
        the caller does next takes some before it has an effect, and in between nobody could tell.
        """
        world, weather, draw = self.world, self.weather, self.world.draw()
        process.sleep(self._latency_s())
        unreachable = self.cut_off.get((process.name, service), 0) > world.now_ns
        if unreachable or draw < weather.unavailable:
            self.count("unavailable")
            world.note(f"{process.name} {what} {arguments[0]}: unavailable")
            process.sleep(0.02)
            raise Unavailable(f"the simulated {service} does not answer")
        draw -= weather.unavailable
        if lost is not None and 0 <= draw < weather.lost_before + weather.late:
            if draw < weather.late:
                self.count("late")
                world.after(world.between_s(0.01, 8.0), lambda: self._arrive(process, what, effect, arguments))
            else:
                self.count("lost before")
            world.note(f"{process.name} {what} {arguments[0]}: lost on its way")
            process.sleep(0.05)
            raise lost(f"nobody knows about {what} {arguments[0]}")
        draw -= weather.lost_before + weather.late
        result = effect(*arguments)
        if world.lines is not None:
            world.note(f"{process.name} {what} {arguments[0]}: {'done' if result is None else _short(result)}")
        if lost is None:
            return result
        process.sleep(self._latency_s())
        cut = self.cut_off.get((process.name, service), 0) > world.now_ns
        if cut or 0 <= draw < weather.lost_after:
            self.count("lost after")
            raise lost(f"nobody knows about {what} {arguments[0]}")
        return result

    def _arrive(self, process: Process, what: str, effect: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.world.note(f"{process.name} {what} {arguments[0]}: arrives late, {_short(effect(*arguments))}")

    def _latency_s(self) -> float:
        draw, slow = self.world.draw(), self.weather.slow  # one draw for both, as most of the time goes into these
        if draw < slow:
            return _SLOW_S[0] + draw / slow * _SLOW_S[1]
        return _FAST_S[0] + (draw - slow) / (1 - slow) * _FAST_S[1]


class SimulatedStorage(Storage):
    """The storage as one process reaches it."""

    def __init__(self, place: Place, process: Process) -> None:
        self._call, self._process, self._memory = place.call, process, place.memory

    @property
    def uri(self) -> str:
        return URI

    def read(self, path: str) -> bytes:
        return self._call(self._process, STORAGE, "read", self._memory.read, (path,))

    def stat(self, path: str) -> FileStatus:
        return self._call(self._process, STORAGE, "stat", self._memory.stat, (path,))

    def list(self, folder: str) -> Listing:
        return self._call(self._process, STORAGE, "list", self._memory.list, (folder,))

    def put(self, path: str, data: bytes) -> None:
        self._call(self._process, STORAGE, "put", self._memory.put, (path, data), PutUnknown)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._call(self._process, STORAGE, "create", self._memory.put_if_absent, (path, data), PutUnknown)

    def delete(self, path: str) -> None:
        self._call(self._process, STORAGE, "delete", self._memory.delete, (path,), Unavailable)


class SimulatedRecords(RecordStore):
    """The records that locks are made of, as one process reaches them."""

    def __init__(self, place: Place, process: Process) -> None:
        super().__init__(SimulatedSystem(process))
        self._origin = process.name
        self._call, self._process, self._records = place.call, process, place.records

    def get(self, name: str) -> Record | None:
        return self._call(self._process, LOCKS, "get", self._records.get, (name,))

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        return self._call(self._process, LOCKS, "put", self._records.send, (name, value, expected), Unavailable)

    def delete(self, name: str) -> None:
        self._call(self._process, LOCKS, "delete", self._records.delete, (name,))

    def names(self, prefix: str) -> list[str]:
        return self._call(self._process, LOCKS, "names", self._records.names, (prefix,))

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class SimulatedScope(LockScope):
    """What a provider of one process is opened for, as often as the product opens one."""

    place: Place = field(kw_only=True)
    process: Process = field(kw_only=True)
    lease_s: float = field(kw_only=True)


class SimulatedLocks(SessionLockProvider):
    """The product's leases over conditional puts, as one process takes them."""

    scope: SimulatedScope

    @property
    def identity(self) -> Hashable:
        return id(self.scope.process)

    @property
    def domain(self) -> str:
        return "simulated"

    def make_service(self) -> LockService:
        records = SimulatedRecords(self.scope.place, self.scope.process)
        return RecordService(records, self.scope.system, self.scope.lease_s)


def step(place: Place, name: str) -> None:
    """For the product's failpoints: what happens at a named step of the current process."""
    process = here().process
    process.ensure_alive()
    if place.weather.at_step is not None:
        place.weather.at_step(process, name)


def _short(result: object) -> str:
    if isinstance(result, bytes):
        return f"{len(result)} bytes"
    if isinstance(result, Record):
        return f"version {result.version}"
    if isinstance(result, Put):
        return "done" if result.done else "refused"
    if isinstance(result, Listing):
        return f"{len(result.files)} files"
    return str(result)[:80]
