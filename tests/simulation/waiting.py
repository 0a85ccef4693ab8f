"""How long writers wait for each other at a distance: one table, many processes, requests that all take as long.

`python tests/simulation/waiting.py --writers 16 --request-ms 65` has them upsert ten rows at a time by the product's
whole call, on a clock that only waiting moves. So what it tells is rounds of waiting, whatever the machine is doing:
neither the processors nor the store are in it, and the same seed gives the same figures.
"""

from __future__ import annotations

import argparse
import random  # noqa: TID251  (seeded, so that a run can be repeated)
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent))

import greenlet
import pyarrow as pa
from world import SECOND_NS, Fiber, Process, SimulatedSystem, World, here

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.inline import SERVICES_ENABLED
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.schema import _place
from lakelatch.locks.options import PROVIDER
from lakelatch.storage import MemoryStorage
from lakelatch.storage.contract import FileStatus, Listing
from lakelatch.timeline.log.events import LOG_FOLDER, slot_events, slot_number
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import SIDE_BY_SIDE_LOG_VERSION, log_property
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING

T = TypeVar("T")
_SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "1",
    MODE_OPTION: NON_BLOCKING,
    PROVIDER: "in_process",
}
_ROWS = 10
_SPREAD = 0.1  # of the time of a request
_WARM_S = 0.35  # of a run's time are not counted: the writers begin at once, and know nothing of each other yet


class DistantStorage(MemoryStorage):
    """Each request takes a while for the fiber that makes it; those that are made together take as long as one."""

    def __init__(self, world: World, name: str, request_s: float, spread: float) -> None:
        super().__init__(name, SimulatedSystem(Process(world, "store")))
        self._world, self._request_s, self._spread = world, request_s, spread
        self.asks = False
        self.requests = Counter[str]()
        self.slots: list[tuple[int, int, int]] = []  # number, when it was there, and how many events it has
        self.shown: dict[str, int] = {}  # completed files, by when they were there

    def read(self, path: str) -> bytes:
        with self._request("read", path):
            return super().read(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with self._request("read", path):
            return super().read_range(path, start, length)

    def stat(self, path: str) -> FileStatus:
        with self._request("stat", path):
            return super().stat(path)

    def exists(self, path: str) -> bool:
        with self._request("exists", path):
            return super().exists(path)

    def list(self, folder: str) -> Listing:
        with self._request("list", folder):
            return super().list(folder)

    def names(self, folder: str) -> Sequence[str]:
        with self._request("list", folder):
            return super().names(folder)

    def walk(self, folder: str) -> Iterator[str]:
        with self._request("list", folder):
            found = list(super().walk(folder))
        return iter(found)

    def put(self, path: str, data: bytes) -> None:
        with self._request("put", path):
            super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._request("put", path):
            done = super().put_if_absent(path, data)
            if done:
                self._note(path, data)
            return done

    def delete(self, path: str) -> None:
        with self._request("delete", path):
            super().delete(path)

    def delete_folder(self, folder: str) -> None:
        self.delete_at_once(list(self.walk(folder)))

    def delete_at_once(self, paths: Sequence[str]) -> None:
        with self._request("delete", ""):
            for path in paths:
                super().delete(path)

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        if not isinstance(greenlet.getcurrent(), Fiber) or len(requests) < 2:
            return super().together(*requests)
        found: list[Any] = [None] * len(requests)
        errors: list[BaseException | None] = [None] * len(requests)

        def make(place: int) -> None:
            try:
                found[place] = requests[place]()
            except Exception as error:
                errors[place] = error

        process = here().process
        fibers = [process.world.start(process, partial(make, place), f"{place}") for place in range(1, len(requests))]
        make(0)
        for fiber in fibers:
            fiber.join()
        for error in filter(None, errors):
            raise error
        return found

    @contextmanager
    def _request(self, kind: str, path: str) -> Iterator[None]:
        """A request on its way there and back, in which others run; calls that are a part of another one are none."""
        me = greenlet.getcurrent() if self.asks else None
        if not isinstance(me, Fiber) or me.is_asking:
            yield
            return
        self.requests[kind] += 1
        half_s = self._request_s * (1 + self._spread * (self._world.draw() - 0.5)) / 2
        me.process.sleep(half_s)
        me.is_asking = True
        try:
            yield
        finally:
            me.is_asking = False
            me.process.sleep(half_s)

    def _note(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        number = slot_number(name) if folder == LOG_FOLDER else None
        if number is not None:
            self.slots.append((number, self._world.now_ns, len(slot_events(data, number))))
        elif folder == ".hoodie/timeline" and name.endswith(".deltacommit") and "_" in name:
            self.shown[name] = self._world.now_ns


@dataclass
class Waits:
    """What a run found, but for its beginning."""

    commits_s: list[float] = field(default_factory=list)  # how long each took its caller
    shares: list[int] = field(default_factory=list)  # commits of each writer
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    slots: list[tuple[int, int, int]] = field(default_factory=list)
    requests: int = 0  # of the whole run, as `told`
    told: int = 0

    @property
    def commits_per_s(self) -> float:
        return len(self.commits_s) / self.seconds

    @property
    def p99_s(self) -> float:
        return sorted(self.commits_s)[int(0.99 * (len(self.commits_s) - 1))]

    @property
    def fairness(self) -> float:
        return min(self.shares) / max(self.shares)


def measure(
    writers: int, request_s: float, seconds: float, seed: int = 1, services: bool = False, at_once: bool = False
) -> Waits:
    """Has so many processes upsert for so long, by the simulated clock, and checks that all rows are there.

    Without `services` no writer compacts, cleans or archives after its commits; `at_once` is how the table has the
    files of a slot made.
    """
    options = {**_OPTIONS, SERVICES_ENABLED: str(services).lower()}
    world = World(seed)
    storage = DistantStorage(world, f"waiting-{seed}-{random.Random(seed).random()}", request_s, _SPREAD)
    open_for_write(storage, Call(options).write(), _SCHEMA)
    if at_once:
        update_properties(storage, log_property(SIDE_BY_SIDE_LOG_VERSION))
    start_ns, end_ns = int(_WARM_S * seconds * SECOND_NS), int(seconds * SECOND_NS)
    found = Waits(shares=[0] * writers, seconds=seconds * (1 - _WARM_S))
    told = Counter[str]()
    left = writers

    def write(number: int, system: SimulatedSystem) -> None:
        nonlocal left
        table = ArrowTable(storage.uri, options, system)
        turn = 0
        while world.now_ns < end_ns:
            began_ns = world.now_ns
            batch = f"{number}-{turn}"
            turn += 1
            _place.cache_clear()  # which processes do not share
            try:
                table.upsert(_rows(batch, began_ns))
            except Exception as error:
                found.failed.append(f"{type(error).__name__}: {error}")
            else:
                told[batch] += 1
                if start_ns <= world.now_ns < end_ns:
                    found.commits_s.append((world.now_ns - began_ns) / SECOND_NS)
                    found.shares[number] += 1
        left -= 1
        if not left:
            world.stop()

    storage.asks = True
    for number in range(writers):
        system = SimulatedSystem(Process(world, f"w{number}"))
        world.start(system.process, partial(write, number, system), f"w{number}")
    world.run()
    storage.asks = False
    rows = pa.table(ArrowTable(storage.uri, options).to_arrow())
    if Counter(rows["v"].to_pylist()) != Counter(dict.fromkeys(told, _ROWS)):
        raise AssertionError("the table holds other rows than its writers were told of")
    found.slots = [slot for slot in storage.slots if start_ns <= slot[1] < end_ns]
    found.requests, found.told = storage.requests.total(), told.total()
    return found


def _rows(batch: str, time_ns: int) -> pa.Table:
    keys = [f"{batch}-{index}" for index in range(_ROWS)]
    return pa.table({"id": keys, "ts": [time_ns] * _ROWS, "v": [batch] * _ROWS}, schema=_SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--request-ms", type=float, default=65.0)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the simulated clock")
    parser.add_argument("--at-once", action="store_true", help="have a slot's files made side by side")
    parser.add_argument("--services", action="store_true", help="have those that are due run after commits")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    request_s = given.request_ms / 1000
    found = measure(given.writers, request_s, given.seconds, given.seed, given.services, given.at_once)
    between = [(later[1] - one[1]) / SECOND_NS / request_s for one, later in pairwise(found.slots)]
    print(f"{given.writers} writers, {given.request_ms:g} ms a request, {found.seconds:.0f} s counted")
    print(
        f"commits/s {found.commits_per_s:.1f}, median {statistics.median(found.commits_s):.2f} s, "
        f"p99 {found.p99_s:.2f} s"
    )
    print(f"rounds a commit, of its caller's time: {statistics.median(found.commits_s) / request_s:.1f}")
    print(f"slowest to fastest {found.fairness:.2f}, failed {len(found.failed)} {found.failed[:2]}")
    print(f"requests a commit {found.requests / found.told:.0f}")
    print(f"slots {len(found.slots)}, commits in each: {statistics.mean(slot[2] for slot in found.slots):.1f}")
    print(f"rounds between slots: median {statistics.median(between):.1f}, mean {statistics.mean(between):.1f}")


if __name__ == "__main__":
    main()
