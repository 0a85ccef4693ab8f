"""After every step, hudi-rs reads the same rows from the table as lakelatch, meta columns included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark_session import local_frame

import lakelatch
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import Unavailable
from lakelatch.failpoints import active, calling
from lakelatch.format.names import parse_data_file
from lakelatch.heartbeat.contract import HeartbeatSettings
from lakelatch.storage import Storage, open_storage
from lakelatch.system import REAL_SYSTEM

pytestmark = pytest.mark.spark
Read = Callable[..., list[dict[str, Any]]]

BASE = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": "2",
}
SHORT_LIVES = {"hoodie.client.heartbeat.interval_in_ms": "1000", "hoodie.client.heartbeat.tolerable.misses": "1"}
ORDERED = {"hoodie.datasource.write.precombine.field": "ts"}
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "part"}
HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
OPERATION = "hoodie.datasource.write.operation"
DELETE = {OPERATION: "delete"}
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}
COLUMNS = "id long, ts long, v string, part string"
LAYOUTS = {
    "event-time": {**BASE, **ORDERED},
    "commit-time": BASE,
    "partitioned": {**BASE, **ORDERED, **PARTITIONED},
    "hive-style": {**BASE, **ORDERED, **PARTITIONED, **HIVE},
    "avro-blocks": {**BASE, **ORDERED, "hoodie.logfile.data.block.format": "avro"},
}
_MARKS = {"hive-style": pytest.mark.long, "partitioned": pytest.mark.stores}


class Scenario:
    """One table; `agree` compares both readers."""

    def __init__(self, spark: SparkSession, path: str, options: dict[str, str], ours: Read, theirs: Read) -> None:
        self.spark = spark
        self.path = path
        self.options = options
        self.ours = ours
        self.theirs = theirs
        self.completions: list[str] = []

    def write(self, rows: list[tuple[Any, ...]], more: dict[str, str] | None = None) -> lakelatch.CommitResult:
        frame = local_frame(self.spark, rows, COLUMNS)
        result = lakelatch.write(frame, self.path, {**self.options, **(more or {})})
        self.completions.append(result.completion)
        return result

    def values(self, ids: range, ts: int, name: str) -> list[tuple[Any, ...]]:
        return [(key, ts, f"{name}{key}", "pq"[key % 2]) for key in ids]

    def agree(self, count: int | None = None) -> list[dict[str, Any]]:
        rows = self.ours(self.path)
        assert rows == self.theirs(self.path)
        assert count is None or len(rows) == count
        return rows

    def agree_on_every_window(self) -> None:
        """Incremental reads of each pair of completion times, the beginning of time included."""
        times = ["20000101000000000", *self.completions]
        for index, begin in enumerate(times):
            for end in [*times[index + 1 :], None]:
                options = {"hoodie.datasource.query.type": "incremental"}
                options["hoodie.datasource.read.begin.instanttime"] = begin
                if end:
                    options["hoodie.datasource.read.end.instanttime"] = end
                assert self.ours(self.path, options) == self.theirs(self.path, since=(begin, end)), (begin, end)

    @property
    def storage(self) -> Storage:
        return open_storage(self.path)

    def files(self) -> dict[str, int]:
        found = self.storage.walk("")
        return {path: self.storage.stat(path).size_bytes for path in found if ".hoodie" not in path}


@pytest.fixture
def make_scenario(
    spark: SparkSession, table_path: str, by_lakelatch: Read, by_hudi_rs: Read
) -> Callable[[dict[str, str]], Scenario]:
    # Who compacts, and when, is what is looked at.
    unasked = {"lakelatch.rewrite.automatic": "false"}
    return lambda options: Scenario(spark, table_path, {**options, **unasked}, by_lakelatch, by_hudi_rs)


@pytest.mark.parametrize("layout", [pytest.param(name, marks=_MARKS.get(name, ())) for name in LAYOUTS])
def test_a_table_s_life(make_scenario: Callable[[dict[str, str]], Scenario], layout: str) -> None:
    table = make_scenario(LAYOUTS[layout])
    table.write(table.values(range(6), 10, "a"))
    table.agree(6)
    table.write(table.values(range(2, 4), 9, "older") + table.values(range(5, 8), 11, "newer"))
    rows = table.agree(8)
    assert {row["v"] for row in rows if row["id"] == 2} == {"older2" if layout == "commit-time" else "a2"}
    table.write(table.values(range(2), 20, ""), DELETE)
    table.agree(6)
    table.write([])
    table.agree(6)
    _die_before_commit(table)
    table.agree(6)
    plan = lakelatch.schedule_compaction(table.path, {**table.options, **EVERY_LOG})
    assert plan is not None
    table.agree(6)
    table.write(table.values(range(0, 8, 3), 30, "late"))
    before = table.agree(7)
    lakelatch.execute_compaction(table.spark, table.path, plan, table.options)
    table.agree(7)
    assert table.ours(table.path, OPTIMIZED) == table.theirs(table.path, optimized=True)
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    ours = table.agree(7)
    assert ours == table.ours(table.path, OPTIMIZED) == table.theirs(table.path, optimized=True)
    assert [row["v"] for row in ours] == [row["v"] for row in before]
    table.write(table.values(range(3, 5), 40, "last"))
    table.agree(7)


@pytest.mark.parametrize("layout", ["event-time", "commit-time"])
def test_log_files_of_several_tasks_with_equal_keys(
    make_scenario: Callable[[dict[str, str]], Scenario], layout: str
) -> None:
    """Of twelve tasks, so that their numbers have another order as texts; deletes are among them."""
    table = make_scenario({**LAYOUTS[layout], "lakelatch.write.shuffle": "false", "lakelatch.write.small.rows": "0"})
    table.write(table.values(range(6), 1, "a"))
    rows = table.spark.range(0, 60, 1, 12).selectExpr(
        "id % 5 id", "10 + id * 37 % 60 ts", "concat('v', id) v", "'p' part", "id % 2 = 0 _hoodie_is_deleted"
    )
    result = lakelatch.write(rows, table.path, table.options)
    assert len(result.files) == 24
    found = table.agree()
    assert 0 < len([row for row in found if row["ts"] > 1]) < 5
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    assert [row["v"] for row in table.agree()] == [row["v"] for row in found]


def _die_before_commit(table: Scenario) -> None:
    """A writer that writes its files and vanishes; the next one rolls it back."""
    with active("commit.after_lock=raise"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lakelatch.transactions.transaction.Transaction.abort", lambda self, conflict=None: self.hand_over()
        )
        with pytest.raises(Unavailable):
            table.write(table.values(range(8), 99, "dead"), SHORT_LIVES)
    table.agree()
    alive = table.values(range(5, 6), 12, "alive")
    table.write(alive, SHORT_LIVES)  # which finds a writer that may be at work
    while not any("rollback" in name for name in table.storage.list(".hoodie/timeline").files):
        REAL_SYSTEM.sleep(HeartbeatSettings(interval_ms=1000, tolerable_misses=1).expiry_ms / 1000)
        table.write(alive, SHORT_LIVES)
    assert not [row for row in table.agree() if row["v"].startswith("dead")]


@pytest.mark.parametrize("layout", [pytest.param("partitioned", marks=pytest.mark.long), "hive-style", "event-time"])
def test_overwrites_and_deleted_partitions(make_scenario: Callable[[dict[str, str]], Scenario], layout: str) -> None:
    table = make_scenario(LAYOUTS[layout])
    prefix = "part=" if layout == "hive-style" else ""
    table.write(table.values(range(6), 10, "a"))
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    table.write(table.values(range(0, 6, 2), 11, "b"))
    plan = lakelatch.schedule_compaction(table.path, {**table.options, **EVERY_LOG})
    assert plan is not None
    table.write(table.values(range(4, 8, 2), 5, "over"), {OPERATION: "insert_overwrite"})
    table.agree(2 if layout == "event-time" else 5)
    lakelatch.execute_compaction(table.spark, table.path, plan, table.options)
    table.agree(2 if layout == "event-time" else 5)
    table.write(table.values(range(2, 6, 2), 6, "late"))
    assert {row["v"] for row in table.agree() if row["id"] % 2 == 0} == {"late2", "late4", "over6"}
    if layout != "event-time":
        gone = lakelatch.delete_partitions(table.path, prefix + "q", table.options)
        table.completions.append(gone.completion)
        table.agree(3)
        table.write(table.values(range(1, 2), 1, "again"))
        table.agree(4)
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    rows = table.agree()
    assert rows == table.ours(table.path, OPTIMIZED) == table.theirs(table.path, optimized=True)
    table.write(table.values(range(9, 11), 1, "all"), {OPERATION: "insert_overwrite_table"})
    table.agree(2)
    table.agree_on_every_window()


def test_deletes_that_a_compaction_keeps(make_scenario: Callable[[dict[str, str]], Scenario]) -> None:
    """hudi-rs respects them as well: a row that is older than its delete does not come back."""
    table = make_scenario(LAYOUTS["event-time"])
    table.write(table.values(range(4), 10, "a"))
    table.write(table.values(range(2), 20, ""), DELETE)
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    assert table.agree(2) == table.ours(table.path, OPTIMIZED) == table.theirs(table.path, optimized=True)
    table.write(table.values(range(4), 15, "late"))
    assert [row["v"] for row in table.agree()] == ["late2", "late3"]
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    table.write(table.values(range(1), 21, "new"))
    assert [row["v"] for row in table.agree()] == ["new0", "late2", "late3"]
    table.agree_on_every_window()


def test_hudi_rs_compares_with_a_row_that_was_deleted_without_an_ordering_value(
    make_scenario: Callable[[dict[str, str]], Scenario],
) -> None:
    """Here the deleted row is gone. The guide says that a compaction after the deletion makes it so for everybody."""
    table = make_scenario(LAYOUTS["event-time"])
    key = local_frame(table.spark, [(1,)], "id long")
    for compacts in (False, True):
        table.write([(1, 10, "a", "p")])
        assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
        lakelatch.write(key, table.path, {**table.options, **DELETE})
        if compacts:
            assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
        table.write([(1, 5, "older", "p")])
        assert [row["v"] for row in table.ours(table.path)] == ["older"]
        assert [row["v"] for row in table.theirs(table.path)] == ["older" if compacts else "a"]
    table.agree(1)


def test_incremental_windows(make_scenario: Callable[[dict[str, str]], Scenario]) -> None:
    table = make_scenario(LAYOUTS["partitioned"])
    table.write(table.values(range(6), 10, "a"))
    table.write(table.values(range(2, 8), 11, "b"))
    table.write(table.values(range(2), 20, ""), DELETE)
    table.write(table.values(range(1, 3), 30, "c"))
    table.agree_on_every_window()


def test_commits_that_complete_in_reversed_order(
    make_scenario: Callable[[dict[str, str]], Scenario],
) -> None:
    table = make_scenario({**LAYOUTS["event-time"], **NON_BLOCKING})
    table.write(table.values(range(4), 1, "a"))
    depth: list[int] = []

    def nested(_: str) -> None:
        """Each write lets a younger one begin and complete before its own rows become files."""
        if len(depth) < 3:
            depth.append(len(depth))
            table.write(table.values(range(len(depth), 4), 10 - len(depth), f"w{len(depth)}-"))
            table.agree(4)

    with calling(nested, ["write.before_rows"]):
        outer = table.write(table.values(range(4), 5, "outer"))
    assert len(depth) == 3 and outer.completion == max(table.completions)
    rows = table.agree(4)
    assert [row["v"] for row in rows] == ["outer0", "w1-1", "w1-2", "w1-3"]
    assert lakelatch.compact(table.spark, table.path, EVERY_LOG)
    assert [row["v"] for row in table.agree(4)] == ["outer0", "w1-1", "w1-2", "w1-3"]


def test_files_of_failed_attempts_are_never_read(
    make_scenario: Callable[[dict[str, str]], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit another attempt has written the same rows and a third has only announced a file.

    Tombstones, which are empty files, take the place of both attempts' files under a committed instant, and neither
    reader minds them.
    """
    table = make_scenario(LAYOUTS["event-time"])
    table.write(table.values(range(4), 1, "a"))
    original = WriteTask.write

    def attempts(self: WriteTask, batches: Any, token: str) -> Any:
        from lakelatch.transactions.markers.direct import Markers

        rows = list(batches)
        ghosts = list(original(self, iter(rows), "7-7-7"))
        Markers(self.storage, self.instant).announce("", ghosts[0].file_name.replace("7-7-7", "8-8-8"))
        yield from original(self, iter(rows), token)

    monkeypatch.setattr(WriteTask, "write", attempts)
    # With this option the driver takes part as a task, of whose files others may exist.
    table.write(table.values(range(4), 2, "b"), {"lakelatch.write.small.rows": "10"})
    sizes = table.files()
    for attempt in ("7-7-7", "8-8-8"):
        assert {size for name, size in sizes.items() if attempt in name} == {0}
    assert {row["v"] for row in table.agree(4)} == {"b0", "b1", "b2", "b3"}
    monkeypatch.undo()
    assert lakelatch.compact(table.spark, table.path, EVERY_LOG)
    assert {row["v"] for row in table.agree(4)} == {"b0", "b1", "b2", "b3"}


def test_every_name_is_one_that_hudi_rs_finds(make_scenario: Callable[[dict[str, str]], Scenario]) -> None:
    table = make_scenario(LAYOUTS["hive-style"])
    table.write(table.values(range(8), 1, "a"))
    assert lakelatch.compact(table.spark, table.path, EVERY_LOG)
    table.write(table.values(range(4), 2, "b"))
    for name in table.files():
        file = parse_data_file(Path(name).name)
        assert file is not None, name
        assert "_" not in file.file_id and "_" not in file.write_token
        assert len(file.instant) == 17


def test_an_empty_first_commit_tells_hudi_rs_the_columns(make_scenario: Callable[[dict[str, str]], Scenario]) -> None:
    table = make_scenario(LAYOUTS["event-time"])
    table.write([])
    table.agree(0)
    table.write(table.values(range(2), 1, "a"))
    table.write([])
    table.agree(2)


@pytest.mark.parametrize("name", ["report.csv", "_SUCCESS", "x.parquet.tmp", ".foo.log"])
def test_harmless_foreign_files_in_a_partition(make_scenario: Callable[[dict[str, str]], Scenario], name: str) -> None:
    table = make_scenario(LAYOUTS["partitioned"])
    table.write(table.values(range(4), 1, "a"))
    table.storage.put(f"p/{name}", b"stranger")
    table.agree(4)
    assert lakelatch.compact(table.spark, table.path, EVERY_LOG)
    table.agree(4)
    assert table.storage.read(f"p/{name}") == b"stranger"


def test_a_foreign_parquet_file_is_left_out_by_lakelatch(
    make_scenario: Callable[[dict[str, str]], Scenario],
) -> None:
    """hudi-rs refuses to read a table with one; lakelatch reads what belongs to the table and leaves the file alone."""
    table = make_scenario(LAYOUTS["partitioned"])
    table.write(table.values(range(4), 1, "a"))
    table.storage.put("p/stranger.parquet", b"PAR1")
    assert len(table.ours(table.path)) == 4
    with pytest.raises(Exception, match=r"stranger\.parquet"):
        table.theirs(table.path)
    assert lakelatch.compact(table.spark, table.path, EVERY_LOG)
    assert len(table.ours(table.path)) == 4 and table.storage.exists("p/stranger.parquet")


@pytest.mark.parametrize(
    "name, count",
    [
        ("mor_v8_trips_8i3u1d", 6),
        ("mor_v9_txns_nonpart", 14),
        ("mor_v9_txns_simple", 12),
        ("cow_v8_nonpartitioned", 4),
        ("cow_v9_txns_simple", 12),
    ],
)
def test_tables_that_java_wrote(
    sample_table: Callable[[str], str], by_lakelatch: Read, by_hudi_rs: Read, name: str, count: int
) -> None:
    path = sample_table(name)
    ours = by_lakelatch(path)
    assert ours == by_hudi_rs(path)
    assert len(ours) == count
    assert by_lakelatch(path, OPTIMIZED) == by_hudi_rs(path, optimized=True)


@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_columns_that_were_added(make_scenario: Callable[[dict[str, str]], Scenario], block_format: str) -> None:
    table = make_scenario({**BASE, **ORDERED, "hoodie.logfile.data.block.format": block_format, "mergeSchema": "true"})
    table.write(table.values(range(4), 1, "a"))

    def add(columns: str, rows: list[tuple[Any, ...]]) -> None:
        lakelatch.write(table.spark.createDataFrame(rows, columns), table.path, table.options)

    add(f"{COLUMNS}, w int, p struct<x:int>", [(1, 2, "b", "q", 7, (1,))])
    rows = table.agree(4)
    assert [(row["v"], row["w"], row["p"]) for row in rows][:2] == [("a0", None, None), ("b", 7, {"x": 1})]
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    table.agree(4)
    add(f"{COLUMNS}, w long, p struct<x:int>, n double", [(2, 3, "c", "p", 1 << 40, (2,), 0.5)])
    rows = table.agree(4)  # of files of before, hudi-rs widens the base files
    assert [row["w"] for row in rows] == [None, 7, 1 << 40, None]


def test_hudi_rs_does_not_widen_log_files_that_lack_a_column_and_says_so(
    make_scenario: Callable[[dict[str, str]], Scenario],
) -> None:
    """Ours reads them; the guide says that a compaction helps."""
    table = make_scenario({**BASE, **ORDERED, "hoodie.bucket.index.num.buckets": "1", "mergeSchema": "true"})
    narrow, wide = "id long, ts long, w int", "id long, ts long, w long, x int"
    for columns, rows in ((narrow, [(1, 1, 5), (2, 1, 5)]), (wide, [(2, 2, 1 << 40, 0)])):
        lakelatch.write(table.spark.createDataFrame(rows, columns), table.path, table.options)
    assert [row["w"] for row in table.ours(table.path)] == [5, 1 << 40]
    with pytest.raises(Exception, match="column 'w' has type Int32 but the table schema expects Int64"):
        table.theirs(table.path)
    assert lakelatch.compact(table.spark, table.path, {**table.options, **EVERY_LOG})
    table.agree(2)
