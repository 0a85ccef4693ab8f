"""Writers that are processes of their own, each forked by one that has imported what they need."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

from lakelatch.failpoints import ENVIRONMENT_VARIABLE

SCRIPT = Path(__file__).with_name("fault_writer.py")
Story = list[dict[str, str]]


class Writers:
    """Starts writers, whose parent is the process that forks them, so it is asked how they end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._running: set[int] = set()
        self._forks = subprocess.Popen(
            [sys.executable, str(SCRIPT), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, place: str, points: str, *story: str) -> Writer:
        kind, *more = story or ("scenario",)
        said = self._folder / str(next(self._numbers))
        environment = {**os.environ, ENVIRONMENT_VARIABLE: points}
        asked = {"arguments": [kind, place, *more], "said": str(said), "environment": environment}
        writer = Writer(self, self._ask(asked), said)
        self._running.add(writer.pid)
        return writer

    def wait(self, pid: int) -> int:
        """The status of a writer that has ended or is stopped, as `os.waitpid` gives it."""
        status = self._ask({"wait_for": pid})
        if not os.WIFSTOPPED(status):
            self._running.remove(pid)
        return status

    def close(self) -> None:
        for pid in tuple(self._running):  # of a test that failed
            os.kill(pid, signal.SIGKILL)
        self._forks.communicate()

    def _ask(self, asked: dict[str, Any]) -> int:
        assert self._forks.stdin is not None and self._forks.stdout is not None
        self._forks.stdin.write(json.dumps(asked) + "\n")
        self._forks.stdin.flush()
        return int(self._forks.stdout.readline())


class Writer:
    """A process that writes to a table, and tells its story."""

    def __init__(self, writers: Writers, pid: int, said: Path) -> None:
        self.pid = pid
        self._writers = writers
        self._said = said

    def stops(self) -> bool:
        """Waits until it has stopped itself; False if it ended before."""
        return os.WIFSTOPPED(self._writers.wait(self.pid))

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> tuple[int, Story]:
        """How it ended, as `subprocess` says that, and what it told."""
        code = os.waitstatus_to_exitcode(self._writers.wait(self.pid))
        errors = self._said.with_suffix(".err").read_text()
        assert "Traceback" not in errors, errors
        return code, [json.loads(line) for line in self._said.with_suffix(".out").read_text().splitlines()]
