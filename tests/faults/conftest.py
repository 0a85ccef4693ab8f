from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lakelatch.testing.servers.reach import place_environment
from lakelatch.testing.servers.seaweedfs import BUCKET

sys.path.insert(0, str(Path(__file__).parent))  # for `soundness` and `fault_writer`

from fault_writer import LOCKS_VARIABLE


@pytest.fixture(params=["disk", pytest.param("seaweedfs", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the table of a test lies: in a folder, or in an object store, to which the environment leads."""
    if request.param == "disk":
        return str(tmp_path / "table")
    for name, value in place_environment(request.getfixturevalue("seaweedfs_server")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))
    return f"s3://{BUCKET}/{tmp_path.name}/table"
