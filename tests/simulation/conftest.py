from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `simulate` and what it is made of


@pytest.fixture(autouse=True)
def nothing_beats_on() -> None:
    """In place of the one for all tests: simulated heartbeats have no thread, and end with their run."""
