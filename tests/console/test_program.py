"""The command as a process of its own: how it is called, and what becomes of it when nobody reads on."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import TableConfig

HEAD = [sys.executable, "-m", "lakelatch"]


def test_python_m_runs_the_command() -> None:
    done = subprocess.run([*HEAD, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lakelatch {version('lakelatch')}\n", "")


@pytest.mark.parametrize("command", [["timeline"], ["timeline", "--json"], ["locks"], ["conflicts", "--json"]])
def test_a_reader_that_has_had_enough_ends_a_command_without_a_traceback(tmp_path: Path, command: list[str]) -> None:
    storage = LocalStorage(str(tmp_path / "table"))
    storage.put_if_absent(PROPERTIES_PATH, TableConfig("t", ("id",), bucket_count=1).to_properties())
    done = into_a_closed_pipe([*command, storage.root])
    assert done.returncode == 141 and "BrokenPipe" not in done.stderr


def test_an_error_that_nobody_reads_is_no_traceback(tmp_path: Path) -> None:
    done = into_a_closed_pipe(["timeline", "--json", str(tmp_path)], errors_too=True)
    assert done.returncode == 141


def into_a_closed_pipe(arguments: list[str], errors_too: bool = False) -> subprocess.CompletedProcess[str]:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        errors = writing if errors_too else subprocess.PIPE
        return subprocess.run([*HEAD, *arguments], stdout=writing, stderr=errors, text=True, timeout=60)
    finally:
        os.close(writing)
