"""What a page may be allowed to do to a table: run what is due, call a plan off, break a lock.

Each is what the command of the same name does, with the same checks: a page adds no way around them. It runs in a
thread of its own, is logged, and its outcome is shown to all who look.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from lakelatch.engine.calls import execute_cancel, request_cancel
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.services.keeping.maintenance import maintain_with
from lakelatch.engine.services.keeping.steps import Steps
from lakelatch.errors import InvalidRequest, LakelatchError, Unavailable
from lakelatch.locks.open import open_recorded_locks
from lakelatch.system import System
from lakelatch.timeline.table_config import recorded_lock_options
from lakelatch.ui.board import Board

RUN, CALL_OFF, BREAK = "run", "call off", "break"
RUNNING, DONE, FAILED = "running", "done", "failed"
_KEPT = 50
_log = logging.getLogger("lakelatch.ui")


@dataclass(frozen=True)
class PageTable:
    """A table of a page: its path or URL, and the options of a write to it, which may hold secrets."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Action:
    """One action that somebody asked for: what, on which service, plan or lock, since when, and its outcome."""

    number: int
    what: str
    target: str
    since_ms: int
    state: str = RUNNING
    outcome: str = ""


class Actions:
    """The actions on the tables of a board, in its order. Threads may share it."""

    def __init__(self, board: Board, tables: Sequence[PageTable], executor: Executor, system: System) -> None:
        self._board = board
        self._tables = tuple(tables)
        self._executor = executor
        self._system = system
        self._guard = system.new_lock()
        self._count = 0
        self._kept: list[deque[Action]] = [deque(maxlen=_KEPT) for _ in tables]
        self._kinds: dict[str, Callable[[int, str], str]] = {
            RUN: self._run,
            CALL_OFF: self._call_off,
            BREAK: self._break,
        }

    def begin(self, table: int, what: str, target: str) -> Action:
        """Begins an action, and returns at once.

        Errors: `InvalidRequest` for one that is not known, and `Unavailable` if the same one is running.
        """
        act = self._kinds.get(what)
        if act is None or not target:
            raise InvalidRequest(f"there is no action {what!r} on {target!r}: use one of {', '.join(self._kinds)}")
        with self._guard:
            if any((one.what, one.target, one.state) == (what, target, RUNNING) for one in self._kept[table]):
                raise Unavailable(f"{what} {target} is running already: wait until it has ended")
            self._count += 1
            action = Action(self._count, what, target, self._system.realtime_ms())
            self._kept[table].append(action)
        _log.warning("%s: %s %s was asked for on the page", self._board.tables[table].uri, what, target)
        self._show(table)
        self._system.start_thread(partial(self._carry_out, table, action, act), f"lakelatch-ui-action-{action.number}")
        return action

    def _carry_out(self, table: int, action: Action, act: Callable[[int, str], str]) -> None:
        try:
            ended = replace(action, state=DONE, outcome=act(table, action.target))
        except LakelatchError as error:
            ended = replace(action, state=FAILED, outcome=error.message)
        except Exception as error:
            _log.exception("%s %s failed", action.what, action.target)
            ended = replace(action, state=FAILED, outcome=f"{type(error).__name__}: {error}")
        uri = self._board.tables[table].uri
        _log.warning("%s: %s %s: %s, %s", uri, ended.what, ended.target, ended.state, ended.outcome)
        with self._guard:
            kept = self._kept[table]
            self._kept[table] = deque((ended if one == action else one for one in kept), maxlen=_KEPT)
        self._show(table)
        self._board.hurry(table)

    def _show(self, table: int) -> None:
        with self._guard:
            shown = [asdict(one) for one in self._kept[table]]
        self._board.tables[table].changes.set_part("actions", shown)
        self._board.tell()

    def _run(self, table: int, service: str) -> str:
        own = self._tables[table]
        options = Call(own.options).services()
        steps = [step for step in Steps(options).of_maintenance() if step.service == service]
        if not steps:
            raise InvalidRequest(f"there is no service {service!r}, or no option turns it on")
        report = maintain_with(self._executor, own.path, options, self._system, steps=steps)
        if not report.ok:
            raise Unavailable("; ".join(str(run) for run in report.failed))
        return "; ".join(str(run) for run in report.runs) or "nothing was due"

    def _call_off(self, table: int, instant: str) -> str:
        own = self._tables[table]
        asked = request_cancel(own.path, instant, own.options, system=self._system)
        if asked is None:
            return "it was aborted before"
        try:
            execute_cancel(own.path, instant, own.options, self._system)
        except Unavailable as error:
            return f"it will never commit; its files stay until its executor stops: {error.message}"
        return "it will never commit, and its files are gone"

    def _break(self, table: int, key: str) -> str:
        storage, options = self._board.tables[table].storage, self._tables[table].options
        recorded = recorded_lock_options(storage)
        with closing(open_recorded_locks(storage.uri, options, recorded, self._system)) as provider:
            owner = next((one.owner for one in provider.holders(key) if one.key == key), "")
            broken = provider.break_(key)
        return f"it was taken from {owner or 'its holder'}" if broken else "it has no holder"
