"""Maintaining many tables, one after the other, until stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakelatch.engine.run.report import MaintenanceReport, ServiceRun
from lakelatch.errors import LakelatchError
from lakelatch.retry import Backoff
from lakelatch.system import REAL_SYSTEM, System

_LONGEST_S = 3600.0
_NAP_S = 0.25  # between two checks whether to stop


@dataclass
class TableState:
    """One table: its rounds, its failures in a row, and when it is due, by the monotonic clock."""

    path: str
    due_ns: int
    rounds: int = 0
    done: int = 0
    failures: int = 0
    failed: int = 0
    last_error: str = ""

    def to_json(self) -> dict[str, object]:
        return {
            "table": self.path,
            "rounds": self.rounds,
            "done": self.done,
            "failed": self.failed,
            "last_error": self.last_error,
        }


@dataclass
class ServiceLoop:
    """Calls `maintain` for one table after another, with callbacks after each service and before; `say` prints a line.

    A table with a failure waits twice as long after each one, at most an hour or `every_s`; others do not wait for it.
    """

    every_s: int
    maintain: Callable[[str, Callable[[ServiceRun], None], Callable[[], bool]], MaintenanceReport]
    say: Callable[[str], None]
    system: System = REAL_SYSTEM
    tables: list[TableState] = field(default_factory=list)
    _stopped: bool = False

    def stop(self) -> None:
        """Ends the loop after the running service. May be called from a signal's handler."""
        self._stopped = True

    def run(self, paths: Sequence[str], once: bool = False) -> bool:
        """Runs rounds until `stop`, or one; returns whether the last round of every table had no failure."""
        self.tables = [TableState(path, self.system.monotonic_ns()) for path in paths]
        while not self._stopped:
            state = min(self.tables, key=lambda found: found.due_ns)
            if not self._wait_until(state.due_ns):
                break
            self._round(state)
            if once and all(found.rounds for found in self.tables):
                break
        return not any(found.failures for found in self.tables)

    def _wait_until(self, due_ns: int) -> bool:
        while not self._stopped and (left_s := (due_ns - self.system.monotonic_ns()) / 1e9) > 0:
            self.system.sleep(min(left_s, _NAP_S))
        return not self._stopped

    def _round(self, state: TableState) -> None:
        began_ns = self.system.monotonic_ns()
        try:
            report = self.maintain(state.path, lambda run: self.say(f"{state.path}: {run}"), lambda: not self._stopped)
            error = report.failed[-1].detail if report.failed else ""
            state.done += sum(run not in report.failed for run in report.runs)
        except LakelatchError as failure:
            error = str(failure)
            self.say(f"{state.path}: {error}")
        except Exception as failure:  # must not stop the other tables
            error = f"{type(failure).__name__}: {failure}"
            self.say(f"{state.path}: {error}")
        state.rounds += 1
        wait_s: float = self.every_s
        state.failures = state.failures + 1 if error else 0
        if error:
            state.failed, state.last_error = state.failed + 1, error
            longest_s = max(_LONGEST_S, float(self.every_s))
            wait_s = Backoff(2.0 * self.every_s, longest_s, jitter=0).wait_s(state.failures, self.system)
            self.say(f"{state.path}: {_times(state.failures)} in a row something failed; again in {wait_s:g} s")
        state.due_ns = began_ns + int(wait_s * 1e9)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
