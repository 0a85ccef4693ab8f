"""What a person at a terminal sees, and what is left out where nobody looks on, or wants to."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from bare_table import manager_of
from live_table import LiveTable

from lakelatch.console.main import main
from lakelatch.storage.local import LocalStorage

YELLOW = "\x1b[33m"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(arguments: list[str]) -> str:
    """All that a command writes to a terminal, on both streams."""
    seen = Terminal()
    with redirect_stdout(seen), redirect_stderr(seen):
        assert main(arguments) == 0
    return seen.getvalue()


@pytest.fixture(autouse=True)
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


def test_colours_unless_they_are_not_wanted(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    pending = manager_of(storage).begin()
    assert YELLOW in on_terminal(["timeline", storage.root])
    monkeypatch.setenv("NO_COLOR", "1")
    assert YELLOW not in on_terminal(["timeline", storage.root])
    pending.abort()


def test_progress_is_for_terminals(storage: LocalStorage, capfd: pytest.CaptureFixture[str]) -> None:
    assert "verifying" in on_terminal(["verify", storage.root])
    assert "verifying" not in on_terminal(["verify", storage.root, "--quiet"])
    assert main(["verify", storage.root]) == 0
    piped = capfd.readouterr()
    assert piped.out.startswith("nothing is missing") and piped.err == "" and "\x1b" not in piped.out


def test_quiet_leaves_the_result_alone(
    storage: LocalStorage, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    live = LiveTable(tmp_path / "live")
    live.write([(1, 1, "a")])
    run = ["service", "run", "--once", "--cores", "0", str(live.root)]
    assert main(run) == 0 and capfd.readouterr().out == "nothing was due\n"
    assert main([*run, "--quiet"]) == 0 and capfd.readouterr().out == ""
    assert main(["verify", storage.root, "-q"]) == 0 and "nothing is missing" in capfd.readouterr().out
    assert main(["verify", storage.root, "--json", "-q"]) == 0
    said = capfd.readouterr()
    assert '"whole": true' in said.out and said.err == ""
