from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.storage import LocalStorage, MemoryStorage

sys.path.insert(0, str(Path(__file__).parent))  # for `one_table`

from one_table import Table


@pytest.fixture(params=["memory", "local"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    yield Table(LocalStorage(str(tmp_path)) if request.param == "local" else MemoryStorage(str(tmp_path)))
