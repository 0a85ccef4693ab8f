"""`lakelatch doctor`: its text, its JSON and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_table import LiveTable
from taken_back_table import new_table, rows

from lakelatch.console.main import main


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    table = new_table(tmp_path)
    table.write(rows(2, 1, "a"))
    return table


def test_a_table_in_good_order(table: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(table.root)]) == 0
    assert "nothing found; looked at the table's properties" in capsys.readouterr().out


def test_findings_with_what_mends_them(table: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    due = ["-o", "hoodie.compact.inline.max.delta.commits=1"]
    assert main(["doctor", str(table.root), *due]) == 1
    said = capsys.readouterr().out
    assert "services-due" in said and f"mend: lakelatch service run --once {table.root}" in said
    assert main(["doctor", str(table.root), *due, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    (finding,) = told["findings"]
    assert finding.keys() == {"code", "fact", "reason", "mend"} and "the storage's clock" in told["checked"]


def test_what_cannot_be_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "LAKELATCH-INVALID"
    assert main(["doctor", str(tmp_path), "--timeout", "0"]) == 2  # a wrong call, as of each command
