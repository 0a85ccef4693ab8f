"""`lakelatch demo`: several Spark jobs write one table of real flights, small writers one of batches, or several."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lakelatch.console.base.exit_codes import WrongCall
from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider

_MODE, _COMMITS, _SECONDS, _WRITERS = "nbcc", 6, 10.0, 4


def run(call: Invocation, **given: Any) -> Outcome:
    """Runs the demo; 1 if one of its checks fails."""
    parsed = SimpleNamespace(**given, options=dict(call.options))
    _refuse_other_demos(parsed)
    if parsed.table_count is not None:
        return _run_several(parsed, call)
    return _run_flights(parsed, call) if parsed.writers is None else _run_crowd(parsed, call)


def _run_flights(parsed: SimpleNamespace, call: Invocation) -> Outcome:
    from lakelatch.console.demo.plan import DemoPlan
    from lakelatch.console.demo.run import print_report, run_demo

    commits = _COMMITS if parsed.commits is None else parsed.commits
    plan = DemoPlan(
        _folder(parsed),
        parsed.mode or _MODE,
        commits,
        parsed.buckets,
        parsed.rows,
        parsed.services,
        parsed.options,
        parsed.place or "",
    )
    open_lock_provider(LockScope(plan.storage.uri, plan.extra)).close()  # refuses a mistake before anything runs
    report = run_demo(plan, call.notes)
    print_report(report, call.console)
    return (0 if report.ok else 1), report.to_json()


def _run_crowd(parsed: SimpleNamespace, call: Invocation) -> Outcome:
    from lakelatch.console.demo.crowd import print_crowd, run_crowd
    from lakelatch.console.demo.crowd_plan import CrowdPlan

    plan = CrowdPlan(
        _folder(parsed),
        parsed.mode or _MODE,
        buckets=parsed.buckets,
        extra=parsed.options,
        place=parsed.place or "",
        writers=parsed.writers,
        seconds=_SECONDS if parsed.seconds is None else parsed.seconds,
    )
    report = run_crowd(plan, call.notes)
    print_crowd(report, call.console)
    return (0 if report.ok else 1), report.to_json()


def _run_several(parsed: SimpleNamespace, call: Invocation) -> Outcome:
    from lakelatch.console.demo.several.plan import TABLES_MOST, SeveralPlan
    from lakelatch.console.demo.several.run import print_several, run_several

    if parsed.table_count > TABLES_MOST:
        raise WrongCall(f"--tables {parsed.table_count} is too large: use at most {TABLES_MOST}")
    plan = SeveralPlan(
        _folder(parsed),
        buckets=parsed.buckets,
        extra=parsed.options,
        place=parsed.place or "",
        tables=parsed.table_count,
        writers=_WRITERS if parsed.writers is None else parsed.writers,
        seconds=_SECONDS if parsed.seconds is None else parsed.seconds,
    )
    report = run_several(plan, call.notes)
    print_several(report, call.console)
    return (0 if report.ok else 1), report.to_json()


def _folder(parsed: SimpleNamespace) -> str:
    return str(Path(parsed.folder).absolute())


def _refuse_other_demos(parsed: SimpleNamespace) -> None:
    """`WrongCall` for what belongs to the demo with flights beside `--writers` or `--tables`, and so on."""
    of_flights = {"--commits": parsed.commits, "--rows": parsed.rows, "--services": parsed.services or None}
    other = "--tables" if parsed.table_count is not None else "--writers" if parsed.writers is not None else ""
    for name, value in of_flights.items():
        if other and value is not None:
            raise WrongCall(f"{name} is for the demo with flights: leave out {name} or {other}")
    if not other and parsed.seconds is not None:
        raise WrongCall("--seconds says how long small writers write: name their number with --writers")
    if parsed.table_count is not None and parsed.mode == "nbcc":
        raise WrongCall(
            "--mode nbcc: the writers of --tables add to rows that they have read, so that one of two has to lose: "
            "leave it out"
        )
