"""`lakelatch service run`: maintains tables, round after round."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.console.base.places import with_tables_nearby
from lakelatch.console.commands.maintenance.service_loop import ServiceLoop
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.run.report import MaintenanceReport, ServiceRun
from lakelatch.engine.services.keeping.maintenance import maintain_with
from lakelatch.errors import LakelatchError
from lakelatch.spark.session.executor import SparkExecutor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_loop(call: Invocation, every_s: int, once: bool, cores: int) -> Outcome:
    """Runs until SIGTERM or SIGINT; the running service is finished first."""
    given = {table.path: table.options for table in call.tables}
    options = {path: Call(values).services() for path, values in given.items()}
    session = LazySession("lakelatch service", cores, call.progress)

    def maintain(path: str, tell: Callable[[ServiceRun], None], go_on: Callable[[], bool]) -> MaintenanceReport:
        try:
            return maintain_with(session.executor, path, options[path], tell=tell, go_on=go_on)
        except LakelatchError as error:
            raise with_tables_nearby(error, path, given[path]) from error

    loop = ServiceLoop(every_s, maintain, lambda line: call.notes.print(escape(line), soft_wrap=True))
    try:
        with stopped_by_signals(loop.stop):
            well = loop.run(list(given), once)
    finally:
        session.stop()
    if once and not any(state.done or state.failed for state in loop.tables):
        call.notes.print("nothing was due")
    return (0 if well or not once else 1), [state.to_json() for state in loop.tables]


class LazySession:
    """A local Spark session that is opened when a service first needs it; most rounds need none."""

    def __init__(self, name: str, cores: int, progress: bool) -> None:
        self._name = name
        self._cores = cores
        self._progress = progress
        self._session: SparkSession | None = None
        self.executor: Executor = SparkExecutor(cache(self._open)) if cores else HERE

    def _open(self) -> SparkSession:
        from lakelatch.spark.session.local_session import open_session

        self._session = open_session(self._name, self._cores, 1024, self._progress)
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Makes SIGTERM and SIGINT call `stop`; a second one of the same kind has its default effect."""
    kept: dict[signal.Signals, Any] = {}

    def handle(number: int, _: FrameType | None) -> None:
        stop()
        signal.signal(number, kept[signal.Signals(number)])

    for number in _SIGNALS:
        kept[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, before in kept.items():
            signal.signal(number, before)
