"""What ran is noted down, and adds up over runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from record import Line, add_range, read_record, seeds_once

SCRIPT = Path(__file__).with_name("simulate.py")


def _line(first: int, last: int, source: str = "a", only_several: bool = False) -> Line:
    wrong = [str(first)] if first == 7 else []
    found = {"first": first, "last": last, "seeds": last - first, "several": 0, "wrong": wrong, "simulated_hours": 0.1}
    return {**found, "counts": {"committed": 2}, "source": source, "day": "2026-01-01", "only_several": only_several}


def test_ranges_of_one_source_become_one_and_seeds_count_once(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "seeds.jsonl"
    for line in (_line(0, 7), _line(7, 10), _line(5, 20, "b"), _line(30, 32, "b"), _line(32, 90, "b", True)):
        add_range(file, line)
    first, *others = read_record(file)
    assert (first["first"], first["last"], first["seeds"], first["wrong"]) == (0, 10, 10, ["7"])
    assert (first["counts"], first["simulated_hours"], len(others)) == ({"committed": 4}, 0.2, 3)
    assert seeds_once(read_record(file)) == 22


def test_a_run_notes_down_what_it_ran(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--seeds", "3:5", "--processes", "1", "--record", str(tmp_path / "seeds")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and "2 seeds in" in run.stdout, run.stdout + run.stderr
    (line,) = read_record(tmp_path / "seeds")
    assert (line["first"], line["last"], line["seeds"], line["wrong"]) == (3, 5, 2, []) and line["counts"]["committed"]
    refused = subprocess.run([*command, "--planted", "no fence"], capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2 and "--record is for the product as it is" in refused.stderr


def test_a_hunt_notes_down_each_mistake_once(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(SCRIPT.with_name("find_planted.py")),
        "--only",
        "no fence",
        "--record",
        str(tmp_path / "found"),
    ]
    first = subprocess.run(command, capture_output=True, text=True, timeout=240)
    found = json.loads((tmp_path / "found").read_text())["no fence"]
    assert first.returncode == 0 and found["tried"] == found["seed"] + 1, first.stdout + first.stderr
    assert subprocess.run(command, capture_output=True, text=True, timeout=240).stdout == ""
