from __future__ import annotations

from pathlib import Path

import pytest
from several_tables import Tables


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)
