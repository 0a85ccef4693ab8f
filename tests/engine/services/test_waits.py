"""How often a service waits for the storage, exactly: each request that waits for another one is a step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from live_table import LiveTable
from storages.counting import CountingStorage
from storages.opened import opened_in

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.inline import SERVICES_ENABLED
from lakelatch.engine.services.removals.archiving import archive
from lakelatch.locks.options import PROVIDER

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 1,
    PROVIDER: "in_process",
    "hoodie.keep.max.commits": 200,  # so that a compaction is looked for at the commit that is said, and not by lot
}
_OF_A_WRITE = 8


@pytest.fixture
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CountingStorage:
    return opened_in(CountingStorage(request.node.name), monkeypatch)


def upserted(storage: CountingStorage, number: int, options: dict[str, object]) -> list[str]:
    """The services that ran after an upsert, whose requests are counted."""
    storage.forget()
    rows = pa.table({"id": [f"{number}-{key}" for key in range(20)]})
    return [run.service for run in ArrowTable("memory://orders", options).upsert(rows).services]


def under_the_lock(storage: CountingStorage) -> list[str]:
    """The requests from the tail at which something was planned to what shows the plan, one for each step."""
    calls = {call.step: call for call in storage.calls}
    shown = next(call.step for call in storage.calls if call.path.endswith("on.requested") or "clean.req" in call.path)
    begun = max(s for s in calls if s < shown - 5 and calls[s].path == ".hoodie/.lakelatch/log")
    return [str(calls[step]) for step in range(begun, shown + 1)]


@pytest.mark.parametrize("commits", [5, 61])
@pytest.mark.parametrize("buckets", [1, 4])
def test_a_compaction_waits_as_often_for_many_logs_as_for_few(
    storage: CountingStorage, commits: int, buckets: int
) -> None:
    """A request more for each 32 of a group's. And many file groups are planned as fast, while the lock is held."""
    options = {**OPTIONS, "hoodie.bucket.index.num.buckets": buckets, "lakelatch.rewrite.commits": commits}
    for number in range(commits - 1):
        assert upserted(storage, number, {**options, SERVICES_ENABLED: "false"}) == []
    assert upserted(storage, commits - 1, options) == ["compaction"]
    tasks = buckets * (3 + -(-commits // 32))
    assert storage.steps - _OF_A_WRITE == 36 + tasks, storage.story()
    assert len(under_the_lock(storage)) == 13, storage.story()


def test_an_archiver_waits_once_more_for_each_write_that_leaves(tmp_path: Path) -> None:
    """The completed files go one after the other; all else is read and removed side by side."""
    waits: list[int] = []
    for count in (5, 15):
        table, far = LiveTable(tmp_path / str(count)), CountingStorage(f"{tmp_path}/{count}")
        for number in range(count):
            table.write([(number, number, "v")])
        table.compact()
        for number in range(3):
            table.write([(number, 100, "v")])
        for path in list(table.storage.walk("")):
            far.put(path, table.storage.read(path))
        far.forget()
        options = ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=0)
        left = archive(table.manager(far), table.opened.config, options).instants
        assert len(left) >= count
        waits.append(far.steps - len(left))
    assert waits[0] == waits[1], far.story()
