"""What a whole write asks of the storage, exactly: from the call to its answer, in a warm process beside nobody."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from storages.counting import CountingStorage

from lakelatch.engine import writing as rows
from lakelatch.engine.arrow import ArrowTable
from lakelatch.locks.options import PROVIDER

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 1,
    PROVIDER: "in_process",
}


@pytest.fixture
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingStorage]:
    made = CountingStorage(request.node.name)
    monkeypatch.setattr(rows, "open_storage", lambda *_: made)
    yield made


def test_a_small_write_of_an_arrow_table(storage: CountingStorage) -> None:
    table = ArrowTable("memory://orders", OPTIONS)
    for number in range(3):  # the first one makes the table
        storage.forget()
        table.upsert(pa.table({"id": [f"{number}"]}))
    assert (len(storage.calls), storage.steps) == (18, 10), storage.story()
