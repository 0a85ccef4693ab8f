"""`lakelatch compact`, `cluster`, `clean` and `archive`: one round of a table service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.progress import told_to

if TYPE_CHECKING:
    from lakelatch.engine.run.executor import Executor
    from lakelatch.engine.run.result import CommitResult
    from lakelatch.engine.services.removals.cleaning import CleanResult

    Result = TypeVar("Result", CommitResult, CleanResult)

_SHOWN_MAX = 20


def compact(call: Invocation, cores: int) -> Outcome:
    """Executes waiting compactions and another one; a plan that another process executes is shown as waiting."""
    from lakelatch.engine.calls import compact_on, waiting_plans

    results = _rewritten(call, cores, "compact", lambda executor: compact_on(executor, call.table, call.options))

    def describe(result: CommitResult) -> str:
        kind = "log" if result.operation == "log_compact" else "base"
        return f"{len(result.files)} {kind} files, {result.rows_written:,} rows, {result.bytes_written:,} bytes"

    return _show_results(call, "compact", results, describe, waiting_plans(call.table, call.options))


def cluster(call: Invocation, by: Sequence[str] | None, layout: str | None, cores: int) -> Outcome:
    """Executes waiting clusterings and another one; plans of other processes and engines are shown as waiting."""
    from lakelatch.engine.calls import cluster_on
    from lakelatch.engine.services.service import waiting
    from lakelatch.timeline.actions import CLUSTERING
    from lakelatch.timeline.plans.clustering_plan import LAYOUT, SORT_COLUMNS

    said = {SORT_COLUMNS: ",".join(by or ()), LAYOUT: layout}
    options = {**call.options, **{key: value for key, value in said.items() if value}}
    results = _rewritten(call, cores, "cluster", lambda executor: cluster_on(executor, call.table, options))

    def describe(result: CommitResult) -> str:
        groups, rows = f"{result.file_groups_replaced} file groups", f"{result.rows_written:,} rows"
        return f"{groups}, {rows}, {result.bytes_written:,} bytes"

    return _show_results(call, "cluster", results, describe, waiting(call.table, [CLUSTERING], options))


def clean(call: Invocation, dry_run: bool) -> Outcome:
    """Cleans here, without Spark; a clean that another process executes is shown as waiting."""
    from lakelatch.engine.calls import clean_on, preview_clean
    from lakelatch.engine.run.executor import HERE
    from lakelatch.engine.services.service import waiting
    from lakelatch.timeline.actions import CLEAN

    call.open_table()
    if dry_run:
        paths = preview_clean(call.table, call.options)
        for path in paths[:_SHOWN_MAX]:
            call.console.print(path, markup=False, soft_wrap=True)
        call.console.print(f"{len(paths):,} files would go" if paths else "nothing to clean")
        return 0, {"would_remove": list(paths)}
    with call.status("cleaning") as tell, told_to(lambda progress: tell(str(progress))):
        results = clean_on(HERE, call.table, call.options)

    def describe(result: CleanResult) -> str:
        return f"{len(result.files):,} files, {result.bytes_removed:,} bytes"

    return _show_results(call, "clean", results, describe, waiting(call.table, [CLEAN], call.options))


def archive(call: Invocation) -> Outcome:
    """Archives instants, and names the first one that has to stay."""
    from lakelatch.engine import calls

    call.open_table()
    with call.status("archiving"):
        done = calls.archive(call.table, call.options)
    if done.instants:
        call.console.print(f"{len(done.instants):,} instants archived, {done.instants[0]} to {done.instants[-1]}")
    if done.removed:
        call.console.print(f"{len(done.removed):,} files of failed writes removed")
    at = f" at {done.held_at}" if done.held_at else ""
    call.console.print(f"{'the rest' if done.instants else 'everything'} stays{at}: {done.held_by}", markup=False)
    return 0, asdict(done)


def _rewritten(
    call: Invocation, cores: int, verb: str, work: Callable[[Executor], list[CommitResult]]
) -> list[CommitResult]:
    """The results of `work`, whose tasks run here, or in a local session of `--cores`."""
    from lakelatch.console.commands.maintenance.service import LazySession

    call.open_table()
    session = LazySession(f"lakelatch {verb}", cores, call.progress)
    try:
        with call.status("rewriting file groups"):
            return work(session.executor)
    finally:
        session.stop()


def _show_results(
    call: Invocation, verb: str, results: Sequence[Result], describe: Callable[[Result], str], waiting: list[str]
) -> Outcome:
    """Shows the results, as described by `describe`, and the plans that wait for another process or engine."""
    for result in results:
        call.console.print(f"{result.instant} completed at {result.completion}: {describe(result)}")
    for instant in waiting:
        call.console.print(
            f"{instant} waits: another process or engine works on it, or died a moment ago. Try again later"
        )
    if not results and not waiting:
        call.console.print(f"nothing to {verb}")
    return 0, {"completed": [asdict(result) for result in results], "waiting": waiting}
