"""The command as a process of its own: how it is called, and what becomes of it when nobody reads on."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

HEAD = [sys.executable, "-m", "lakelatch"]


def test_python_m_runs_the_command() -> None:
    done = subprocess.run([*HEAD, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lakelatch {version('lakelatch')}\n", "")
