"""How far long work is: told to a handler of the user's, or shown in a notebook or on a terminal.

Spark's jobs are counted by the `spark` package. Work of this process counts its files and rows here, where each file is
made, and is told between two of them, so that it costs no thread. What is not looked at by anybody costs nothing.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, TypeAlias

from lakelatch.system import REAL_SYSTEM, System

_log = logging.getLogger("lakelatch")
_PERIOD_NS = 500_000_000
_SHOWN_S = 1.0  # shorter work has no line of its own


@dataclass(frozen=True)
class Progress:
    """Work that is being done, or done.

    `tasks` are those that are known: of Spark's jobs, those of the stages that have begun, and later ones bring theirs.
    Spark counts a little late, so that not all of them need be done when the job is. `rows` and `files` are those that
    this process has made; of work on executors they are 0.
    """

    what: str
    tasks_done: int
    tasks: int
    elapsed_s: float
    done: bool = False
    rows: int = 0
    files: int = 0

    def __str__(self) -> str:
        made = f"{self.rows:,} rows in {self.files:,} files, " if self.files else ""
        tasks = "" if self.done or not self.tasks else f"{self.tasks_done:,} of {self.tasks:,} tasks, "
        return f"{self.what}: {'done, ' if self.done else ''}{tasks}{made}{self.elapsed_s:.0f} s"


#: Is called about twice a second while work goes on, and once more when it is done.
Handler: TypeAlias = Callable[[Progress], None]

_chosen: list[Handler | None] = []  # empty until one is chosen
_current: ContextVar[Counting | None] = ContextVar("lakelatch_progress", default=None)


def on_progress(handler: Handler | None) -> None:
    """Has writes and table services of this process tell a handler how far they are; None tells nobody.

    Until this is called, notebooks and terminals show a line for work that takes longer than a second; nothing is shown
    where standard error is no terminal.
    """
    _chosen[:] = [handler]


@contextmanager
def told_to(handler: Handler | None) -> Iterator[None]:
    """As `on_progress`, within the block."""
    before = [*_chosen]
    on_progress(handler)
    try:
        yield
    finally:
        _chosen[:] = before


def handler_of(default: Callable[[], Handler | None]) -> Handler | None:
    """The handler that was chosen, or the default one."""
    return _chosen[0] if _chosen else default()


class Counting:
    """The work of one block. What a handler raises ends the telling, and is logged."""

    def __init__(self, handler: Handler, what: str, tasks: int, system: System) -> None:
        self._handler: Handler | None = handler
        self._system = system
        self._began_ns = self._told_ns = system.monotonic_ns()
        self._now = Progress(what, 0, tasks, 0.0)

    def add(self, rows: int = 0, files: int = 0, tasks: int = 0) -> None:
        """Counts what was made, and tells it if it is time for that."""
        now = self._now
        self._now = replace(
            now, rows=now.rows + rows, files=now.files + files, tasks_done=min(now.tasks_done + tasks, now.tasks)
        )
        if self._system.monotonic_ns() - self._told_ns >= _PERIOD_NS:
            self.tell()

    def tell(self, done: bool = False) -> None:
        """Tells the handler now."""
        self._told_ns = self._system.monotonic_ns()
        self._now = replace(self._now, elapsed_s=(self._told_ns - self._began_ns) / 1e9, done=done)
        if self._handler is None:
            return
        try:
            self._handler(self._now)
        except Exception as failure:  # what ends the process, such as Ctrl-C, is no failure of it
            self._handler = None
            _log.warning("the progress of %s is not shown any more: %r", self._now.what, failure)


@contextmanager
def counted(what: str, tasks: int = 0, system: System = REAL_SYSTEM) -> Iterator[None]:
    """Counts what this thread makes within the block; within another such block, that one counts it."""
    handler = handler_of(own_line) if _current.get() is None else None
    if handler is None:
        yield
        return
    counting = Counting(handler, what, tasks, system)
    token = _current.set(counting)
    try:
        yield
    finally:
        _current.reset(token)
        counting.tell(done=True)


def count(rows: int = 0, files: int = 0, tasks: int = 0) -> None:
    """Counts what this thread has made, if it is in a block that counts."""
    counting = _current.get()
    if counting is not None:
        counting.add(rows, files, tasks)


def own_line() -> Handler | None:
    """A line in a notebook or on a terminal; None where nobody would see it."""
    return notebook_line() or (_TerminalLine().show if sys.stderr is not None and sys.stderr.isatty() else None)


def notebook_line() -> Handler | None:
    """A handler that shows a line below the cell that runs now; None where this is no notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    return _NotebookLine().show


class _NotebookLine:
    """A line of output that is written over. Short work has none."""

    def __init__(self) -> None:
        self._shown: Any = None

    def show(self, progress: Progress) -> None:
        """Shows it."""
        if self._shown is not None:
            self._shown.update({"text/plain": str(progress)}, raw=True)
        elif not progress.done and progress.elapsed_s >= _SHOWN_S:
            display = import_module("IPython.display").display
            self._shown = display({"text/plain": str(progress)}, raw=True, display_id=True)


class _TerminalLine:
    """A line of a terminal that is written over, and gone when the work is done. Short work has none."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, progress: Progress) -> None:
        """Shows it."""
        if not progress.done and progress.elapsed_s >= _SHOWN_S:
            self._shown = True
            text = str(progress)[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)
        elif progress.done and self._shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
