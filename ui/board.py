"""The tables of a page, each polled by one thread while somebody looks, however many look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from lakelatch.system import System
from lakelatch.ui.table_watch import OK, TableWatch

_OTHERS = 10  # times as rarely is a table polled of which only the name is shown
_SHARE = 50  # a poll is followed by a pause of so many times its own length at least
_SHARE_MOST_S = 5.0
_FAILURE_MOST_S = 60.0
_READ_NS = 100_000_000  # without a pause
_SHOWN_S = 0.3  # for a browser that begins to look, and needs the processor to show what there is


class Board:
    """All tables, and who looks at them. Threads may share it."""

    def __init__(self, tables: Sequence[TableWatch], every_s: float, system: System) -> None:
        self.tables = tuple(tables)
        self.run = system.new_id()  # versions of another run of this process mean nothing
        self._every_s = every_s
        self._system = system
        self._changed = system.new_condition()
        self._looking: dict[int, int] = dict.fromkeys(range(len(tables)), 0)
        self._callers: list[Callable[[], None]] = []
        self._hurried: set[int] = set()
        self._polled: set[int] = set()  # once at least
        self.closed = False
        self._threads = [
            system.start_thread(partial(self._keep, number), f"lakelatch-ui-{number}") for number in range(len(tables))
        ]

    @contextmanager
    def looking(self, number: int, tell: Callable[[], None]) -> Iterator[None]:
        """Somebody looks at a table within the block; `tell` is called, by any thread, when there is something new."""
        with self._changed:
            self._looking[number] += 1
            self._callers.append(tell)
            self._hurried.add(number)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._looking[number] -= 1
                self._callers.remove(tell)

    def hurry(self, number: int) -> None:
        """Has a table polled at once."""
        with self._changed:
            self._hurried.add(number)
            self._changed.notify_all()

    def since(self, number: int, version: int) -> tuple[int, str]:
        """What has changed of a table since a version of it, as `Changes.since`; nothing before its first poll is over.

        What is shown first decides where a browser looks, so that has to be the whole of it.
        """
        if number not in self._polled:
            return version, ""
        return self.tables[number].changes.since(version, partial(self._head, number))

    def summaries(self) -> list[dict[str, Any]]:
        """What is known of each table as a whole."""
        return [{"number": number, **table.summary} for number, table in enumerate(self.tables)]

    def tell(self) -> None:
        """Tells all who look that there may be something new."""
        with self._changed:
            callers = [*self._callers]
        for call in callers:
            call()

    def close(self) -> None:
        """Ends the threads, and everybody's looking."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self.tell()
        for thread in self._threads:
            thread.join(2.0)
        for table in self.tables:
            table.close()

    def _head(self, number: int) -> dict[str, Any]:
        return {"table": number, "now_ms": self._system.realtime_ms()}

    def _keep(self, number: int) -> None:
        table, failed_s, is_first = self.tables[number], 0.0, True  # for who is about to look
        is_hurried = False
        while is_first or self._wait_for_somebody():
            is_first = False
            before, summary = table.changes.version, table.summary
            began_ns = self._system.monotonic_ns()
            went_well = table.poll()
            took_s = (self._system.monotonic_ns() - began_ns) / 1e9
            self._polled.add(number)
            self._tell_if_changed(table, before, summary)
            failed_s = 0.0 if went_well else min(max(failed_s * 2, self._every_s * 2), _FAILURE_MOST_S)
            every_s = self._every_s * (1 if self._looking[number] else _OTHERS)
            pause_s = max(every_s, min(took_s * _SHARE, _SHARE_MOST_S), failed_s)
            is_hurried = self._pause(number, table, pause_s, _SHOWN_S if is_hurried else 0)

    def _pause(self, number: int, table: TableWatch, pause_s: float, idle_s: float) -> bool:
        """Waits for the next poll; whether somebody hurries it.

        Reads what the files of instants say meanwhile, after some idle time, and half of the time at most.
        """
        system = self._system
        until_ns = system.monotonic_ns() + int(pause_s * 1e9)
        more = table.summary["state"] == OK
        self._wait(number, min(idle_s, pause_s))
        while not self.closed and number not in self._hurried:
            left_s = (until_ns - system.monotonic_ns()) / 1e9
            if left_s <= 0:
                break
            began_ns, before, summary = system.monotonic_ns(), table.changes.version, table.summary
            while more and number not in self._hurried and system.monotonic_ns() - began_ns < _READ_NS:
                more = table.read_some()
            self._tell_if_changed(table, before, summary)
            took_s = (system.monotonic_ns() - began_ns) / 1e9
            self._wait(number, min(left_s, max(took_s, 0.001)) if more else left_s)
        is_hurried = number in self._hurried
        self._hurried.discard(number)
        return is_hurried

    def _wait(self, number: int, wait_s: float) -> None:
        with self._changed:
            if not self.closed and number not in self._hurried:
                self._changed.wait(wait_s)

    def _wait_for_somebody(self) -> bool:
        with self._changed:
            while not self.closed and not self._callers:
                self._changed.wait()
            return not self.closed

    def _tell_if_changed(self, table: TableWatch, version: int, summary: object) -> None:
        if table.changes.version != version or table.summary != summary:
            self.tell()
