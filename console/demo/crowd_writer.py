"""A process of small writers: `python -m lakelatch.console.demo.crowd_writer NAME PLAN`.

Each writer has made a first commit before the clock starts.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import lakelatch
from lakelatch.console.demo.crowd_plan import CrowdPlan, batch_rows
from lakelatch.console.demo.events import Events
from lakelatch.console.demo.plan import PLAN_VARIABLE
from lakelatch.errors import LakelatchError
from lakelatch.system import REAL_SYSTEM

_BEGIN_MAX_S = 300.0
_POLL_S = 0.02


def main() -> int:
    name, plan = sys.argv[1], CrowdPlan.from_json(os.environ[PLAN_VARIABLE])
    writers = plan.writers_of(name)
    try:
        with ThreadPoolExecutor(len(writers)) as threads:
            list(threads.map(lambda writer: _write(plan, writer), writers))
    except LakelatchError as error:
        Events(plan.events_file(name)).add("failed", error=str(error))
        return 1
    return 0


def _write(plan: CrowdPlan, writer: str) -> None:
    """Commits one batch after the other, until the time is over; an error is noted, and the next one comes."""
    events = Events(plan.events_file(writer))
    table = lakelatch.open(plan.table, plan.options(writer))
    table.upsert(batch_rows(writer, 0))
    events.add("ready")
    begin_ms = _begin_ms(plan)
    end_ms = begin_ms + round(plan.seconds * 1000)
    REAL_SYSTEM.sleep(max(begin_ms - REAL_SYSTEM.realtime_ms(), 0) / 1000)
    batch = 0
    while (begun_ms := REAL_SYSTEM.realtime_ms()) < end_ms:
        batch += 1
        rows, began_ns = batch_rows(writer, batch), REAL_SYSTEM.monotonic_ns()
        try:
            result = table.upsert(rows)
        except LakelatchError as error:
            events.add("lost", batch=batch, begun_ms=begun_ms, error=str(error))
            continue
        seconds = (REAL_SYSTEM.monotonic_ns() - began_ns) / 1e9
        told = {"instant": result.instant, "completion": result.completion, "conflicts": result.conflicts_retried}
        events.add("commit", batch=batch, begun_ms=begun_ms, seconds=seconds, **told)


def _begin_ms(plan: CrowdPlan) -> int:
    until_ns = REAL_SYSTEM.monotonic_ns() + int(_BEGIN_MAX_S * 1e9)
    while not plan.begin_file.exists():
        if REAL_SYSTEM.monotonic_ns() > until_ns:
            raise LakelatchError(f"waited {_BEGIN_MAX_S:g} s for the other writers")
        REAL_SYSTEM.sleep(_POLL_S)
    return int(plan.begin_file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
