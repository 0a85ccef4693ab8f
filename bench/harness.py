"""Results of benchmarks: one form, one file, every figure beside its floor and its peer of the same run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from lakelatch.system import REAL_SYSTEM

RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Result:
    """One figure. `ratio` is the value to `floor` or `peer`, whichever the goal speaks of; None where it has none."""

    name: str
    value: float
    unit: str
    floor: float | None
    peer: float | None
    ratio: float | None
    goal: str
    met: bool
    note: str = ""


def time_ms(action: Callable[[], object]) -> float:
    """Milliseconds that one call takes."""
    started_ns = REAL_SYSTEM.monotonic_ns()
    action()
    return (REAL_SYSTEM.monotonic_ns() - started_ns) / 1e6


def save(results: list[Result]) -> None:
    """Writes the file, with the commit and the machine; figures of other benchmarks in it are kept."""
    try:
        kept = list(json.loads(RESULTS.read_text())["results"])
    except (OSError, ValueError, KeyError):
        kept = []
    fresh = {result.name for result in results}
    kept = [found for found in kept if found["name"] not in fresh]
    stamp = {"commit": _commit(), "machine": _machine()}
    merged = [*kept, *({**asdict(result), **stamp} for result in results)]
    RESULTS.write_text(json.dumps({"results": sorted(merged, key=lambda found: found["name"])}, indent=2) + "\n")


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return found.stdout.strip() or "unknown"


def _machine() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory_gb:.0f} GiB, {platform.system()} {platform.machine()}, local disk"
