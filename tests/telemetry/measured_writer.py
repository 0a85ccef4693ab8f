"""A process that writes a table and measures: `measured_writer.py TABLE EXPORTER [MORE]`, one of those below.

It is a process of its own, since providers are set once in each.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import lakelatch
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.errors import Unavailable
from lakelatch.failpoints import calling
from lakelatch.locks.contract import LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import PREFIX, PROVIDER
from lakelatch.storage import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.telemetry import _drain_at_exit
from lakelatch.testing.ports import free_port
from lakelatch.transactions.manager import TransactionManager

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.num.retries.on.conflict.failures": "2",
    "hoodie.bucket.index.num.buckets": "1",
}
COMPACTS = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
BY_LOCK = {"lakelatch.lock.elision": "off"}
ROWS = pa.table({"id": [1], "v": ["x"]})


def work(path: str) -> None:
    """A commit by the lock, a conflict, a compaction, and a dead writer that the next one rolls back."""
    table = lakelatch.ArrowTable(path, {**OPTIONS, "lakelatch.writer.name": "first"})
    table.upsert(ROWS, BY_LOCK)
    _conflict(table, lakelatch.ArrowTable(path, {**OPTIONS, "lakelatch.writer.name": "second"}))
    table.upsert(ROWS, COMPACTS)
    table.upsert(ROWS)
    _compact_and_die(path)


def _conflict(table: Any, other: Any) -> None:
    left = [other]

    def come_first(name: str) -> None:
        if left:
            left.pop().upsert(ROWS)

    with calling(come_first, ["commit.before_slot"]):
        table.upsert(ROWS)


def _compact_and_die(path: str) -> None:
    from bare_table import expire
    from table import BuiltTable

    table = BuiltTable.at(LocalStorage(path), OPTIONS)

    def manager() -> TransactionManager:
        return table.manager(provider=open_lock_provider(LockScope(table.storage.uri, OPTIONS)))

    assert len(Compaction().run(table.context(manager=manager()))) == 1
    writing = table.begin(manager=manager())
    writing.die()
    expire(table.storage, writing.instant)
    assert manager().recover() == [writing.instant]


def _ask_in_vain(path: str) -> None:
    """A call of a lock service that is not there."""
    options = {PROVIDER: "redis", f"{PREFIX}redis.url": f"redis://127.0.0.1:{free_port()}"}
    with closing(open_lock_provider(LockScope(path, options))) as provider, suppress(Unavailable):
        provider.holders()


def in_memory(path: str) -> None:
    """Prints spans and measurements; by the locks of these options."""
    OPTIONS.update(json.loads(sys.argv[3]))
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    _set(reader, SimpleSpanProcessor(exporter))
    work(path)
    spans = exporter.get_finished_spans()
    names = {one.context.span_id: one.name for one in spans}
    shown = [
        {
            "name": one.name,
            "in": names.get(one.parent.span_id) if one.parent else None,
            "ns": (one.end_time or 0) - (one.start_time or 0),
            **(one.attributes or {}),
        }
        for one in spans
    ]
    print(json.dumps({"spans": shown, "points": _points(reader)}))


class Broken(MetricExporter, SpanProcessor):
    """Does this whenever anything is exported, a span begins, or one ends."""

    def __init__(self, how: Callable[[], None], also_at_begin: bool) -> None:
        super().__init__()
        self._how, self._also_at_begin = how, also_at_begin

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self._also_at_begin:
            self._how()

    def on_end(self, span: Any) -> None:
        self._how()

    def export(self, metrics_data: Any, timeout_millis: float = 0, **more: Any) -> MetricExportResult:
        self._how()
        return MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **more: Any) -> None:
        return None


def broken(how: Callable[[], None], also_at_begin: bool) -> Callable[[str], None]:
    """Commits twenty times with exporters of both kinds that do this."""

    def run(path: str) -> None:
        exporter = Broken(how, also_at_begin)
        _set(PeriodicExportingMetricReader(exporter, export_interval_millis=20), exporter)
        table = lakelatch.ArrowTable(path, OPTIONS)
        for number in range(20):
            table.upsert(pa.table({"id": [number], "v": ["x"]}))
        print(json.dumps({"rows": table.to_arrow().num_rows, "child ends": _child_ends_at_once()}))

    return run


def _child_ends_at_once() -> bool:
    """Whether a forked child does not wait for a thread that only its parent has."""
    child = os.fork()
    if not child:
        began_ns = REAL_SYSTEM.monotonic_ns()
        _drain_at_exit()
        os._exit(REAL_SYSTEM.monotonic_ns() - began_ns > 500_000_000)
    return os.waitpid(child, 0)[1] == 0


def _raise() -> None:
    raise RuntimeError("the collector is gone")


def _hang() -> None:
    threading.Event().wait()


def on_port(path: str) -> None:
    """Shows Prometheus what it measures, until its input ends."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import start_http_server

    _set(PrometheusMetricReader(), SimpleSpanProcessor(InMemorySpanExporter()))
    start_http_server(int(sys.argv[3]), "127.0.0.1")
    work(path)
    _ask_in_vain(path)
    print("ready", flush=True)
    sys.stdin.read()


def _set(reader: Any, spans: SpanProcessor) -> None:
    # Without their waits at the end of the process, which are the SDK's.
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(spans)
    trace.set_tracer_provider(tracers)


def _points(reader: InMemoryMetricReader) -> list[dict[str, Any]]:
    data = reader.get_metrics_data()
    assert data is not None
    found = [one for of in data.resource_metrics for scope in of.scope_metrics for one in scope.metrics]
    return [
        {"name": one.name, "unit": one.unit, "sum": getattr(point, "sum", getattr(point, "value", None))}
        | dict(point.attributes or {})
        for one in found
        for point in one.data.data_points
    ]


EXPORTERS: dict[str, Callable[[str], None]] = {
    "memory": in_memory,
    "raises": broken(_raise, also_at_begin=True),
    "hangs": broken(_hang, also_at_begin=False),
    "prometheus": on_port,
}

if __name__ == "__main__":
    EXPORTERS[sys.argv[2]](sys.argv[1])
