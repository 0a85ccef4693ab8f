"""Eight processes, a lock that excludes nobody and a clock register that everybody has alone; some are killed."""

from __future__ import annotations

import json
import os
import random  # noqa: TID251  (seeded)
import signal
import subprocess
import sys
import threading
from pathlib import Path

from fault_writer import PATIENT, open_manager
from soundness import files_of, find_problems_of

from lakelatch.storage import open_storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.torture.check.table_files import TableFiles

SCRIPT = Path(__file__).parent / "fault_writer.py"
PROCESSES, TRANSACTIONS, KILLED = 8, 15, 3
IN_A_STORE = 4  # transactions of each, which take longer there


class Tail:
    """A reader that polls the timeline, and remembers what it saw to have completed, in that order."""

    def __init__(self, place: str) -> None:
        self.seen: list[str] = []
        self.out_of_order: list[str] = []
        self._storage = open_storage(place)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Tail:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            # One listing of a folder is no snapshot, and may miss a file that is older than one that it shows. So a
            # second listing tells what was there when the first one ended.
            newest = max(self._times(), default="")
            fresh = sorted(time for time in self._times() if time <= newest and time not in set(self.seen))
            last = self.seen[-1] if self.seen else ""
            self.out_of_order += [time for time in fresh if time <= last]
            self.seen += fresh

    def _times(self) -> list[str]:
        names = self._storage.list(".hoodie/timeline").files
        return [name.split("_")[1].split(".")[0] for name in names if "_" in name]


def start(folder: Path, place: str, seed: int, transactions: int) -> subprocess.Popen[bytes]:
    count = 1000 if seed < KILLED else transactions  # those to be killed do not end before
    command = [sys.executable, str(SCRIPT), "crowd", place, str(seed), str(count)]
    with (folder / f"{seed}.out").open("wb") as output, (folder / f"{seed}.err").open("wb") as errors:
        return subprocess.Popen(command, stdout=output, stderr=errors)


def test_a_crowd_without_a_working_lock_loses_nothing(tmp_path: Path, place: str) -> None:
    draw = random.Random(11)
    transactions = IN_A_STORE if "://" in place else TRANSACTIONS
    with Tail(place) as tail:
        processes = [start(tmp_path, place, seed, transactions) for seed in range(PROCESSES)]
        for seed, process in enumerate(processes[:KILLED]):
            while not (tmp_path / f"{seed}.out").read_bytes():
                assert process.poll() is None, (tmp_path / f"{seed}.err").read_text()
                REAL_SYSTEM.sleep(0.01)
            REAL_SYSTEM.sleep(draw.random() / 5)
            os.kill(process.pid, signal.SIGKILL)
        codes = [process.wait(timeout=600) for process in processes]
        REAL_SYSTEM.sleep((PATIENT.expiry_ms + 2200) / 1000)  # a store's seconds are whole
        for _ in range(2):
            open_manager(place, heartbeat=PATIENT).recover()
        REAL_SYSTEM.sleep(0.1)
    errors = [(tmp_path / f"{seed}.err").read_text() for seed in range(PROCESSES)]
    codes = [process.returncode for process in processes]
    assert codes == [-signal.SIGKILL] * KILLED + [0] * (PROCESSES - KILLED), errors

    stories = [(tmp_path / f"{seed}.out").read_text() for seed in range(PROCESSES)]
    told = [json.loads(line) for story in stories for line in story.splitlines() if line.endswith("}")]
    assert find_problems_of(place, told, stated=True) == []
    committed = [line for line in told if line["outcome"] == "committed"]
    assert len(committed) >= transactions * (PROCESSES - KILLED)
    assert [line for line in told if line["outcome"] == "refused"], "nobody ever met anybody: this tested nothing"
    assert tail.out_of_order == []
    assert {commit.completion for commit in TableFiles(files_of(place)).commits} <= set(tail.seen)
