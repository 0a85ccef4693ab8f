"""Who waits for a server to be fetched hears how far that is, and what went wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lakelatch.errors import Unavailable
from lakelatch.testing.fetching import run_fetch

ARRIVED = r"Downloaded from .*\((?P<size>[0-9.]+) (?P<unit>[kMG]?B) at "
SCRIPT = """
import pathlib, sys, time
print("Downloading from central: https://central/a.jar")
print("Downloaded from central: https://central/a.jar (4.5 MB at 3.2 MB/s)")
print("Downloaded from central: https://central/b.jar (500 kB at 1.2 MB/s)", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
"""


def test_what_has_arrived_is_said_while_it_is_fetched(tmp_path: Path) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "2 files" in text:
            (tmp_path / "go on").touch()  # and only then it ends

    run_fetch("a server (5 MB)", [sys.executable, "-c", SCRIPT, str(tmp_path / "go on")], ARRIVED, say, 0.05)
    assert said[-1].startswith("fetching a server (5 MB): ") and said[-1].endswith(" s, 2 files, 5.0 MB")


def test_what_is_quickly_there_says_nothing() -> None:
    run_fetch("a server", [sys.executable, "-c", "print('Downloaded')"], "Downloaded", lambda text: pytest.fail(text))


def test_a_program_that_fails_is_quoted() -> None:
    script = "import sys; print('no route to host', file=sys.stderr); sys.exit(1)"
    with pytest.raises(Unavailable, match=r"a server could not be fetched.*\n.*no route to host"):
        run_fetch("a server", [sys.executable, "-c", script], "Downloaded")
