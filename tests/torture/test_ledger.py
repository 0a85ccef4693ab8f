"""A ledger adds rounds of torture up over runs, each once, and says what is owed yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from told_run import tell_round, tell_run

from lakelatch.console.main import main
from lakelatch.errors import InvalidRequest
from lakelatch.torture.nemesis.faults import FAULTS
from lakelatch.torture.report.ledger import COMMITS_OWED, KINDS, Owed, add_rounds, read_ledger
from lakelatch.torture.report.report import write_report
from lakelatch.torture.settings import PROVIDERS


def test_rounds_add_up_over_runs_and_none_counts_twice(tmp_path: Path) -> None:
    ledger = tmp_path / "evidence" / "torture.jsonl"
    for run, provider in (("first", "redis"), ("second", "storage")):
        tell_run(tmp_path / run)
        tell_round(tmp_path / run, 1 + (run == "second"), provider, 1000)
        add_rounds(ledger, tmp_path / run)
    tell_round(tmp_path / "second", 3, "redis", 500)
    owed = add_rounds(ledger, tmp_path / "second")
    assert (owed.rounds, owed.commits) == (3, 1750) and len(read_ledger(ledger)) == 3
    assert (owed.minutes["redis"], owed.minutes["storage"], owed.minutes["etcd"]) == (2.0, 1.0, 0.0)
    assert owed.faults["paused"] == sum(line["faults"]["paused"] for line in read_ledger(ledger)) > 0
    assert {"13.0 minutes of redis", "15.0 minutes of etcd", "48,250 of 50,000 acknowledged commits"} <= set(
        owed.missing
    )
    assert "replica_promoted 0" in owed.missing[-1] and str(owed).startswith("3 rounds, 1,750 acknowledged commits")


def test_nothing_is_owed_once_all_was_done() -> None:
    line = {"minutes": 15.0, "counts": {"committed": COMMITS_OWED}, "faults": dict.fromkeys(KINDS, 20), "problems": []}
    owed = Owed.after([{**line, "provider": provider} for provider in PROVIDERS])
    assert not owed.missing and str(owed).endswith("nothing is owed any more")
    assert set(FAULTS) < set(KINDS) and "serve_zombie_again" in KINDS


def test_the_report_shows_what_is_owed(tmp_path: Path) -> None:
    tell_run(tmp_path / "run")
    tell_round(tmp_path / "run", 1, "redis", 700)
    add_rounds(tmp_path / "ledger", tmp_path / "run")
    write_report(tmp_path / "run", tmp_path / "report.html", tmp_path / "ledger")
    page = (tmp_path / "report.html").read_text()
    assert (
        "With all runs of the ledger" in page and "<td>minutes of faults on redis</td><td>1.0</td><td>15</td>" in page
    )
    write_report(tmp_path / "run", tmp_path / "report.html")
    assert "With all runs" not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("text", ["no json\n", '{"rounds": []}\n', "[1]\n"])
def test_another_file_is_refused_and_stays_as_it_is(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "other"
    ledger.write_text(text)
    assert main(["torture", "--folder", str(tmp_path / "out"), "--ledger", str(ledger)]) != 0
    assert f"line 1 of --ledger {ledger} tells of no round" in capsys.readouterr().err.replace("\n", " ")
    assert ledger.read_text() == text and not (tmp_path / "out").exists()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_ledger(tmp_path)


def test_a_line_says_what_ran_and_when(tmp_path: Path) -> None:
    tell_run(tmp_path)
    tell_round(tmp_path, 1, "redis", 70)
    add_rounds(tmp_path / "ledger", tmp_path)
    line = json.loads((tmp_path / "ledger").read_text())
    assert line["source"] and len(line["day"].split("-")) == 3 and line["seed"] == 1 and line["hudi_rs"] == "agreed"
