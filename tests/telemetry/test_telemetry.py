"""What a process measures, and that it never pays with a commit for it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bare_table import manager_of
from live_table import LiveTable
from metrics_page import metric_rows

from lakelatch.engine.services.keeping.lag import lag_s
from lakelatch.storage.memory import MemoryStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.telemetry import INSTRUMENTS, _Ends
from lakelatch.testing.servers import open_server
from lakelatch.testing.servers.reach import lock_options
from lakelatch.timeline.actions import CLUSTERING, COMPACTION

WRITER = Path(__file__).parent / "measured_writer.py"
LIMIT_S = 120


def output_of(*command: str) -> str:
    """The last line of what a process prints."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What a writer with Redis' locks has measured."""
    folder = tmp_path_factory.mktemp("measured")
    with closing(open_server("redis", folder / "redis")) as server:
        options = json.dumps(lock_options(server))
        found: dict[str, list[dict[str, Any]]]
        found = json.loads(output_of(str(WRITER), str(folder / "table"), "memory", options))
    return found


def test_each_step_of_a_write_has_a_span(measured: dict[str, list[dict[str, Any]]]) -> None:
    spans = measured["spans"]
    inside = {(one["name"], one["in"]) for one in spans}
    assert inside >= {
        ("lakelatch.write", None),
        ("lakelatch.begin", "lakelatch.write"),
        ("lakelatch.rows", "lakelatch.write"),
        ("lakelatch.commit", "lakelatch.write"),
        ("lakelatch.lock.wait", "lakelatch.commit"),
        ("lakelatch.conflict", "lakelatch.write"),
        ("lakelatch.rollback", "lakelatch.write"),
        ("lakelatch.service", None),
        ("lakelatch.commit", "lakelatch.service"),
        ("lakelatch.rollback", None),
    }
    (conflict,) = (one for one in spans if one["name"] == "lakelatch.conflict")
    (lost,) = (one for one in spans if one.get("lakelatch.outcome") == "conflicted")
    commits = [one for one in spans if one["name"] == "lakelatch.commit"]
    won = [one for one in commits if one["lakelatch.instant"] == conflict["lakelatch.winner"]]
    assert conflict["lakelatch.instant"] == lost["lakelatch.instant"]
    assert [one["lakelatch.outcome"] for one in won] == ["committed"]
    assert conflict["lakelatch.winner_writer"] == "second" and conflict["lakelatch.bytes_lost"] > 0
    assert [one["lakelatch.outcome"] for one in spans if one["name"] == "lakelatch.service"] == ["done", "done"]
    assert all(one["ns"] > 0 and one["lakelatch.table"].endswith("/table") for one in spans)


def test_measurements_say_what_happened(measured: dict[str, list[dict[str, Any]]]) -> None:
    def total(name: str, **labels: object) -> float:
        wanted = {f"lakelatch.{key}": value for key, value in labels.items()}
        points = [one for one in measured["points"] if one["name"] == name and wanted.items() <= one.items()]
        assert points, (name, labels)
        return float(sum(one["sum"] for one in points))

    assert total("lakelatch.commits", writer="first", action="deltacommit") == 4
    assert total("lakelatch.commits", action="compaction", provider="redis") == 2
    assert total("lakelatch.conflicts", strategy="bucket", early=False) == 1
    assert total("lakelatch.conflict.lost_time") > 0 and total("lakelatch.conflict.lost_size") > 0
    assert total("lakelatch.takeovers", taken="write") == 1
    assert total("lakelatch.slots.lost", writer="first") >= 1
    assert total("lakelatch.lock.hold.duration") > 0 and total("lakelatch.lock.wait.duration") > 0
    assert total("lakelatch.service.duration", service="compaction", outcome="done") > 0
    assert {one["name"] for one in measured["points"]} == INSTRUMENTS.keys()
    calls = {
        (one["db.system.name"], one["db.operation.name"], one.get("error.type"))
        for one in measured["points"]
        if one["name"] == "db.client.operation.duration"
    }
    assert calls >= {("file", "put_if_absent", None), ("file", "read", "NotFound")}
    assert calls >= {("redis", name, None) for name in ("open_session", "take", "give_back")}


def test_the_table_of_the_page_has_the_labels_of_each_measurement(measured: dict[str, list[dict[str, Any]]]) -> None:
    every, said = {"lakelatch.table", "lakelatch.provider", "lakelatch.writer"}, {"name", "unit", "sum"}
    seen: dict[str, set[str]] = {row.name: set() for row in metric_rows()}
    for point in measured["points"]:
        assert (point["name"] == "db.client.operation.duration") == (not every & point.keys()), point
        seen[point["name"]] |= point.keys() - every - said
    for row in metric_rows():  # that nothing failed is no wonder
        assert seen[row.name] | {"error.type"} == row.labels | {"error.type"} and seen[row.name] <= row.labels, row.name


def test_instants_are_on_spans_alone(measured: dict[str, list[dict[str, Any]]]) -> None:
    assert all("lakelatch.instant" not in one for one in measured["points"])


@pytest.mark.parametrize("exporter", ["raises", "hangs"])
def test_a_broken_exporter_stops_no_commit(exporter: str, tmp_path: Path) -> None:
    found = json.loads(output_of(str(WRITER), str(tmp_path / "table"), exporter))
    assert found == {"rows": 20, "child ends": True}


def test_spans_behind_a_hanging_exporter_cost_no_time_and_little_memory() -> None:
    ends, hangs, ended, took_ns = _Ends(), threading.Event(), list[int](), list[int]()
    ends.add(hangs.wait, is_outermost=True)
    for number in range(100):
        began_ns = REAL_SYSTEM.monotonic_ns()
        ends.add(partial(ended.append, number), is_outermost=True)
        took_ns.append(REAL_SYSTEM.monotonic_ns() - began_ns)
    for number in range(2000):
        ends.add(partial(ended.append, number), is_outermost=False)
    hangs.set()
    assert sorted(took_ns)[50] < 10_000_000
    assert ends.drain(10) and 500 <= len(ended) <= 1000


def test_the_outermost_span_has_ended_when_its_block_has() -> None:
    ends, ended = _Ends(), list[int]()
    for number in range(20):
        ends.add(partial(ended.append, number), is_outermost=number == 19)
    assert ended == list(range(20))


def test_a_process_that_does_not_measure_never_imports_opentelemetry(tmp_path: Path) -> None:
    script = (
        "import sys, lakelatch, pyarrow as pa; table = lakelatch.ArrowTable(sys.argv[1], "
        "{'hoodie.datasource.write.recordkey.field': 'id'}); table.upsert(pa.table({'id': [1]})); "
        "print(sum(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert output_of("-c", script, str(tmp_path / "table")) == "0"


def test_a_module_that_another_thread_is_importing_is_none_yet() -> None:
    script = (
        "import sys, types; from lakelatch import telemetry; "
        "sys.modules['opentelemetry.sdk.metrics'] = types.ModuleType('m'); before = telemetry.measures(); "
        "sys.modules |= {name: types.ModuleType(name) for name in ('opentelemetry.metrics', 'opentelemetry.trace')}; "
        "off = telemetry.operation('write', {}) is telemetry._UNMEASURED; "
        "print(before, telemetry.measures(), off, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stderr == "False False True\n"  # and no word of a failure


def test_no_secret_of_a_url_is_a_label() -> None:
    class Place(MemoryStorage):
        uri = "s3://key:secret@bucket/table"

    labels = manager_of(Place("labels"), writer="nightly").context.labels
    assert labels == {
        "lakelatch.table": "s3://bucket/table",
        "lakelatch.provider": "in_process",
        "lakelatch.writer": "nightly",
    }
    assert "lakelatch.writer" not in manager_of(Place("labels")).context.labels  # host and process


def test_the_lag_of_a_service_is_what_it_has_not_taken_in(table: LiveTable) -> None:
    def lags() -> tuple[float, float]:
        counters = table.context().look()
        return lag_s(COMPACTION, counters), lag_s(CLUSTERING, counters)

    assert lags() == (0, 0)
    table.write([(1, 1, "a")])
    assert lags() == (0, 0)  # it is the newest
    REAL_SYSTEM.sleep(0.02)
    table.write([(1, 2, "b")])
    behind_s, _ = lags()
    assert 0.01 < behind_s == lags()[1]
    table.compact()
    assert lags() == (0, behind_s)
    table.write([(1, 3, "c")])
    assert lags()[0] == 0 and lags()[1] > behind_s
    assert table.cluster() is not None and lags() == (0, 0)
    table.write([(1, 4, "d")])
    table.drop("p")  # a replace commit, as a clustering is
    assert lags()[1] > 0
