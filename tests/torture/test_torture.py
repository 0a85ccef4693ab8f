"""Short rounds of real processes under faults: nothing may be lost, and what is broken on purpose has to be found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakelatch import failpoints
from lakelatch.errors import InvalidRequest
from lakelatch.testing.servers.contract import wait_until
from lakelatch.torture.nemesis.faults import FAULTS
from lakelatch.torture.nemesis.half_broken import HALF_BROKEN
from lakelatch.torture.nemesis.nemesis import OWN_ROWS, STEPS_OF
from lakelatch.torture.nemesis.store_faults import ON_STORE
from lakelatch.torture.settings import LYING, PROVIDERS, TortureSettings

_COMMAND = [sys.executable, "-m", "lakelatch.console.main", "torture"]
_HERE = Path(__file__).parent


def torture(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_COMMAND, "--folder", str(folder / "out"), *arguments], capture_output=True, text=True, timeout=550
    )


@pytest.mark.parametrize(
    "provider",
    [pytest.param("filesystem", marks=pytest.mark.long), "redis", pytest.param(LYING, marks=pytest.mark.long)],
)
def test_faults_lose_nothing(provider: str, tmp_path: Path) -> None:
    for minutes, lease_s in ((0.2, 2), (0.6, 8)):  # the more where a busy machine did little in a few seconds
        folder = tmp_path / str(minutes)
        report = folder / "report.html"
        pace = ("--minutes", str(minutes), "--lease-s", str(lease_s), "--pace-s", "0.3")
        done = torture(folder, "--provider", provider, *pace, "--json", "--report", str(report))
        assert done.returncode == 0, done.stdout + done.stderr
        said = json.loads(done.stdout)
        assert said["problems"] == []
        (verdict,) = said["rounds"].values()
        assert verdict["hudi_rs"] == "agreed"
        assert report.read_text().count("<svg") >= 1
        assert not (folder / "out/rounds" / f"0001-{provider}" / "table").exists()  # nobody has to look at it
        if verdict["counts"]["committed"] >= 5 and sum(verdict["faults"].values()) >= 3:
            return
    raise AssertionError(f"hardly anything was committed or disturbed: {verdict}")


@pytest.mark.long
def test_a_table_in_an_object_store_loses_nothing(tmp_path: Path) -> None:
    """Its locks lie in a store, too; requests get lost, come late or twice; the checker and hudi-rs read a copy."""
    faults = ("--minutes", "0.6", "--lease-s", "4", "--pace-s", "0.6")
    done = torture(tmp_path, "--store", "s3", "--provider", "storage", *faults, "--keep", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (verdict,) = json.loads(done.stdout)["rounds"].values()
    assert verdict["hudi_rs"] == "agreed"
    assert verdict["counts"]["committed"] >= 3 and sum(verdict["faults"].values()) >= 5
    assert set(verdict["faults"]) & set(ON_STORE)
    assert list((tmp_path / "out/rounds/0001-storage/table/journal").glob("*.log.*"))


@pytest.mark.long
def test_transactions_over_several_tables_lose_and_tear_nothing(tmp_path: Path) -> None:
    faults = ("--minutes", "0.4", "--lease-s", "3", "--pace-s", "0.6", "--transfers", "2", "--appends", "0")
    done = torture(tmp_path, "--tables", "2", "--provider", "redis", *faults, "--keep", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (verdict,) = json.loads(done.stdout)["rounds"].values()
    assert verdict["counts"]["moved"] >= 1 and verdict["counts"]["moments"] >= 1
    assert list((tmp_path / "out/rounds/0001-redis/table-2/purses").glob("*.log.*"))


@pytest.mark.long
@pytest.mark.spark
def test_a_job_of_spark_suffers_faults_as_well(tmp_path: Path) -> None:
    done = torture(tmp_path, "--minutes", "0.4", "--spark", "1", "--keep", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [
        json.loads(line)
        for file in (tmp_path / "out/rounds/0001-filesystem/history").glob("spark-1.*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert [line for line in lines if line["event"] == "return" and line["outcome"] == "committed"]
    assert list((tmp_path / "out/rounds/0001-filesystem/table/journal").glob("*.log.*"))


@pytest.mark.long
def test_a_product_without_its_fence_is_found_out(tmp_path: Path) -> None:
    command = [sys.executable, str(_HERE / "planted_run.py"), str(tmp_path), "no fence", LYING, "15"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "the fence was off, and nobody saw it"


@pytest.mark.long
def test_a_run_that_was_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    assert torture(tmp_path, "--minutes", "0.06", "--provider", "filesystem").returncode == 0
    rounds = tmp_path / "out/rounds"
    first = (rounds / "0001-filesystem/verdict.json").read_bytes()
    (rounds / "0002-filesystem/history").mkdir(parents=True)  # of a run that was killed in its second round
    again = torture(tmp_path, "--minutes", "0.06", "--provider", "filesystem")
    assert again.returncode == 2 and "--resume" in again.stderr
    assert torture(tmp_path, "--resume", "--minutes", "0.3").returncode == 0
    assert sorted(path.name for path in rounds.iterdir()) == ["0001-filesystem", "0002-filesystem"]
    assert (rounds / "0001-filesystem/verdict.json").read_bytes() == first
    assert torture(tmp_path, "--resume", "--minutes", "0.3", "--json").stdout.count('"committed"') == 2


@pytest.mark.long
def test_a_run_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    round_folder = tmp_path / "out/rounds/0001-filesystem"
    command = [*_COMMAND, "--folder", str(tmp_path / "out"), "--minutes", "5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_until(lambda: len(started(round_folder)) >= 9, 120)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130 and "--resume" in said
    assert not (round_folder / "table").is_mount()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started(round_folder)), 30)


def started(round_folder: Path) -> list[int]:
    """The process ids of all clients so far."""
    lines = [line for file in round_folder.glob("history/*.jsonl") for line in file.read_text().splitlines()[:1]]
    return [json.loads(line)["pid"] for line in lines if '"started"' in line]


def test_every_step_that_clients_come_to_is_named_once() -> None:
    for steps in STEPS_OF.values():
        assert len(set(steps)) == len(steps)
    assert {"stop_at_step", "kill_at_step", "raise_at_step"} <= set(FAULTS)
    assert not set(ON_STORE) & {*FAULTS, *HALF_BROKEN}


def test_services_the_canceller_and_moves_have_rows_of_their_own() -> None:
    harms = ("stop_at_step", "kill_at_step", "raise_at_step", "paused", "killed")
    assert {f"{role}_{harm}" for role in OWN_ROWS for harm in harms} <= set(FAULTS)
    kept = {name for name in failpoints.NAMES if name.partition(".")[0] in ("cluster", "clean", "archive", "cancel")}
    assert kept <= set(STEPS_OF["serve"]) and any(name.startswith("cancel.") for name in STEPS_OF["cancel"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"providers": ("postgres",)}, "--provider postgres"),
        ({"providers": ()}, "--provider"),
        ({"minutes": 0.0}, "--minutes 0"),
        ({"lease_s": 0.1}, "--lease-s 0.1"),
        ({"store": "ftp"}, "--store ftp: no such one, use s3"),
        ({"transfers": -1}, "--transfers -1"),
        ({"transfers": 0, "appends": 0}, "a client has to write"),
        ({"tables": 9}, "--tables 9: use 1 to 8"),
        ({"tables": 3, "transfers": 2, "appends": 2}, "--tables 3: each table needs a writer of its own"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        TortureSettings(**values)
    assert TortureSettings(PROVIDERS)
