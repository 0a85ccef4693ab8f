"""What a whole write asks of the storage, exactly: from the call to its answer, in a warm process beside nobody."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from bare_table import write
from storages.counting import CountingStorage
from storages.opened import opened_in

from lakelatch import failpoints
from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.batch import BATCH_APPLICATION, BATCH_NUMBER
from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.engine.table.manager import open_manager
from lakelatch.errors import InvalidRequest
from lakelatch.locks.options import PROVIDER
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.timeline.instant import CLAIMS_FOLDER

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 1,
    PROVIDER: "in_process",
}


@pytest.fixture
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CountingStorage:
    return opened_in(CountingStorage(request.node.name), monkeypatch)


def test_a_small_write_of_an_arrow_table(storage: CountingStorage) -> None:
    table = ArrowTable("memory://orders", OPTIONS)
    for number in range(3):  # the first one makes the table
        storage.forget()
        table.upsert(pa.table({"id": [f"{number}"]}))
    assert (len(storage.calls), storage.steps) == (19, 8), storage.story()


def test_a_small_write_of_a_table_that_stays_open(storage: CountingStorage) -> None:
    """The third one knows that it is alone, as the second one was."""
    with ArrowTable("memory://orders", OPTIONS) as table:
        for number in range(4):
            storage.forget()
            table.upsert(pa.table({"id": [f"{number}"]}))
        assert (len(storage.calls), storage.steps) == (17, 6), storage.story()


class _Meanwhile(CountingStorage):
    """Where others do something once, right before the first such request."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.act: Callable[[], object] | None = None
        self.folder = ""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        act = self.act
        if act is not None and path.startswith(self.folder):
            self.act = None
            act()
        return super().put_if_absent(path, data)


@pytest.fixture
def meanwhile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> _Meanwhile:
    return opened_in(_Meanwhile(request.node.name), monkeypatch)


@pytest.mark.parametrize("dies", [False, True])
def test_a_write_whose_time_others_have_used_begins_again(meanwhile: _Meanwhile, dies: bool) -> None:
    """What the others have committed under it is not taken for this batch, also if that is written once more."""
    system = ManualSystem(REAL_SYSTEM.realtime_ms())
    table = ArrowTable("memory://orders", OPTIONS, system)
    table.upsert(pa.table({"id": ["a"]}))
    table.upsert(pa.table({"id": ["b"]}))
    system.advance(1)
    others: list[str] = []

    def write_with_its_time() -> None:
        with open_manager(meanwhile, ManagerOptions.from_options({PROVIDER: "in_process"}), system) as manager:
            manager.recover()
            others.append(write(manager, "other").instant)

    meanwhile.act, meanwhile.folder = write_with_its_time, CLAIMS_FOLDER
    batch = ArrowTable("memory://orders", {**OPTIONS, BATCH_APPLICATION: "stream", BATCH_NUMBER: 2}, system)
    if dies:
        with failpoints.calling(_die, ["batch.after_register"]), pytest.raises(_Died):
            batch.upsert(pa.table({"id": ["c"]}))
    result = batch.upsert(pa.table({"id": ["c"]}))
    assert len(others) == 1 and result.instant > others[0] and not result.repeated and result.rows_written == 1


class _Died(BaseException):
    """As of a process that is killed."""


def _die(_: str) -> None:
    raise _Died


def test_a_refused_write_leaves_the_table_as_it_was(storage: CountingStorage) -> None:
    table = ArrowTable("memory://orders", OPTIONS)
    for number in range(2):
        table.upsert(pa.table({"id": [f"{number}"], "v": [number]}))
    before = {path: storage.read(path) for path in storage.walk("")}
    with pytest.raises(InvalidRequest):
        table.upsert(pa.table({"id": ["2"], "v": ["no number"]}))
    assert {path: storage.read(path) for path in storage.walk("")} == before
