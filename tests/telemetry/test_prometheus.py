"""That the alert rules, the dashboard and the page name what a real Prometheus finds in a process that measures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from metrics_page import PAGE, metric_rows

from lakelatch.retry import Backoff, tries
from lakelatch.system import REAL_SYSTEM
from lakelatch.telemetry import INSTRUMENTS
from lakelatch.testing.ports import free_port

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
RULES, DASHBOARD = DOCS / "grafana" / "alerts.yml", DOCS / "grafana" / "dashboard.json"
LIMIT_S = 60
CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs: [{{job_name: writer, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]
"""
NEEDS_A_FAILURE = "Calls that fail"  # which there is none of


def shown_name(name: str) -> str:
    """The name under which Prometheus has an instrument, without what it adds for parts of histograms."""
    kind, unit, _ = INSTRUMENTS[name]
    suffix = {"s": "_seconds", "By": "_bytes"}.get(unit, "")
    return name.replace(".", "_") + suffix + ("_total" if kind == "counter" else "")


def expressions() -> dict[str, str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {f"{one['title']} {target['refId']}": target["expr"] for one in panels for target in one["targets"]}


class Prometheus:
    """A server on a port of this machine, asked by its HTTP interface."""

    def __init__(self, port: int) -> None:
        self._place = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, what: str, **parameters: str) -> Any:
        with urlopen(f"{self._place}/{what}?{urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def names(self) -> set[str]:
        with suppress(URLError, ConnectionError):  # not up yet
            return set(self.ask("label/__name__/values"))
        return set()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that reads from a process that writes a table."""
    folder = tmp_path_factory.mktemp("prometheus")
    port, writer_port = free_port(), free_port()
    command = [sys.executable, str(HERE / "measured_writer.py"), str(folder / "table"), "prometheus", str(writer_port)]
    (folder / "prometheus.yml").write_text(CONFIGURATION.format(rules=RULES, port=writer_port))
    serve = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer,
        subprocess.Popen(serve) as server,
    ):
        try:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
            yield Prometheus(port)
        finally:
            server.terminate()
            if writer.stdin is not None:
                writer.stdin.close()


def test_prometheus_finds_the_names_of_the_page(prometheus: Prometheus) -> None:
    histograms = {shown_name(name) for name, (kind, _, _) in INSTRUMENTS.items() if kind == "histogram"}
    wanted = {f"{name}{part}" for name in histograms for part in ("_bucket", "_count", "_sum")}
    wanted |= {shown_name(name) for name in INSTRUMENTS} - histograms
    missing = wanted
    for _ in tries(REAL_SYSTEM, Backoff(0.2, 0.2), limit_s=LIMIT_S):
        missing = wanted - prometheus.names()
        if not missing:
            break
    assert not missing


def test_the_table_of_the_page_has_each_instrument_with_its_name_and_kind() -> None:
    units = {"s": ", s", "By": ", bytes"}
    measured = [(name, shown_name(name), kind + units.get(unit, "")) for name, (kind, unit, _) in INSTRUMENTS.items()]
    assert sorted((row.name, row.shown, row.kind) for row in metric_rows()) == sorted(measured)


def test_each_panel_shows_something(prometheus: Prometheus) -> None:
    empty = list(expressions())
    for _ in tries(REAL_SYSTEM, Backoff(0.5, 0.5), limit_s=LIMIT_S):  # a rate needs two looks
        empty = [title for title in empty if not _answer(prometheus, expressions()[title])]
        if all(title.startswith(NEEDS_A_FAILURE) for title in empty):
            break
    assert [title for title in empty if not title.startswith(NEEDS_A_FAILURE)] == []


def _answer(prometheus: Prometheus, expression: str) -> list[Any]:
    found: list[Any] = prometheus.ask(
        "query", query=expression.replace("$table", ".*").replace("$__rate_interval", "20s")
    )["result"]
    return found


def test_the_rules_are_loaded_and_quiet(prometheus: Prometheus) -> None:
    rules: list[dict[str, Any]] = []
    for _ in tries(REAL_SYSTEM, Backoff(0.2, 0.2), limit_s=LIMIT_S):
        rules = prometheus.ask("rules")["groups"][0]["rules"]
        if all(one["health"] == "ok" for one in rules):
            break
    assert len(rules) == 7 and {one["health"] for one in rules} == {"ok"}
    page = PAGE.read_text()
    assert not [one["name"] for one in rules if f"`{one['name']}`" not in page]
    assert not [one["name"] for one in rules if one["state"] == "firing"]


def test_each_alert_fires_on_what_it_is_for() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", str(HERE / "alert_tests.yml")], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts", (HERE / "alert_tests.yml").read_text()))
    assert tested == set(re.findall(r"alert: (\w+)", RULES.read_text()))


def test_dashboard_and_rules_name_instruments_alone() -> None:
    histogram = "(_bucket|_count|_sum)?"
    known = "|".join(shown_name(name) + histogram * (INSTRUMENTS[name][0] == "histogram") for name in INSTRUMENTS)
    labels = "lakelatch_(table|writer|provider|action|strategy|early|service|outcome|taken)"
    found = re.findall(r"\b(?:lakelatch|db_client)_\w+", "\n".join([*expressions().values(), RULES.read_text()]))
    assert len(found) > 50
    assert {name for name in found if not re.fullmatch(f"{known}|{labels}", name)} == set()
