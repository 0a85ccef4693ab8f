"""What measuring costs a commit of ten rows: the CPU time of commits with and without its seams, in turns.

*off* is a process that has OpenTelemetry's API imported and no SDK, which pays most of those that do not measure; *on*
has an SDK whose metrics nobody reads and whose spans are exported into nothing. The floor is the same commit without
the seams: storages' methods as they were written, and blocks that are not measured.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import Result
from bench.locks.common import main, print_table, short
from bench.nbcc_peers import NbccWriter
from bench.nbcc_writers import BATCHES, cpu_ms, rows_of

from lakelatch import telemetry
from lakelatch.storage.local import LocalStorage

OFF, ON = "off", "on"
_PAIRS, _QUICK_PAIRS = 600, 100
_FIRST = 20
_GOAL = 0.01


def run(quick: bool = False, which: tuple[str, ...] = (OFF, ON)) -> list[Result]:
    import opentelemetry.metrics
    import opentelemetry.trace  # noqa: F401 - imported, and no provider set

    results = [_result(OFF, *_pairs(_QUICK_PAIRS if quick else _PAIRS))] if OFF in which else []
    if ON in which:
        _set_providers()
        results.append(_result(ON, *_pairs(_QUICK_PAIRS if quick else _PAIRS)))
    return results


def _pairs(pairs: int) -> tuple[list[float], list[float]]:
    """The CPU milliseconds of commits with the seams, and without."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        writer = NbccWriter(f"{folder}/table")

        def commit(name: str) -> float:
            rows = rows_of(name, 0, BATCHES)
            before_ms = cpu_ms()
            writer.add(rows)
            return cpu_ms() - before_ms

        for number in range(_FIRST):
            commit(f"first-{number}")
        found: dict[bool, list[float]] = {True: [], False: []}
        for number in range(pairs):
            for measured in (True, False) if number % 2 else (False, True):
                if measured:
                    found[True].append(commit(f"{number}-with"))
                else:
                    with _without_seams():
                        found[False].append(commit(f"{number}-without"))
    return found[True], found[False]


@contextmanager
def _without_seams() -> Iterator[None]:
    changed: list[tuple[Any, str, Any]] = []

    def change(owner: Any, name: str, value: Any) -> None:
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    unmeasured = telemetry.Operation()
    stand_ins: dict[Any, Callable[..., Any]] = {
        telemetry.operation: lambda *_: unmeasured,
        telemetry.record: lambda *_: None,
        telemetry.measures: lambda: False,
    }
    for name, method in list(vars(LocalStorage).items()):
        if _is_measured(method):
            change(LocalStorage, name, method.__wrapped__)
    for module in [module for name, module in sys.modules.items() if name.startswith("lakelatch.")]:
        for name in ("operation", "record", "measures"):
            if vars(module).get(name) in stand_ins and module is not telemetry:
                change(module, name, stand_ins[vars(module)[name]])
    try:
        yield
    finally:
        for owner, name, value in changed:
            setattr(owner, name, value)


def _is_measured(method: Any) -> bool:
    return hasattr(method, "__wrapped__") and method.__code__.co_filename == telemetry.__file__


def _set_providers() -> None:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nothing(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nothing()))
    trace.set_tracer_provider(provider)


def _result(which: str, with_ms: list[float], without_ms: list[float]) -> Result:
    # Medians of pairs: a garbage collection or a neighbour falls into one of the two.
    more = statistics.median([one - other for one, other in zip(with_ms, without_ms, strict=True)])
    floor_ms = statistics.median(without_ms)
    share = more / floor_ms
    lines = [(short(statistics.median(with_ms)), short(floor_ms), f"{share:.2%}")]
    print_table(f"CPU of a commit, {which}, {len(with_ms)} pairs", ("ms", "without seams", "more"), lines, [])
    goal, met = (f"{_GOAL:.0%}", share <= _GOAL) if which == OFF else ("none", True)
    value_ms = round(floor_ms + more, 3)
    return Result(
        f"metrics_{which}", value_ms, "ms", round(floor_ms, 3), None, round(1 + share, 4), goal, met, f"{share:.2%}"
    )


if __name__ == "__main__":
    main(run, (OFF, ON))
