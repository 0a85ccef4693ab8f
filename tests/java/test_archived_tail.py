"""The last instant of our log is one that Java has archived: nothing of ours brings it back to the timeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from java_hudi import ORDERED, OURS, SHARED, JavaHudi, Rows, table_of
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.commit_log import CommitLog

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
