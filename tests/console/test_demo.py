"""The demo, small: three real processes with Spark, and the reckoning."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakelatch.console.demo.checks import Check
from lakelatch.console.demo.plan import DemoPlan
from lakelatch.console.demo.replay import differences
from lakelatch.console.demo.run import DemoReport
from lakelatch.engine.options.calls.registry import Call
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import place_options
from lakelatch.testing.servers.seaweedfs import BUCKET


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("mode", ["nbcc", "occ"])
def test_every_row_is_where_it_must_be(mode: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakelatch.console.main", "demo", "--json", "--mode", mode]
    # So many that they take longer than the compactor waits before it looks.
    command += ["--rows", "12000", "--commits", "8", "--folder", str(tmp_path)]

    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr[-3000:]
    report = json.loads(ended.stdout)
    assert all(check["ok"] for check in report["checks"]) and len(report["checks"]) >= 7
    assert {name: worker["commits"] for name, worker in report["workers"].items() if name != "compactor"} == {
        "timetable": 8,
        "actuals": 8,
    }
    conflicts = sum(worker["conflicts"] for worker in report["workers"].values())
    if mode == "nbcc":
        assert conflicts == 0
    for picture in report["pictures"]:
        assert Path(picture).stat().st_size > 5_000


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("more", [[], ["--services"]])
def test_a_table_in_an_object_store(more: list[str], seaweedfs_server: Server, tmp_path: Path) -> None:
    place, options = f"s3://{BUCKET}/{tmp_path.name}/flights", place_options(seaweedfs_server)
    command = [sys.executable, "-m", "lakelatch.console.main", "demo", "--json", "--table", place, *more]
    command += ["--rows", "6000", "--commits", "4", "--folder", str(tmp_path)]
    command += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]

    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    named = {check["name"]: check["ok"] for check in json.loads(ended.stdout)["checks"]}
    assert all(named.values()) and named["hudi-rs reads the same rows"] and named["every flight exactly once"]
    if more:
        assert named["each service ran while the feeds wrote"] and named["a clustering was cancelled in mid-flight"]
        assert named["the timeline was archived"]
    else:
        assert named["hudi-rs agreed after every step"]
    assert not (tmp_path / "flights").exists()

    again = subprocess.run(command, capture_output=True, text=True, check=False)

    assert again.returncode != 0 and "is not empty: name another place" in again.stdout + again.stderr


def test_a_table_that_is_to_be_replayed_is_neither_cleaned_nor_archived_by_its_writers() -> None:
    replayed, kept = DemoPlan("demo-out"), DemoPlan("demo-out", services=True)
    services = [Call(plan.options("timetable")).services() for plan in (replayed, kept)]
    assert [(one.cleaning.automatic, one.archiving.automatic) for one in services] == [(False, False), (True, True)]


def test_a_difference_is_seen_and_fails_the_demo(tmp_path: Path) -> None:
    left = pa.table({"a": [1, 2], "b": ["x", None]})
    assert differences(left, left) == []
    assert differences(left, left.slice(0, 1)) == ["2 rows against 1"]
    assert differences(left, pa.table({"a": [1, 3], "b": ["x", None]})) == ["column a differs"]
    assert differences(left, pa.table({"a": [1, 2], "b": ["x", "y"]})) == ["column b differs"]

    report = DemoReport(DemoPlan(str(tmp_path)), checks=[Check("one", True, ""), Check("other", False, "")])
    assert not report.ok
