"""Java Hudi reads a table that we rolled back and restored, writes on in it, and makes savepoints that we respect."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from java_hudi import ORDERED, OURS, PARTITIONED, SHARED, JavaHudiError, Rows, SharedTable, rows_of

import lakelatch
from lakelatch import failpoints
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.plans.savepoint import SavepointMetadata

QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
COMPACTING = {"hoodie.compact.inline.max.delta.commits": "1"}


class Shared(SharedTable):
    """One table of both engines."""

    def by_us(self, ids: range, ts: int, name: str, operation: str = "upsert") -> str:
        options = {**OURS, **PARTITIONED, "hoodie.datasource.write.operation": operation}
        return lakelatch.write(self.spark.createDataFrame(rows_of(ids, ts, name)), self.path, options).instant

    def by_java(self, ids: range, ts: int, name: str, more: Mapping[str, str] = QUIET) -> str:
        self.java.write(self.path, rows_of(ids, ts, name), {**SHARED, **ORDERED, **PARTITIONED, **more})
        return self.last()

    def last(self) -> str:
        folder = Path(self.path) / ".hoodie" / "timeline"
        return max((name.name.partition("_")[2], name.name) for name in folder.glob("*_*commit"))[1].partition("_")[0]

    def call(self, procedure: str) -> Rows:
        return self.java.sql(f"call {procedure}".replace("TABLE", f"table => '{self.java.register(self.path)}'"))


@pytest.fixture
def shared(share: Callable[[type[Shared]], Shared]) -> Shared:
    return share(Shared)


def test_java_reads_what_we_restored_and_writes_on(shared: Shared) -> None:
    shared.by_us(range(8), 1, "a")
    to = shared.by_java(range(4), 2, "java")
    then = shared.agreed()
    made = lakelatch.savepoint(shared.path, to, "ours")
    shared.by_us(range(6), 3, "b")
    assert lakelatch.compact(shared.spark, shared.path, COMPACTING)
    shared.by_java(range(10), 4, "c")
    shared.by_us(range(3), 5, "d", "insert_overwrite")
    shared.by_java(range(3, 5), 6, "e")
    lakelatch.restore(shared.path, to)
    assert shared.agreed() == then and lakelatch.savepoints(shared.path) == [made]
    shared.by_java(range(2), 7, "f", {**QUIET, "hoodie.compact.inline": "true", **COMPACTING})
    shared.by_us(range(2, 4), 8, "g")
    shared.by_java(range(4, 6), 9, "h")
    assert [row["v"][0] for row in sorted(shared.agreed(), key=lambda row: row["id"])] == list("ffgghhaa")
    bad = shared.by_us(range(8), 10, "bad")
    before = lakelatch.roll_back(shared.path, bad)
    assert [row["v"][0] for row in sorted(shared.agreed(), key=lambda row: row["id"])] == list("ffgghhaa")
    assert shared.by_java(range(8), 11, "i") > before.instant
    bad = shared.last()
    lakelatch.roll_back(shared.path, bad)
    assert [row["v"][0] for row in sorted(shared.agreed(), key=lambda row: row["id"])] == list("ffgghhaa")


def test_java_cleans_archives_and_compacts_a_table_that_we_restored(shared: Shared) -> None:
    to = shared.by_us(range(8), 1, "a")
    for step in range(3):
        shared.by_us(range(4), 2 + step, "b")
        assert lakelatch.compact(shared.spark, shared.path, COMPACTING)
    lakelatch.restore(shared.path, to)
    archiving = {"hoodie.clean.commits.retained": "1", "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}
    for step in range(6):
        shared.by_java(range(step + 1), 20 + step, "c", {"hoodie.compact.inline": "true", **COMPACTING, **archiving})
    assert [row["v"][0] for row in sorted(shared.agreed(), key=lambda row: row["id"])] == list("ccccccaa")
    assert any((Path(shared.path) / ".hoodie/timeline/history").glob("*.parquet"))
    shared.by_us(range(8), 40, "d")
    assert {row["v"][0] for row in shared.agreed()} == {"d"}


def test_java_restores_to_a_savepoint_of_ours_and_deletes_it(shared: Shared) -> None:
    shared.by_us(range(8), 1, "a")
    to = shared.by_us(range(4), 2, "b")
    then = shared.agreed()
    lakelatch.savepoint(shared.path, to, "ours")
    shared.by_java(range(6), 3, "c")
    shared.by_us(range(6), 4, "d")
    shared.call(f"rollback_to_savepoint(TABLE, instant_time => '{to}')")
    assert shared.agreed() == then
    shared.call(f"delete_savepoint(TABLE, instant_time => '{to}')")
    assert lakelatch.savepoints(shared.path) == []
    shared.by_us(range(8), 5, "e")
    assert {row["v"][0] for row in shared.agreed()} == {"e"}


def test_a_savepoint_of_javas_is_respected_and_says_what_ours_says(shared: Shared) -> None:
    first = shared.by_us(range(8), 1, "a")
    to = shared.by_java(range(4), 2, "java")
    then = shared.agreed()
    shared.call(f"create_savepoint(TABLE, commit_time => '{to}', user => 'me', comments => 'theirs')")
    theirs = lakelatch.savepoints(shared.path)
    assert [(one.instant, one.by, one.comment) for one in theirs] == [(to, "me", "theirs")]
    (path,) = (Path(shared.path) / ".hoodie/timeline").glob("*_*.savepoint")
    kept = SavepointMetadata.read(open_storage(shared.path), f".hoodie/timeline/{path.name}").files
    with pytest.raises(InvalidRequest, match="a savepoint keeps"):
        lakelatch.restore(shared.path, first)
    shared.by_us(range(8), 3, "b")
    assert shared.agreed() != then
    lakelatch.restore(shared.path, to)
    assert shared.agreed() == then
    lakelatch.delete_savepoint(shared.path, to)
    lakelatch.savepoint(shared.path, to)
    (path,) = (Path(shared.path) / ".hoodie/timeline").glob("*_*.savepoint")
    ours = SavepointMetadata.read(open_storage(shared.path), f".hoodie/timeline/{path.name}").files
    assert {partition: sorted(names) for partition, names in ours.items()} == {
        partition: sorted(names) for partition, names in kept.items()
    }


def test_java_does_not_write_while_a_restore_of_ours_is_unfinished(shared: Shared) -> None:
    to = shared.by_us(range(8), 1, "a")
    then = shared.agreed()
    shared.by_us(range(8), 2, "b")
    with failpoints.active("restore.after_claim=raise"), pytest.raises(LakelatchError):
        lakelatch.restore(shared.path, to)
    assert shared.agreed() == then
    with pytest.raises(JavaHudiError, match=r"(?i)restore"):
        shared.by_java(range(2), 3, "c")
    for beat in (Path(shared.path) / ".hoodie/.heartbeat").iterdir():
        os.utime(beat, (1, 1))
    shared.by_us(range(2), 4, "d")
    shared.by_java(range(2, 4), 5, "e")
    assert [row["v"][0] for row in sorted(shared.agreed(), key=lambda row: row["id"])] == list("ddeeaaaa")
