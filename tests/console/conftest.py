from __future__ import annotations

from pathlib import Path

import pytest
from bare_table import bare_table

from lakelatch.storage.local import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """That of a table without rows."""
    made = LocalStorage(str(tmp_path / "table"))
    bare_table(made, buckets=3)
    return made
