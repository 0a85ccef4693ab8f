from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.storage import LocalStorage, MemoryStorage
from lakelatch.transactions.early import server_client as client

sys.path.insert(0, str(Path(__file__).parent))  # for `one_table`

from one_table import Table


@pytest.fixture(params=["memory", "local"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    yield Table(LocalStorage(str(tmp_path)) if request.param == "local" else MemoryStorage(str(tmp_path)))


@pytest.fixture(autouse=True)
def no_server_is_known_to_be_lost() -> None:
    """The tokens of a test's clock are the same in each test, and the kernel may give a closed server's port again."""
    client._down_until_ns.clear()
