from __future__ import annotations

import pytest
from made_history import MadeHistory


@pytest.fixture
def table() -> MadeHistory:
    return MadeHistory()
