"""What simulated processes see of storage and locks: one memory for all of them, behind a network that misbehaves.

Each call takes time on its way there and back, in which others run. It may fail cleanly, get lost on the way there, on
the way back, or arrive long after its caller gave it up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lock_records import MemoryRecordStore
from world import Process, SimulatedSystem, World, here

from lakelatch.errors import Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.records.backend import RecordBackend
from lakelatch.locks.records.store import Put, Record, RecordStore
from lakelatch.locks.session.backend import SessionBackend
from lakelatch.locks.session.provider import SessionLockProvider
from lakelatch.storage import MemoryStorage
from lakelatch.storage.contract import Listing, NotFound
from lakelatch.testing.faults.plan import (
    DONE,
    LOST_AFTER,
    OPERATIONS,
    REPEATED,
    UNAVAILABLE,
    FaultPlan,
    FaultRates,
    carry,
)
from lakelatch.testing.faults.storage import FaultyStorage

T = TypeVar("T")
Kind = TypeVar("Kind", bound=type)
STORAGE, LOCKS = "storage", "locks"
_FAR = 0.6
_FAST_S, _SLOW_S = (0.0005, 0.0075), (0.05, 1.45)  # the least, and how much more it may be


@dataclass
class InjectedFaults(FaultRates):
    """What happens to the calls and at the steps of all processes; nothing once the faults are over."""

    slow: float = 0.0
    at_step: Callable[[Process, str], None] | None = None  # what happens at the named steps of the protocol

    def end(self) -> None:
        self.clear()
        self.slow, self.at_step = 0.0, None


def unmeasured(kind: Kind) -> Kind:
    """Without what measures calls for telemetry, which nobody reads here: each would pass it two or three times."""
    for name in (*OPERATIONS, "read_range", "read_end"):
        setattr(kind, name, getattr(getattr(kind, name), "__wrapped__", getattr(kind, name)))
    return kind


@unmeasured
class PlainStorage(MemoryStorage):
    """One place with objects in it."""


@unmeasured
class WatchedStorage(PlainStorage):
    """Tells a watch, if there is one, of whatever changes."""

    watch: Any = None  # a `Watch`

    def put(self, path: str, data: bytes) -> None:
        before = self._before(path)
        super().put(path, data)
        if self.watch is not None:
            self.watch.put(path, before, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        done = super().put_if_absent(path, data)
        if done and self.watch is not None:
            self.watch.put(path, None, data)
        return done

    def delete(self, path: str) -> None:
        before = self._before(path)
        super().delete(path)
        if before is not None and self.watch is not None:
            self.watch.delete(path, before)

    def _before(self, path: str) -> bytes | None:
        try:
            return self.read(path) if self.watch is not None else None
        except NotFound:
            return None


@dataclass
class Place:
    """One table's storage, its lock service, and who cannot reach them until when."""

    world: World
    faults: InjectedFaults = field(default_factory=InjectedFaults)
    name: str = "simulation"
    cut_off: dict[tuple[str, str], int] = field(default_factory=dict)  # (process, service): until then, in ns
    far_from: set[str] = field(default_factory=set)  # processes whose requests are slow more often than not

    def __post_init__(self) -> None:
        machine = SimulatedSystem(Process(self.world, "storage"))
        self.memory = WatchedStorage(self.name, machine)
        self.records = MemoryRecordStore(machine)
        self.counts: dict[str, int] = {}
        self.ever_late = False  # whether requests arrive long after their callers gave them up
        self.unfenced: set[str] = set()  # those that completed before another engine's plan to roll them back was there
        self.archived: set[str] = set()  # requested times that another engine has put away
        self.rolled_back: set[str] = set()  # and rolled back, with the times of these rollbacks
        self.archived_files: dict[str, bytes] = {}  # for the checker, which knows the timeline alone

    @property
    def uri(self) -> str:
        """What its table is named by."""
        return self.memory.uri

    @property
    def watch(self) -> Any:
        """Who looks at the stock, if there is one (`Watch`)."""
        return self.memory.watch

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def storage(self, process: Process, any_order: bool = False) -> FarStorage:
        """The storage as one process reaches it; requests that it makes together are carried out in `any_order`."""
        plan = ProcessFaultPlan(self, process, STORAGE)
        return AnyOrderStorage(self.memory, plan, process) if any_order else FarStorage(self.memory, plan)


@unmeasured
class FarStorage(FaultyStorage):
    """That place as a process reaches it."""


class AnyOrderStorage(FarStorage):
    """Carries requests that are made together out one after the other, in an order that is drawn."""

    def __init__(self, behind: MemoryStorage, plan: FaultPlan, process: Process) -> None:
        super().__init__(behind, plan)
        self._process = process

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        if not requests:
            return ()
        answers: dict[int, T] = {}
        errors: dict[int, Exception] = {}
        for place in self._process.random.sample(range(len(requests)), len(requests)):
            try:
                answers[place] = requests[place]()
            except Exception as error:
                errors[place] = error
        if errors:
            raise errors[min(errors)]
        return [answers[place] for place in range(len(requests))]


class ProcessFaultPlan(FaultPlan):
    """What becomes of the calls of one process to one service, drawn from the run's seed.

    The answer to a look takes no time: whatever the caller does next takes some before it has an effect, and in between
    nobody could tell.
    """

    def __init__(self, place: Place, process: Process, service: str) -> None:
        self._place, self._process, self._world, self._rates = place, process, place.world, place.faults
        self._reaching = (process.name, service)
        self._cut_off, self._far_from, self._draw = place.cut_off, place.far_from, place.world.draw

    def decide(self, operation: str, path: str, changes: bool) -> str:
        drawn = self._draw()
        self._travel()
        if self._cut_off and self._is_cut_off():
            return UNAVAILABLE
        if not changes and drawn >= self._rates.unavailable:  # most calls
            return DONE
        kind = self._rates.draw(drawn, changes)
        if kind == REPEATED:  # of data files only: everything else is put under a name that another may take
            if operation != "put_if_absent" or path.startswith(".hoodie"):
                return DONE
            self._place.count("repeated")
        return kind

    def loses_answer(self, kind: str) -> bool:
        self._travel()
        lost = kind == LOST_AFTER or bool(self._cut_off and self._is_cut_off())
        if lost:
            self._place.count("lost after")
        return lost

    def act_late(self, act: Callable[[], None]) -> None:
        self._world.after(self._world.between_s(0.01, 8.0), act)

    def note(self, operation: str, path: str, kind: str, result: object = None) -> None:
        world = self._world
        if kind == DONE:
            if world.lines is not None:
                world.note(f"{self._process.name} {operation} {path}: {_short(result)}")
            return
        self._place.count(kind.replace("_", " "))
        world.note(f"{self._process.name} {operation} {path}: {kind}")
        self._process.sleep(0.02 if kind == UNAVAILABLE else 0.05)

    def _is_cut_off(self) -> bool:
        return self._cut_off.get(self._reaching, 0) > self._world.now_ns

    def _travel(self) -> None:
        """The way there or back, which takes its time."""
        slow = _FAR if self._far_from and self._reaching[0] in self._far_from else self._rates.slow
        draw = self._draw()  # one for both, as most of the time goes into these
        if draw < slow:
            self._process.sleep(_SLOW_S[0] + draw / slow * _SLOW_S[1])
        else:
            self._process.sleep(_FAST_S[0] + (draw - slow) / (1 - slow) * _FAST_S[1])


class SimulatedRecords(RecordStore):
    """The records that locks are made of, as one process reaches them."""

    def __init__(self, place: Place, process: Process) -> None:
        super().__init__(SimulatedSystem(process))
        self._origin = process.name
        self._plan, self._records = ProcessFaultPlan(place, process, LOCKS), place.records

    def get(self, name: str) -> Record | None:
        return carry(self._plan, "get", self._records.get, (name,))

    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        return carry(self._plan, "put", self._records.send, (name, value, expected), Unavailable)

    def delete(self, name: str) -> None:
        carry(self._plan, "delete", self._records.delete, (name,))

    def names(self, prefix: str) -> list[str]:
        return carry(self._plan, "names", self._records.names, (prefix,))

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

    def make_backend(self) -> SessionBackend:
        records = SimulatedRecords(self.scope.place, self.scope.process)
        return RecordBackend(records, self.scope.system, self.scope.lease_s)


def step(place: Place, name: str) -> None:
    """For the product's failpoints: what happens at a named step of the current process."""
    process = here().process
    process.ensure_alive()
    if place.faults.at_step is not None:
        place.faults.at_step(process, name)


def _short(result: object) -> str:
    if result is None:
        return "done"
    if isinstance(result, bytes):
        return f"{len(result)} bytes"
    if isinstance(result, Record):
        return f"version {result.version}"
    if isinstance(result, Put):
        return "done" if result.done else "refused"
    if isinstance(result, Listing):
        return f"{len(result.files)} files"
    return str(result)[:80]
