"""The memory of all of the demo's processes together."""

from __future__ import annotations

import os
import threading


class MemoryWatch:
    """Samples the proportional memory of this process and all its descendants, where the system has it (Linux)."""

    def __init__(self, interval_s: float = 0.5) -> None:
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakelatch-demo-memory", daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self.peak_bytes = max(self.peak_bytes, sum(map(_proportional_bytes, _family(os.getpid()))))


def _family(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting.extend(children.get(process, []))
    return found


def _proportional_bytes(process: int) -> int:
    try:
        with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0
