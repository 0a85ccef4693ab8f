from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.storage import LocalStorage, MemoryStorage, Storage
from lakelatch.timeline.instant import inflight

sys.path.insert(0, str(Path(__file__).parent))  # for `added_events`

from added_events import Times, event


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    made = LocalStorage(str(tmp_path)) if request.param == "local" else MemoryStorage(str(tmp_path))
    for name in range(220):  # all have begun: a completed file is made only beside its inflight file
        made.put(inflight(event(name).instant, "deltacommit").path, b"")
    yield made
