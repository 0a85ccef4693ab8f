"""That the alert rules, the dashboard and the page name what a real Prometheus finds in a process that measures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard import DASHBOARD, Panel, Prometheus, Target, panels
from metrics_page import PAGE, metric_rows

from lakelatch.retry import Backoff, tries
from lakelatch.system import REAL_SYSTEM
from lakelatch.telemetry import INSTRUMENTS
from lakelatch.testing.ports import free_port

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
RULES = DOCS / "grafana" / "alerts.yml"
LIMIT_S = 60
CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs: [{{job_name: writer, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]
"""


def shown_name(name: str) -> str:
    """The name under which Prometheus has an instrument, without what it adds for parts of histograms."""
    kind, unit, _ = INSTRUMENTS[name]
    suffix = {"s": "_seconds", "By": "_bytes"}.get(unit, "")
    return name.replace(".", "_") + suffix + ("_total" if kind == "counter" else "")


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


def test_each_query_of_the_dashboard_finds_series_that_have_the_labels_of_its_legend(prometheus: Prometheus) -> None:
    missing = {f"{panel.title}: {target.expression}": target for panel in panels() for target in panel.targets}
    assert len(missing) > 20
    for _ in tries(REAL_SYSTEM, Backoff(0.5, 0.5), limit_s=LIMIT_S):  # a rate needs two looks
        missing = {title: one for title, one in missing.items() if not is_found_by(prometheus, one)}
        if not missing:
            break
    assert list(missing) == []


def is_found_by(prometheus: Prometheus, target: Target) -> bool:
    found = prometheus.ask("query", query=target.query("20s"))["result"]
    return any(target.labels() <= one["metric"].keys() for one in found)


def test_the_dashboard_offers_the_tables_that_are_written(prometheus: Prometheus) -> None:
    variables = {one["name"]: one for one in json.loads(DASHBOARD.read_text())["templating"]["list"]}
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables["table"]["query"])
    assert found is not None
    metric, label = found.groups()
    tables: list[str] = []
    for _ in tries(REAL_SYSTEM, Backoff(0.5, 0.5), limit_s=LIMIT_S):
        tables = prometheus.ask(f"label/{label}/values", **{"match[]": metric})
        if tables:
            break
    assert [name.rpartition("/")[2] for name in tables] == ["table"]


def test_no_panel_of_the_dashboard_covers_another_one() -> None:
    cells = [cell for panel in panels() for cell in cells_of(panel)]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


def cells_of(panel: Panel) -> list[tuple[int, int]]:
    x, y, width, height = panel.place
    return [(column, row) for column in range(x, x + width) for row in range(y, y + height)]


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
    expressions = [target.expression for panel in panels() for target in panel.targets]
    found = re.findall(r"\b(?:lakelatch|db_client)_\w+", "\n".join([*expressions, RULES.read_text()]))
    assert len(found) > 50
    assert {name for name in found if not re.fullmatch(f"{known}|{labels}", name)} == set()
