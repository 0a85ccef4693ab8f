"""The demo of several tables: real processes, two of which are killed, and what is drawn of a made-up run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from lakelatch.console.demo.several.picture import draw_tables, tables_figure
from lakelatch.console.demo.several.plan import AFTER, BEFORE, READER, SeveralPlan, added
from lakelatch.console.demo.several.told import Death, Told
from lakelatch.console.main import main
from lakelatch.timegen.instant_time import to_instant

START_MS = 1_795_500_000_000


def write_events(plan: SeveralPlan, name: str, events: Sequence[tuple[int, str, Mapping[str, object]]]) -> None:
    plan.events_file(name).parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"event": event, "at_ms": START_MS + at, **more}) for at, event, more in events]
    plan.events_file(name).write_text("\n".join(lines) + "\n")


@pytest.fixture
def plan(tmp_path: Path) -> SeveralPlan:
    """With the events of a run: the first writer dies before its decision, the second one after it."""
    made = SeveralPlan(str(tmp_path), writers=2)
    times = {name: to_instant(START_MS + 150 + number) for number, name in enumerate(made.paths)}
    write_events(
        made,
        "writer 1",
        [
            *((0, "begun", {}), (1, "ready", {"last": 0}), (160, "prepared", {}), (180, "decided", {})),
            *((200, "commit", {"batch": 1, "times": times}), (210, "begun", {}), (300, "prepared", {})),
            *((301, "killed", {"point": BEFORE}), (2000, "begun", {}), (2100, "resumed", {"last": 1})),
        ],
    )
    write_events(
        made,
        "writer 2",
        [
            *((50, "begun", {}), (250, "lost", {"batch": 0, "error": "a conflict"}), (270, "begun", {})),
            *((1500, "prepared", {}), (1510, "decided", {}), (1600, "commit", {"batch": 1, "times": times})),
            *((1610, "begun", {}), (1700, "prepared", {}), (1710, "decided", {}), (1711, "killed", {"point": AFTER})),
            *((3000, "begun", {}), (3100, "resumed", {"last": 2})),
        ],
    )
    same, torn = [[50, 900]] * 3, [[50, 900], [50, 900], [100, 1800]]
    write_events(
        made, READER, [(100, "cut", {"sums": same}), (170, "one by one", {"sums": torn}), (400, "cut", {"sums": same})]
    )
    return made


@pytest.mark.timeout(300)
def test_every_cut_adds_up_although_writers_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakelatch.console.main", "demo", "--json", "--folder", str(tmp_path)]

    ended = subprocess.run(
        [*command, "--tables", "3", "--writers", "2", "--seconds", "1"], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    report = json.loads(ended.stdout)
    assert all(check["ok"] for check in report["checks"]) and len(report["checks"]) == 5
    assert {death["point"] for death in report["deaths"]} == {BEFORE, AFTER} and report["committed"] >= 5
    assert list(report["tables"]) == ["flights", "airlines", "days"]
    drawn, pixels = map(Path, report["pictures"])
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg") and pixels.read_bytes().startswith(b"\x89PNG")


def test_what_is_told_of_a_run(plan: SeveralPlan) -> None:
    told = Told.of(plan)
    assert [move.committed for move in told.moves] == [True, False, False, False, True, False, False]
    assert [(death.writer, death.batch, death.found) for death in told.deaths] == [
        ("writer 1", 2, 1),
        ("writer 2", 2, 2),
    ]
    assert all(death.right for death in told.deaths) and told.waited_s(told.deaths[0]) == pytest.approx(1.299)
    shown = told.figures
    assert shown["transactions"].startswith("2 committed") and "1 lost to others" in shown["transactions"]
    assert "aborted by others; others went on 1.3 s later" in shown["writer 1, killed before its decision"]
    assert "taken over by others" in shown["writer 2, killed after its decision"]
    assert [same for _, same in told.cuts] == [True, True] and shown[
        "tables read one by one"
    ] == "apart in 1 of 1 reads"


@pytest.mark.parametrize(("point", "found"), [(BEFORE, 2), (AFTER, 1), (BEFORE, 0), (AFTER, None)])
def test_a_transaction_that_is_there_in_half_is_seen(point: str, found: int | None) -> None:
    assert not Death("writer 1", point, START_MS, 2, found).right


def test_the_picture_of_a_run(plan: SeveralPlan, tmp_path: Path) -> None:
    from matplotlib import pyplot

    told = Told.of(plan)
    draw_tables(plan, told, tmp_path / "tables.svg")
    text = (tmp_path / "tables.svg").read_text()
    ElementTree.fromstring(text)
    assert all(f"<!-- {word} -->" in text for word in ("flights", "days", "† writer 1", "one by one"))

    figure = tables_figure(plan, told)
    above, below = figure.axes
    assert len(above.patches) == 3 * 3  # two commits and a death, each in three lanes
    assert [list(line.get_ydata()) for line in below.lines if len(line.get_xdata())] == [[1, 1], [0]]
    pyplot.close(figure)
    pyplot.close(tables_figure(plan, replace(told, moves=(), deaths=(), cuts=())))


def test_flights_are_added_to_the_rows_of_an_aggregate_that_they_change() -> None:
    known = pa.table({"carrier": ["AA", "UA"], "flights": [3, 1], "miles": [30, 10]})
    flights = pa.table({"carrier": ["UA", "B6", "UA"], "distance": [5, 7, 6]})
    assert added(known, flights, ("carrier",)).sort_by("carrier").to_pylist() == [
        {"carrier": "B6", "flights": 1, "miles": 7},
        {"carrier": "UA", "flights": 3, "miles": 21},
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--tables", "1"], "'--tables': 1 is not in the range"),
        (["--tables", "5"], "--tables 5 is too large: use at most 4"),
        (["--tables", "3", "--commits", "3"], "leave out --commits or --tables"),
        (["--tables", "3", "--mode", "nbcc"], "--mode nbcc"),
    ],
)
def test_what_several_tables_cannot_be_asked_is_refused(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--folder", str(tmp_path), *arguments]) == 2
    assert told in capsys.readouterr().err.replace("\n", " ") and not list(tmp_path.iterdir())
