from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / ".ci" / "beside"


@pytest.mark.parametrize(("aside", "command", "code"), [(0, 0, 0), (3, 0, 1), (0, 7, 7), (3, 7, 1)])
def test_whichever_fails_it_is_told_and_both_are_heard(aside: int, command: int, code: int) -> None:
    words = [str(BESIDE), f"echo aside; exit {aside}", "bash", "-c", f"sleep 0.2; echo command; exit {command}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    first, _, last = done.stdout.splitlines()
    assert (done.returncode, first, last) == (code, "command", "aside")
