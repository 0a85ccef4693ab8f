"""One table with every kind of file, made once; and how many examples to try of each test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `fuzzed_table` and its like

from fuzzed_table import Made, make_all, make_grouped


@pytest.fixture(scope="session")
def made() -> Made:
    """A table that was written, compacted, overwritten, and left in the middle of everything that can be pending."""
    return make_all()


@pytest.fixture(scope="session")
def grouped() -> Made:
    """A table with column groups, with kept deletes of them, compacted logs, and a plan that waits."""
    return make_grouped()
