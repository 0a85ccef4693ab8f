"""A process that writes a table and measures: `measured_writer.py TABLE EXPORTER [PORT]`, one of those below.

It is a process of its own, since providers are set once in each.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
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
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import lakelatch
from lakelatch.console.main import main as console
from lakelatch.failpoints import calling
from lakelatch.storage import LocalStorage

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
    with redirect_stdout(sys.stderr):
        assert console(["compact", path]) == 0
    _die(path)


def _conflict(table: Any, other: Any) -> None:
    left = [other]

    def come_first(name: str) -> None:
        if left:
            left.pop().upsert(ROWS)

    with calling(come_first, ["commit.before_slot"]):
        table.upsert(ROWS)


def _die(path: str) -> None:
    from bare_table import expire
    from table import BuiltTable

    table = BuiltTable.at(LocalStorage(path), OPTIONS)
    writing = table.begin()
    writing.die()
    expire(table.storage, writing.instant)
    assert table.manager().recover() == [writing.instant]


def in_memory(path: str) -> None:
    """Prints spans and measurements."""
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    _set(reader, exporter)
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


def broken(how: Callable[[], None]) -> Callable[[str], None]:
    """Commits twenty times with exporters of both kinds that do this."""

    class Spans(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            how()
            return SpanExportResult.FAILURE

    class Metrics(MetricExporter):
        def export(self, metrics_data: Any, timeout_millis: float = 0, **more: Any) -> MetricExportResult:
            how()
            return MetricExportResult.FAILURE

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **more: Any) -> None:
            return None

    def run(path: str) -> None:
        _set(PeriodicExportingMetricReader(Metrics(), export_interval_millis=20), Spans())
        table = lakelatch.ArrowTable(path, OPTIONS)
        for number in range(20):
            table.upsert(pa.table({"id": [number], "v": ["x"]}))
        print(json.dumps({"rows": table.to_arrow().num_rows}))

    return run


def _raise() -> None:
    raise RuntimeError("the collector is gone")


def _hang() -> None:
    threading.Event().wait()


def on_port(path: str) -> None:
    """Shows Prometheus what it measures, until its input ends."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import start_http_server

    _set(PrometheusMetricReader(), InMemorySpanExporter())
    start_http_server(int(sys.argv[3]), "127.0.0.1")
    work(path)
    print("ready", flush=True)
    sys.stdin.read()


def _set(reader: Any, exporter: SpanExporter) -> None:
    # Without their waits at the end of the process, which are the SDK's.
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
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
    "raises": broken(_raise),
    "hangs": broken(_hang),
    "prometheus": on_port,
}

if __name__ == "__main__":
    EXPORTERS[sys.argv[2]](sys.argv[1])
