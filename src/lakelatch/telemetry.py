"""Measurements and spans through OpenTelemetry, in a process that measures; in any other one nothing at all.

OpenTelemetry is never imported from here: a process that has a provider has imported it, by itself or through
`opentelemetry-instrument`. So one that does not measure needs none of its packages, and pays a lookup for each call.

Nothing here raises, waits for a collector or needs one. Measurements are only added up, and exported by threads of the
SDK's. A span's end may export it at once, so that is left to a thread of our own.
"""

from __future__ import annotations

import atexit
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from importlib.metadata import PackageNotFoundError, version
from queue import SimpleQueue
from sys import modules
from types import TracebackType
from typing import Any, TypeAlias

from lakelatch.system import REAL_SYSTEM, PerProcess

Labels: TypeAlias = Mapping[str, Any]

CALL = "db.client.operation"
COMMITS, SLOTS_LOST, TAKEOVERS = "lakelatch.commits", "lakelatch.slots.lost", "lakelatch.takeovers"
CONFLICTS, LOST_TIME, LOST_SIZE = "lakelatch.conflicts", "lakelatch.conflict.lost_time", "lakelatch.conflict.lost_size"
LOCK_HOLD, SERVICE_LAG = "lakelatch.lock.hold.duration", "lakelatch.service.lag"
TABLE, WRITER, PROVIDER, INSTANT = "lakelatch.table", "lakelatch.writer", "lakelatch.provider", "lakelatch.instant"
ACTION, OUTCOME, STRATEGY, EARLY = "lakelatch.action", "lakelatch.outcome", "lakelatch.strategy", "lakelatch.early"
SERVICE, TAKEN = "lakelatch.service", "lakelatch.taken"
SYSTEM_NAME, OPERATION_NAME, ERROR_TYPE = "db.system.name", "db.operation.name", "error.type"

_COUNTER, _GAUGE, _HISTOGRAM = "counter", "gauge", "histogram"
_OF_CALLS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)  # as OpenTelemetry's conventions want them
_OF_WORK_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
#: All that is measured: its kind, its unit, and what it says.
INSTRUMENTS: Mapping[str, tuple[str, str, str]] = {
    f"{CALL}.duration": (_HISTOGRAM, "s", "Calls of lock services and storages."),
    "lakelatch.write.duration": (_HISTOGRAM, "s", "Writes, with all their tries, from the first beginning on."),
    "lakelatch.begin.duration": (_HISTOGRAM, "s", "Beginnings of transactions."),
    "lakelatch.rows.duration": (_HISTOGRAM, "s", "Rows becoming files, as the driver waits for them."),
    "lakelatch.commit.duration": (_HISTOGRAM, "s", "Tries to put a commit into the log, with their wait for the lock."),
    "lakelatch.conflict.duration": (_HISTOGRAM, "s", "Waits between a try that lost and the next one."),
    "lakelatch.rollback.duration": (_HISTOGRAM, "s", "Rollbacks being carried out."),
    "lakelatch.service.duration": (_HISTOGRAM, "s", "Runs of table services."),
    "lakelatch.lock.wait.duration": (_HISTOGRAM, "s", "Waits for the table's lock."),
    LOCK_HOLD: (_HISTOGRAM, "s", "How long the table's lock was held."),
    COMMITS: (_COUNTER, "{commit}", "Completed instants."),
    CONFLICTS: (_COUNTER, "{conflict}", "Tries that lost to another write, as `lakelatch conflicts` lists them."),
    LOST_TIME: (_COUNTER, "s", "Time from the beginning of tries that lost until they lost."),
    LOST_SIZE: (_COUNTER, "By", "Bytes of files that tries had written which lost."),
    SLOTS_LOST: (_COUNTER, "{slot}", "Places in the log that others took first."),
    TAKEOVERS: (_COUNTER, "{instant}", "Writes of dead writers rolled back, and plans of dead executors taken over."),
    SERVICE_LAG: (_GAUGE, "s", "From the oldest write that no run of a service has taken in to the newest one."),
}
_METRICS, _TRACE = "opentelemetry.sdk.metrics", "opentelemetry.trace"  # one or the other is there before a provider is
_OF_API = "opentelemetry.metrics", "opentelemetry.trace"
_ENDS_MAX = 1000  # spans that wait for their end; more are lost
_PATIENCE_S, _EXIT_PATIENCE_S = 0.05, 1.0
_log = logging.getLogger("lakelatch")


def record(name: str, value: float, labels: Labels) -> None:
    """Adds to a counter or a histogram, or sets a gauge."""
    instruments = _instruments()
    if instruments is not None:
        try:
            instruments[name](value, labels)
        except Exception as error:
            _tell(error)


def measures() -> bool:
    """Whether this process has a provider of metrics; for what costs something to find out."""
    return _instruments() is not None


class Operation:
    """A block that is measured: a span, and a duration under the same name. This one is neither."""

    def end_as(self, outcome: str) -> None:
        """Says how it has ended, with the duration as well."""

    def note(self, details: Labels) -> None:
        """Says more with the span alone: instants, for example."""

    def __enter__(self) -> Operation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


_UNMEASURED = Operation()


def operation(name: str, labels: Labels, more: Labels | None = None) -> Operation:
    """An operation of the product, as a context manager: the span `lakelatch.<name>`, and its duration.

    `labels` and `more` have few values each: they are the attributes of both.
    """
    if _METRICS not in modules and _TRACE not in modules:
        return _UNMEASURED
    try:
        tracer = _tracer()
    except Exception as error:
        _tell(error)
        return _UNMEASURED
    if tracer is None and not measures():
        return _UNMEASURED
    return _Measured(f"lakelatch.{name}", {**labels, **(more or {})}, tracer)


_within: ContextVar[bool] = ContextVar("lakelatch_within", default=False)


class _Measured(Operation):
    def __init__(self, name: str, labels: dict[str, Any], tracer: Any) -> None:
        self._name, self._labels, self._tracer = name, labels, tracer
        self._span: Any = None
        self._token: Any = None
        self._outer: Any = None

    def end_as(self, outcome: str) -> None:
        self._labels[OUTCOME] = outcome.replace(" ", "_")
        self.note({OUTCOME: self._labels[OUTCOME]})

    def note(self, details: Labels) -> None:
        if self._span is not None:
            try:
                self._span.set_attributes(details)
            except Exception as error:
                _tell(error)

    def __enter__(self) -> Operation:
        self._began_ns = REAL_SYSTEM.monotonic_ns()
        if self._tracer is not None:
            self._stamp_ns = REAL_SYSTEM.realtime_ms() * 1_000_000
            try:
                from opentelemetry import context, trace

                self._span = self._tracer.start_span(self._name, attributes=self._labels, start_time=self._stamp_ns)
                self._token = context.attach(trace.set_span_in_context(self._span))
            except Exception as error:
                _tell(error)
            self._outer = _within.set(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took_ns = REAL_SYSTEM.monotonic_ns() - self._began_ns
        if kind is not None:
            self._labels[ERROR_TYPE] = kind.__name__
        record(f"{self._name}.duration", took_ns / 1e9, self._labels)
        if self._outer is not None:
            _within.reset(self._outer)
        if self._span is not None:
            try:
                self._end(took_ns, kind)
            except Exception as failure:
                _tell(failure)

    def _end(self, took_ns: int, kind: type[BaseException] | None) -> None:
        from opentelemetry import context
        from opentelemetry.trace import StatusCode

        if self._token is not None:
            context.detach(self._token)
        if kind is not None:  # not its text, which may name files and rows
            self._span.set_attribute(ERROR_TYPE, kind.__name__)
            self._span.set_status(StatusCode.ERROR)
        _ends().add(partial(self._span.end, self._stamp_ns + took_ns), is_outermost=not _within.get())


class _Ends:
    """Ends spans in a thread, one after the other. Behind an exporter that hangs, spans are lost and no time."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._guard = threading.Lock()
        self._is_slow = False
        self.began = False

    def add(self, end: Callable[[], object], is_outermost: bool) -> None:
        """After the outermost span of a thread this waits a moment, so that the process may then flush its provider.

        Not any more once that moment was too short.
        """
        if self._waiting.qsize() >= _ENDS_MAX:
            return
        with self._guard:
            if not self.began:
                REAL_SYSTEM.start_thread(self._run, "lakelatch-telemetry")
                atexit.register(_drain_at_exit)  # after the SDK's own, so it is called before that
                self.began = True
        self._waiting.put(end)
        if is_outermost and not self._is_slow:
            self._is_slow = not self.drain(_PATIENCE_S)

    def drain(self, patience_s: float) -> bool:
        """Waits until all spans so far have ended; False if that takes longer."""
        done = threading.Event()
        self._waiting.put(done.set)
        return done.wait(patience_s)

    def _run(self) -> None:
        while True:
            end = self._waiting.get()
            try:
                end()
            except Exception as error:
                _tell(error)


_ends = PerProcess(_Ends)


def _drain_at_exit() -> None:
    ends = _ends()
    if ends.began:  # not in a forked child, which inherits the call
        ends.drain(_EXIT_PATIENCE_S)


def measure_calls(owner: type, names: Iterable[str]) -> None:
    """Has the calls of these methods that a class defines measured, as operations of its instances' `system_name`.

    A call within another one in the same thread is not measured a second time.
    """
    for name in names:
        if name in vars(owner):
            setattr(owner, name, _measured(name, vars(owner)[name]))


_call = threading.local()


def _measured(name: str, call: Any) -> Any:
    @wraps(call)
    def measured(self: Any, *given: Any, **named: Any) -> Any:
        if _METRICS not in modules or getattr(_call, "under_way", False) or not measures():
            return call(self, *given, **named)
        labels: dict[str, Any] = {SYSTEM_NAME: self.system_name, OPERATION_NAME: name}
        began_ns, _call.under_way = REAL_SYSTEM.monotonic_ns(), True
        try:
            return call(self, *given, **named)
        except BaseException as error:
            labels[ERROR_TYPE] = type(error).__name__
            raise
        finally:
            _call.under_way = False
            record(f"{CALL}.duration", (REAL_SYSTEM.monotonic_ns() - began_ns) / 1e9, labels)

    return measured


def kind_name(kind: type, suffix: str = "") -> str:
    """The name of a class without what all of its kind end with, in the form of options: `prefer_writer`."""
    return _words(kind.__name__.removesuffix(suffix))


@lru_cache(maxsize=256)
def _words(name: str) -> str:
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


_known_meters: tuple[object, Mapping[str, Callable[[float, Labels], None]] | None] = (None, None)
_known_tracer: tuple[object, Any] = (None, None)


def _instruments() -> Mapping[str, Callable[[float, Labels], None]] | None:
    global _known_meters
    if _METRICS not in modules:
        return None
    try:
        find = getattr(modules.get("opentelemetry.metrics"), "get_meter_provider", None)
        if find is None:  # another thread is just importing it, as clients of services do
            return None
        provider = find()
        if provider is not _known_meters[0]:
            made = None if _is_of_api(provider) else _make_instruments(provider.get_meter("lakelatch", _version()))
            _known_meters = (provider, made)
        return _known_meters[1]
    except Exception as error:
        _tell(error)
        return None


def _tracer() -> Any:
    global _known_tracer
    if _TRACE not in modules:
        return None
    find = getattr(modules[_TRACE], "get_tracer_provider", None)
    if find is None:
        return None
    provider = find()
    if provider is not _known_tracer[0]:
        made = None if _is_of_api(provider) else provider.get_tracer("lakelatch", _version())
        _known_tracer = (provider, made)
    return _known_tracer[1]


def _is_of_api(provider: object) -> bool:
    """Whether the provider is one of those that stand in for an SDK, and measure nothing."""
    return type(provider).__module__.startswith(_OF_API)


def _make_instruments(meter: Any) -> Mapping[str, Callable[[float, Labels], None]]:
    made: dict[str, Callable[[float, Labels], None]] = {}
    for name, (kind, unit, what) in INSTRUMENTS.items():
        if kind == _COUNTER:
            made[name] = meter.create_counter(name, unit, what).add
        elif kind == _GAUGE:
            made[name] = meter.create_gauge(name, unit, what).set
        else:
            bounds = _OF_CALLS_S if name.startswith(CALL) else _OF_WORK_S
            made[name] = meter.create_histogram(name, unit, what, explicit_bucket_boundaries_advisory=bounds).record
    return made


def _version() -> str:
    try:
        return version("lakelatch")
    except PackageNotFoundError:
        return ""


_told: set[str] = set()


def _tell(error: Exception) -> None:
    """Says once of each kind of error that something is not measured."""
    kind = type(error).__name__
    if kind not in _told:
        _told.add(kind)
        _log.warning("OpenTelemetry failed, and some of what this process does is not measured: %s: %s", kind, error)
