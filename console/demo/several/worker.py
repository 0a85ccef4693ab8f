"""A process of the demo with `--tables`: `python -m lakelatch.console.demo.several.worker NAME PLAN`."""

from __future__ import annotations

import os
import signal
import sys

import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
from lakelatch.console.demo.events import Events, read_events
from lakelatch.console.demo.plan import PLAN_VARIABLE
from lakelatch.console.demo.several.plan import AFTER, BEFORE, FLIGHTS, READER, SeveralPlan, added
from lakelatch.errors import LakelatchError, Unavailable, WriteConflict
from lakelatch.failpoints import calling
from lakelatch.retry import Backoff, tries
from lakelatch.system import REAL_SYSTEM

_BACKOFF = Backoff(first_s=0.02, longest_s=0.5, jitter=1.0)
_LIVES_FOR = 2  # commits of a writer that is to be killed


def main() -> int:
    name, plan = sys.argv[1], SeveralPlan.from_json(os.environ[PLAN_VARIABLE])
    try:
        if name == READER:
            _read(plan)
        else:
            _Writer(plan, name).write()
    except LakelatchError as error:
        Events(plan.events_file(name)).add("failed", error=str(error))
        return 1
    return 0


class _Writer:
    """Moves its own flights, one batch after the other, each in one transaction with all aggregates."""

    def __init__(self, plan: SeveralPlan, name: str) -> None:
        self._plan, self._name = plan, name
        self._events = Events(plan.events_file(name))
        self._began_before = bool(read_events(plan.events_file(name)))
        self._dies_at = "" if self._began_before else plan.killed.get(name, "")
        self._commits = 0

    def write(self) -> None:
        """Until the time is over; at least one batch, and whoever is to be killed waits for it."""
        end_ns = REAL_SYSTEM.monotonic_ns() + round(self._plan.seconds * 1e9)
        batch = 0  # of the first one the table has to be asked
        while REAL_SYSTEM.monotonic_ns() < end_ns or self._dies_at or not self._commits:
            moved = self._until_committed(batch)
            if not moved:
                return
            batch, self._commits = moved + 1, self._commits + 1

    def _until_committed(self, batch: int) -> int:
        for _ in tries(REAL_SYSTEM, _BACKOFF):
            self._events.add("begun")
            try:
                with calling(self._at, [BEFORE, AFTER]):
                    return self._move(batch)
            except (WriteConflict, Unavailable) as error:  # nothing was committed in any table
                self._events.add("lost", batch=batch, error=str(error))
        raise AssertionError("tries without a limit have ended")

    def _move(self, batch: int) -> int:
        """Moves one batch; the number of it, 0 if there are no more flights."""
        plan = self._plan
        with lakelatch.transaction(list(plan.paths.values()), plan.options(self._name)) as tx:
            if not batch:
                last = self._last_batch(tx.to_arrow(plan.paths[FLIGHTS], ["writer", "batch"]))
                batch = last + 1
                self._events.add("resumed" if self._began_before else "ready", last=last)
            rows = plan.batch(self._name, batch)
            if not rows.num_rows:
                return 0
            tx.upsert(plan.paths[FLIGHTS], rows)
            for name, keys in plan.aggregates.items():
                tx.upsert(plan.paths[name], added(tx.to_arrow(plan.paths[name]), rows, keys))
        times = {name: tx.results[path].completion for name, path in plan.paths.items()}
        self._events.add("commit", batch=batch, times=times)
        return batch

    def _last_batch(self, flights: pa.Table) -> int:
        own = flights.filter(pc.equal(flights["writer"], self._name))
        return pc.max(own["batch"]).as_py() or 0

    def _at(self, point: str) -> None:
        self._events.add("prepared" if point == BEFORE else "decided")
        if point == self._dies_at and self._commits >= _LIVES_FOR:
            self._events.add("killed", point=point)
            os.kill(os.getpid(), signal.SIGKILL)


def _read(plan: SeveralPlan) -> None:
    """Sums up all tables in turns: at one moment of all, and one table after the other."""
    events = Events(plan.events_file(READER))
    while not plan.end_file.exists():
        cut = lakelatch.snapshot(list(plan.paths.values()), plan.extra)
        events.add("cut", sums=[sums_of(cut.to_arrow(path)) for path in plan.paths.values()])
        found = [lakelatch.open(path, plan.extra).to_arrow() for path in plan.paths.values()]
        events.add("one by one", sums=[sums_of(rows) for rows in found])


def sums_of(table: pa.Table) -> list[int]:
    """The flights and the miles of one table."""
    if "distance" in table.column_names:
        return [table.num_rows, pc.sum(table["distance"]).as_py() or 0]
    return [pc.sum(table[name]).as_py() or 0 for name in ("flights", "miles")]


if __name__ == "__main__":
    sys.exit(main())
