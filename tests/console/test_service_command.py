"""`lakelatch service run`: many tables, left alone; failures, signals, and what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from live_table import LiveTable

from lakelatch.console.commands.maintenance.service_loop import ServiceLoop
from lakelatch.console.main import main
from lakelatch.console.parser.types import duration_s
from lakelatch.engine.run.report import DONE, FAILED, MaintenanceReport, ServiceRun
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.testing.clock import ManualSystem

COMMITS = "hoodie.compact.inline.max.delta.commits"
Tell = Callable[[ServiceRun], None]


class Script:
    """What `maintain` finds, by table: each round takes the next outcome; stops the loop when there is none."""

    def __init__(self, system: ManualSystem, every_s: int = 60, **outcomes: list[object]) -> None:
        self.system = system
        self.outcomes = outcomes
        self.rounds: list[tuple[str, int]] = []
        self.lines: list[str] = []
        self.loop = ServiceLoop(every_s, self.maintain, self.lines.append, system)

    def maintain(self, path: str, tell: Tell, go_on: Callable[[], bool]) -> MaintenanceReport:
        self.rounds.append((path, self.system.monotonic_ns() // 10**9))
        outcome = self.outcomes[path].pop(0)
        if not any(self.outcomes.values()):
            self.loop.stop()
        if isinstance(outcome, Exception):
            raise outcome
        runs = (ServiceRun("clean", str(outcome), "7", "of no account"),) if outcome else ()
        for run in runs:
            tell(run)
        return MaintenanceReport(path, runs)


def test_each_table_has_its_round_every_minute() -> None:
    script = Script(ManualSystem(), a=["", "", ""], b=["", ""])
    assert script.loop.run(["a", "b"])
    assert script.rounds == [("a", 0), ("b", 0), ("a", 60), ("b", 60), ("a", 120)] and script.lines == []


def test_who_fails_waits_longer_each_time_and_keeps_no_other_waiting() -> None:
    bad: list[object] = [Unavailable("gone"), FAILED, RuntimeError("odd"), "", ""]
    script = Script(ManualSystem(), a=bad, b=[""] * 16)
    script.loop.run(["a", "b"])
    assert [at for path, at in script.rounds if path == "a"] == [0, 120, 360, 840, 900]
    assert [at for path, at in script.rounds if path == "b"] == [60 * number for number in range(16)]
    told = "\n".join(script.lines)
    assert (
        "gone" in told and "RuntimeError: odd" in told and "3 times in a row something failed; again in 480 s" in told
    )


def test_the_longest_wait_is_an_hour_unless_rounds_are_rarer() -> None:
    script = Script(ManualSystem(), a=[Unavailable("gone")] * 12)
    assert not script.loop.run(["a"])
    waits = [after[1] - before[1] for before, after in zip(script.rounds, script.rounds[1:], strict=False)]
    assert waits[0] == 120 and max(waits) == 3600 == waits[-1]
    rare = Script(ManualSystem(), 7200, a=[Unavailable("gone"), ""])
    rare.loop.run(["a"])
    assert [at for _, at in rare.rounds] == [0, 7200]


def test_a_stop_ends_the_wait_and_the_round() -> None:
    seen: list[bool] = []

    def maintain(path: str, tell: Tell, go_on: Callable[[], bool]) -> MaintenanceReport:
        loop.stop()
        seen.append(go_on())
        return MaintenanceReport(path)

    loop = ServiceLoop(60, maintain, print, ManualSystem())
    loop.run(["a", "b"])
    assert seen == [False]


def test_times_between_rounds() -> None:
    assert [duration_s(text) for text in ("90", "30s", "1m", "2H", "1d")] == [90, 30, 60, 7200, 86_400]
    for text in ("", "0m", "1 week", "-1s", "1.5h"):
        with pytest.raises(InvalidRequest, match="write 30s, 1m, 2h or 1d"):
            duration_s(text)


def filled(folder: Path, commits: int = 3) -> LiveTable:
    table = LiveTable(folder)
    for number in range(commits):
        table.write([(1, number, f"v{number}")])
    return table


def test_one_round_of_two_tables_and_one_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = filled(tmp_path / "one"), filled(tmp_path / "other", 1)
    call = ["service", "run", "--once", "--cores", "0", "-o", f"{COMMITS}=3", "--json"]
    assert main([*call, str(one.root), str(tmp_path / "none"), str(other.root)]) == 1
    output = capsys.readouterr()
    states = json.loads(output.out)
    assert [(state["done"], state["failed"]) for state in states] == [(1, 0), (0, 1), (0, 0)]
    assert "there is no table" in states[1]["last_error"] and DONE in output.err and "base files" in output.err
    assert main([*call[:-1], str(one.root)]) == 0
    assert "nothing was due" in capsys.readouterr().out
    assert len(one.agreed()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(tmp_path: Path, number: signal.Signals) -> None:
    table = filled(tmp_path / "table")
    command = [sys.executable, "-m", "lakelatch", "service", "run", "--every", "1h", "--cores", "0"]
    process = subprocess.Popen(
        [*command, "-o", f"{COMMITS}=3", str(table.root)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(number)
    assert process.wait(600) == 0 and "compaction" in line
    process.stdout.close()


def test_wrong_options_end_it_before_anything_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["service", "run", "--once", "--cores", "0", str(tmp_path)]
    assert main([*call, "-o", f"{COMMITS}=no"]) == 2 and COMMITS in capsys.readouterr().err
    assert main([*call, "--every", "often"]) == 2 and "'often'" in capsys.readouterr().err
