"""Markers: the marker server's checks, and how many are made in a second, through the server and directly.

`python -m bench.markers [--quick]` runs it alone; `--quick` with a tenth of the markers.
"""

from __future__ import annotations

import multiprocessing
import random  # noqa: TID251  (seeded here, so that runs are alike)
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Result, save, time_ms

from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.transactions.base.settings import (
    SERVER_MARKERS,
    EarlySettings,
    MarkerServerSettings,
    TransactionSettings,
)
from lakelatch.transactions.early.server_client import MarkerClient, ServerAddress
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.marker_server.checker import MarkerChecker
from lakelatch.transactions.markers.direct import Markers
from lakelatch.transactions.markers.files import MARKERS_FOLDER, KeyIndex, marker_of

_PARTITIONS = 100
_FILES = 20
_PROCESSES = 8
_STEP = 100
_CHECKS = 2000
_FLAT_MARKERS = 100_000


def run(quick: bool = False) -> list[Result]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        made = _Writers(f"{folder}/checks")
        results = [_two_writers(made), _full_round(f"{folder}/round", 100_000 if quick else 1_000_000)]
        results.append(_flatness(f"{folder}/flat"))
        results += _creation(f"{folder}/creation", 400 if quick else 4000)
    return results


class _Writers:
    """A table's folder with other live writers, whose markers lie in MARKERS files."""

    def __init__(self, root: str) -> None:
        Path(root).mkdir(parents=True)
        self.storage = LocalStorage(root)
        self.instants: list[str] = []
        self._draw = random.Random(len(root))

    def add(self, markers: int) -> list[str]:
        """Another writer with that many markers in twenty files; returns their paths."""
        instant = f"2026010100000{len(self.instants):04d}"
        self.instants.append(instant)
        self.storage.put(heartbeat_path(instant), b"")
        folder = Path(self.storage.root, MARKERS_FOLDER, instant)
        folder.mkdir(parents=True)
        for file in range(_FILES):
            lines = (self.marker(instant, number) for number in range(file, markers, _FILES))
            (folder / f"MARKERS{file}").write_text("".join(f"{line}\n" for line in lines))
        return [f"{MARKERS_FOLDER}/{instant}/MARKERS{file}" for file in range(_FILES)]

    def marker(self, instant: str, number: int) -> str:
        partition, group = self.group()
        return marker_of(partition, f".{group}_{instant}.log.1_{number}-0-{number}")

    def group(self) -> tuple[str, str]:
        bucket = self._draw.randrange(10**8)
        return f"origin=EWR/day={self._draw.randrange(_PARTITIONS)}", f"{bucket:08d}-0000-0000-0000-000000000000-0"

    def manager(self) -> TransactionManager:
        provider = FilesystemLockProvider(LockScope(self.storage.uri, {}))
        settings = TransactionSettings(
            early=EarlySettings(marker_type=SERVER_MARKERS), marker_server=MarkerServerSettings()
        )
        return TransactionManager(self.storage, provider, HybridTimeGenerator(provider), settings)

    def checker(self, own: int) -> MarkerChecker:
        """Of a write that begins now, with that many file groups."""
        manager = self.manager()
        early = manager.begin().early_detection()
        if early is None:
            raise AssertionError("early detection is on")
        checker = MarkerChecker(early.detection(manager.context.provider, REAL_SYSTEM))
        checker.add([self.group() for _ in range(own)])
        return checker

    def read_all(self, paths: list[str]) -> None:
        for path in paths:
            self.storage.stat(path)
            self.storage.read(path)


def _round_ms(made: _Writers, own: int, cpu_ms: list[float]) -> float:
    checker = made.checker(own)
    began = time.process_time()
    elapsed_ms = time_ms(checker.round)
    cpu_ms.append((time.process_time() - began) * 1000)
    if checker.conflict is not None:
        raise AssertionError("nobody has to lose here")
    return elapsed_ms


def _two_writers(made: _Writers) -> Result:
    paths = made.add(1500)
    cpu_ms: list[float] = []
    value = statistics.median(_round_ms(made, 1500, cpu_ms) for _ in range(15))
    floor = statistics.median(time_ms(partial(made.read_all, paths)) for _ in range(15))
    note = f"CPU {statistics.median(cpu_ms):.1f} ms; floor: the 20 files read"
    return _result("marker_check_1500", value, "ms", floor, "under 10 ms", value < 10, note)


def _full_round(root: str, markers: int) -> Result:
    made = _Writers(root)
    paths = [path for _ in range(50) for path in made.add(markers // 50)]
    floor = min(time_ms(partial(made.read_all, paths)) for _ in range(3))
    cpu_ms: list[float] = []
    value = min(_round_ms(made, 1500, cpu_ms) for _ in range(3))
    note = f"{markers} markers of 50 writers, first read, best of 3; CPU {min(cpu_ms):.0f} ms; floor: the files read"
    return _result("marker_round_cold", value, "ms", floor, "under 1000 ms", value < 1000, note)


def _flatness(root: str) -> Result:
    """One file group's check among the markers of 200 writers, to that among as many markers of 2 writers."""
    took: dict[int, float] = {}
    for writers in (2, 200):
        made = _Writers(f"{root}{writers}")
        for _ in range(writers):
            made.add(_FLAT_MARKERS // writers)
        index = KeyIndex(made.storage)
        index.refresh(made.instants)
        groups = [made.group() for _ in range(_CHECKS)]
        took[writers] = min(time_ms(partial(_look, index, groups)) for _ in range(20)) / _CHECKS * 1000
    value = took[200] / took[2]
    note = f"{took[2]:.1f} us among 2 writers, {took[200]:.1f} us among 200"
    return _result("marker_check_of_one_group", value, "times", None, "at most 1.5", value <= 1.5, note)


def _look(index: KeyIndex, groups: list[tuple[str, str]]) -> None:
    for group in groups:
        index.instants_of(*group)


def _creation(root: str, each: int) -> list[Result]:
    made = _Writers(root)
    transaction = made.manager().begin()
    context = multiprocessing.get_context("spawn")
    with context.Pool(_PROCESSES) as pool, transaction.serve_markers("127.0.0.1") as address:
        pool.starmap(_through_server, [(address, number, _STEP) for number in range(_PROCESSES)])
        pool.starmap(_bare, [(made.storage.root, number, 1) for number in range(_PROCESSES)])
        steps = [(address, _PROCESSES + number, each) for number in range(_PROCESSES)]
        served = time_ms(partial(pool.starmap, _through_server, steps))
        few = each // 10
        tasks = [(made.storage, transaction.instant, number, few) for number in range(_PROCESSES)]
        direct = time_ms(partial(pool.starmap, _directly, tasks))
        bare = time_ms(partial(pool.starmap, _bare, [(made.storage.root, number, few) for number in range(_PROCESSES)]))
    if len(transaction.markers.announced()) != _PROCESSES * (_STEP + each + few):
        raise AssertionError("markers are missing")
    transaction.abort()
    rates = {"served": each / served, "direct": few / direct, "bare": few / bare}
    served_s, direct_s, bare_s = (rate * 1000 * _PROCESSES for rate in rates.values())
    return [
        _result(
            "markers_through_server",
            served_s,
            "1/s",
            None,
            "at least 20000",
            served_s >= 20_000,
            f"{_PROCESSES} processes, {_STEP} a request; peer: direct ones of the same run",
            direct_s,
        ),
        _result(
            "markers_direct",
            direct_s,
            "1/s",
            bare_s,
            "at least 5000",
            direct_s >= 5000,
            f"{_PROCESSES} processes, one at a time; floor: an empty file made and its folder synced",
        ),
    ]


def _through_server(address: ServerAddress, task: int, count: int) -> None:
    client = MarkerClient(address)
    for first in range(0, count, _STEP):
        names = [f".{task:03d}{number:05d}-0000-0000-0000-0_1.log.1_0-0-0" for number in range(first, first + _STEP)]
        answer = client.ask([marker_of("origin=EWR/day=1", name) for name in names])
        if answer.lost is not None or answer.ended is not None:
            raise AssertionError("the write goes on")
    client.close()


def _directly(storage: LocalStorage, instant: str, task: int, count: int) -> None:
    markers = Markers(storage, instant)
    for number in range(count):
        markers.announce(f"day={task}", f".{number:08d}-0000-0000-0000-0_1.log.1_{task}-0-0")


def _bare(root: str, task: int, count: int) -> None:
    import os

    folder = f"{root}/bare/day={task}"
    os.makedirs(folder, exist_ok=True)
    for number in range(count):
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def _result(
    name: str, value: float, unit: str, floor: float | None, goal: str, met: bool, note: str, peer: float | None = None
) -> Result:
    against: Any = floor if floor is not None else peer
    ratio = round(value / against, 2) if against else None
    rounded = [None if number is None else round(number, 2) for number in (floor, peer)]
    return Result(name, round(value, 2), unit, rounded[0], rounded[1], ratio, goal, met, note)


if __name__ == "__main__":
    found = run(quick="--quick" in sys.argv)
    save(found)
    for one in found:
        print(one)
