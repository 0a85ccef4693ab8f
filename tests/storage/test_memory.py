from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from lakelatch.storage.contract import Storage, SupportsDeleteAtOnce, SupportsFirstPaths, SupportsSweep
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.memory import MemoryStorage, find_memory_storage
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.conformance.storage import StorageConformance


class TestMemory(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return MemoryStorage(str(folder))


def test_only_abilities_that_a_storage_has_are_found(tmp_path: Path) -> None:
    kinds = (SupportsDeleteAtOnce, SupportsFirstPaths, SupportsSweep)
    assert not any(isinstance(MemoryStorage("plain"), kind) for kind in kinds)
    assert [kind for kind in kinds if isinstance(LocalStorage(str(tmp_path)), kind)] == [SupportsSweep]


def test_times_come_from_the_system() -> None:
    system = ManualSystem()
    storage = MemoryStorage("clock", system)
    storage.put("a", b"1")
    first = storage.stat("a").modified_ms
    system.advance(2)
    storage.put("b", b"1")
    assert (first, storage.stat("b").modified_ms) == (system.realtime_ms() - 2000, system.realtime_ms())


def test_a_new_storage_of_a_known_name_is_empty_and_is_found_from_then_on() -> None:
    MemoryStorage("again").put("a", b"1")
    fresh = MemoryStorage("again")
    assert not fresh.exists("a") and find_memory_storage("again") is fresh


def test_threads_that_look_for_one_name_find_one_place() -> None:
    barrier = Barrier(8)

    def find(number: int) -> bool:
        barrier.wait(60)
        return find_memory_storage(f"race/{number // 8}").put_if_absent("a", b"")

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(find, range(8 * 200)))
    finally:
        sys.setswitchinterval(interval_s)
    assert [sum(won[start : start + 8]) for start in range(0, len(won), 8)] == [1] * 200
