"""Table maintenance: runs the steps that are due one after the other; a failed one does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.report import DONE, FAILED, MaintenanceReport, ServiceRun
from lakelatch.engine.services.counters import Counters
from lakelatch.engine.services.keeping.lag import tell_done, tell_lag
from lakelatch.engine.services.keeping.steps import Step, Steps
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.manager import open_manager
from lakelatch.engine.table.opening import require_writable
from lakelatch.errors import LakelatchError
from lakelatch.storage.uris import open_storage, without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.telemetry import INSTANT, SERVICE, operation

_NOTHING = "nothing"  # as another writer has done it, or there was nothing to do
_log = logging.getLogger("lakelatch.engine")


def maintain_with(
    executor: Executor,
    path: str,
    options: ServiceOptions,
    system: System = REAL_SYSTEM,
    tell: Callable[[ServiceRun], None] | None = None,
    go_on: Callable[[], bool] = lambda: True,
    steps: list[Step] | None = None,
) -> MaintenanceReport:
    """As `maintain`; `go_on` is called before each job, and `tell` with each result. `steps` are all by default."""
    table = require_writable(open_storage(path, options.manager.storage)).with_base_files(options.base_files)
    with open_manager(table.storage, options.manager, system, config=table.config) as manager:
        steps = Steps(options).of_maintenance() if steps is None else steps
        runs = keep(ServiceContext(table, manager, executor), steps, tell=tell, go_on=go_on)
    return MaintenanceReport(without_secrets(path), runs)


def keep(
    context: ServiceContext,
    steps: Iterable[Step],
    counters: Counters | None = None,
    tell: Callable[[ServiceRun], None] | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[ServiceRun, ...]:
    """Runs each step that is due, one after the other; failures are in the result, and do not stop the others.

    `counters` are current ones, if the caller has them: then no request is made if nothing is due. `go_on` is called
    before each job. Errors: none but those that end the process.
    """
    runs: list[ServiceRun] = []
    for step in steps:
        try:
            counters = counters or context.look()
            tell_lag(context, step.service, counters)
            jobs = list(step.run(context, counters)) if step.due(context, counters) else []
        except Exception as error:
            jobs = [("", partial(_failed, step.service, "", error))]
        for instant, act in jobs:
            if not go_on():
                return tuple(runs)
            run = _timed(context, step.service, instant, act)
            counters = None  # the table may have changed meanwhile
            if run is not None:
                runs.append(run)
                level = logging.WARNING if run.outcome == FAILED else logging.INFO
                _log.log(level, "%s: %s", context.table.storage.uri, run)
                if tell is not None:
                    tell(run)
    return tuple(runs)


def _timed(
    context: ServiceContext, service: str, instant: str, act: Callable[[], ServiceRun | None]
) -> ServiceRun | None:
    system = context.manager.context.system
    started_ns = system.monotonic_ns()
    with operation("service", context.manager.context.labels, {SERVICE: service}) as measured:
        try:
            run = act()
        except Exception as error:  # Spark's own as well
            run = _failed(service, instant, error)
        measured.end_as(_NOTHING if run is None else run.outcome)
        measured.note({INSTANT: run.instant if run is not None else instant})
    if run is not None and run.outcome == DONE:
        tell_done(context, service)
    return None if run is None else replace(run, seconds=(system.monotonic_ns() - started_ns) / 1e9)


def _failed(service: str, instant: str, error: Exception) -> ServiceRun:
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = str(error) if isinstance(error, LakelatchError) else f"{type(error).__name__}: {lines[0] if lines else ''}"
    return ServiceRun(service, FAILED, instant, text)
