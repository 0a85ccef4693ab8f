"""Java and we archive one table: what Java took stays away, also our last instant, and each goes on after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from java_hudi import ORDERED, OURS, SHARED, JavaHudi, Rows, table_of
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.manifest import HISTORY_FOLDER
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.snapshot import Snapshot

COLUMNS = "id long, ts long, v string"
ARCHIVING = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}
COMMITS_MOST = 10
KEEPING = {
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.timeline.compaction.batch.size": "2",
}
ARCHIVES_ON = {
    **KEEPING,
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}
AT_ONCE = {**OURS, **KEEPING, "lakelatch.archive.minimum.age.seconds": "0"}


def _rows(ids: range, ts: int, name: str) -> pa.Table:
    return table_of(COLUMNS, [(key, ts, f"{name}{key}") for key in ids])


def test_a_tail_that_java_archived_stays_in_the_history(
    spark: SparkSession, java: JavaHudi, tmp_path: Path, ours: Callable[..., Rows], hudi_rs: Callable[[str], Rows]
) -> None:
    path = str(tmp_path / "trips")
    lakelatch.write(spark.createDataFrame(_rows(range(8), 1, "a")), path, OURS)
    last = lakelatch.write(spark.createDataFrame(_rows(range(2, 4), 2, "b")), path, OURS).instant
    timeline = Path(path) / ".hoodie" / "timeline"
    for number in range(COMMITS_MOST):
        java.write(path, _rows(range(4, 6), 10 + number, f"java{number}-"), {**SHARED, **ORDERED, **ARCHIVING})
        if not list(timeline.glob(f"{last}*")):
            break
    assert not list(timeline.glob(f"{last}*")), "Java has archived it"
    log = CommitLog(open_storage(path))
    log.project(log.tail())
    assert not list(timeline.glob(f"{last}*"))
    before = java.read(path)
    assert len(before) == 8
    lakelatch.write(spark.createDataFrame(_rows(range(7, 9), 50, "c")), path, OURS)
    assert not list(timeline.glob(f"{last}*"))
    rows = java.read(path)
    expected = {
        0: "a0",
        1: "a1",
        2: "b2",
        3: "b3",
        4: f"java{number}-4",
        5: f"java{number}-5",
        6: "a6",
        7: "c7",
        8: "c8",
    }
    assert {row["id"]: row["v"] for row in rows} == expected and len(rows) == 9
    assert ours(path) == rows and hudi_rs(path) == rows


def test_java_reads_what_we_archived_archives_on_and_we_after_it(
    spark: SparkSession, java: JavaHudi, tmp_path: Path, ours: Callable[..., Rows], hudi_rs: Callable[[str], Rows]
) -> None:
    path = str(tmp_path / "trips")
    storage = open_storage(path)
    expected: dict[int, str] = {}
    ts = 0

    def ours_writes(times: int) -> None:
        nonlocal ts
        for _ in range(times):
            ts += 1
            ids = range(ts % 5, ts % 5 + 3)
            lakelatch.write(spark.createDataFrame(_rows(ids, ts, f"o{ts}-")), path, OURS)
            expected.update({key: f"o{ts}-{key}" for key in ids})

    def java_writes(times: int) -> None:
        nonlocal ts
        for _ in range(times):
            ts += 1
            ids = range(ts % 5, ts % 5 + 3)
            java.write(path, _rows(ids, ts, f"j{ts}-"), {**SHARED, **ORDERED, **ARCHIVES_ON})
            expected.update({key: f"j{ts}-{key}" for key in ids})

    def all_agree() -> None:
        rows = java.read(path)
        assert {row["id"]: row["v"] for row in rows} == expected and len(rows) == len(expected)
        assert ours(path) == rows and hudi_rs(path) == rows

    def archived() -> set[str]:
        return {one.requested for one in History.load(storage).instants()}

    for _ in range(3):  # with a merge of level files
        ours_writes(3)
        lakelatch.compact(spark, path, OURS)
        ours_writes(1)
        lakelatch.clean(path, {**OURS, "hoodie.clean.commits.retained": "1"})  # nobody can go back to older slices then
        assert lakelatch.archive(path, AT_ONCE).instants
    all_agree()
    by_ours = archived()
    assert len(by_ours) >= 6
    java_writes(6)
    by_java = archived() - by_ours
    assert by_java and archived() >= by_ours, "Java has archived on"
    assert "_version_" in storage.list(HISTORY_FOLDER).files
    all_agree()
    before = archived()
    ours_writes(2)
    lakelatch.compact(spark, path, OURS)
    ours_writes(3)
    done = lakelatch.archive(path, AT_ONCE)
    assert done.instants, done.held_by
    assert archived() >= before | set(done.instants)
    all_agree()
    java_writes(4)
    ours_writes(1)
    assert archived() > before | set(done.instants)
    all_agree()
    there = {one.requested for one in Snapshot.load(storage).completed}
    assert not there & archived()
