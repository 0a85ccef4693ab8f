"""Bulk loads write base files where nothing is, and no row is hidden by what others do in between.

No Spark in most of them: rows are sorted here as Spark would sort them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import hudi
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table import BuiltTable, Writing, meanwhile, write_arrow
from whole_rows import read_base_file

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.write import OPERATION
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.run.result import CommitResult
from lakelatch.errors import WriteConflict
from lakelatch.failpoints import calling
from lakelatch.format.bucket_index import bucket_ids_of_texts
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.storage import LocalStorage
from lakelatch.timeline.log.whole_timeline import read_commit
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING, OPTIMISTIC

OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    OPERATION: "bulk_insert",
}
RETRIED = {"hoodie.write.num.retries.on.conflict.failures": 1}
MEANWHILE = ["write.before_rows", "commit.after_lock"]
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
Values = dict[int, str]


def rows(ids: Sequence[int], ts: int, name: str) -> pa.Table:
    return pa.table([list(ids), [ts] * len(ids), [f"{name}{key}" for key in ids]], schema=SCHEMA)


class Loaded:
    """A table that is loaded in bulk."""

    def __init__(self, path: Path, mode: str = NON_BLOCKING, buckets: int = 2) -> None:
        self.path, self.buckets = str(path), buckets
        self.options = {**OPTIONS, MODE_OPTION: mode, "hoodie.bucket.index.num.buckets": buckets}
        self.storage = LocalStorage(self.path)
        self.table = ArrowTable(path, {**self.options, OPERATION: "upsert"})

    def make(self) -> None:
        self.table.upsert(rows(range(0), 0, ""))

    def load(self, data: pa.Table, **more: object) -> CommitResult:
        options = {**self.options, **{name.replace("__", "."): value for name, value in more.items()}}
        return write_arrow(self.path, data, options, by_tasks=True)

    @property
    def built(self) -> BuiltTable:
        """The same table, for what is done step by step."""
        return BuiltTable(self.storage, SCHEMA, self.options)

    def plan(self) -> str | None:
        return self.built.plan()

    def execute(self, plan: str | None) -> None:
        assert plan is not None
        self.built.execute(plan)

    def compact(self) -> None:
        self.execute(self.plan())

    def values(self) -> Values:
        """The rows, which both readers must agree on, each key once."""
        found = self.table.to_arrow(columns=["id", "v"]).to_pylist()
        batches = hudi.HudiTableBuilder.from_base_uri(self.path).build().read(hudi.HudiReadOptions())
        by_hudi_rs = [row for batch in batches for row in pa.record_batch(batch).select(["id", "v"]).to_pylist()]
        assert sorted(row["id"] for row in by_hudi_rs) == sorted({row["id"] for row in found})
        assert {row["id"]: row["v"] for row in by_hudi_rs} == {row["id"]: row["v"] for row in found}
        assert len(found) == len(by_hudi_rs)
        return {row["id"]: row["v"] for row in found}

    def base_files(self, names: tuple[str, ...] | None = None) -> int:
        there = self.storage.list("").files if names is None else names
        return sum(isinstance(parse_data_file(name), BaseFile) for name in there)


@pytest.fixture(params=[NON_BLOCKING, OPTIMISTIC])
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> Loaded:
    return Loaded(tmp_path / "t", request.param)


@pytest.fixture
def table(tmp_path: Path) -> Loaded:
    made = Loaded(tmp_path / "t")
    made.make()
    return made


# -- what is written --------------------------------------------------------------------------------------------------


def test_a_load_makes_base_files_that_are_sorted_and_have_each_key_once(loaded: Loaded) -> None:
    twice = pa.concat_tables([rows(range(40), 1, "old"), rows(range(20), 2, "new"), rows(range(10), 0, "older")])
    done = loaded.load(twice)
    assert loaded.base_files(done.files) == len(done.files) == 2
    assert done.rows_written == 40
    assert loaded.values() == {key: f"{'new' if key < 20 else 'old'}{key}" for key in range(40)}
    for name in done.files:
        found, footer = read_base_file(loaded.storage, name, ["_hoodie_record_key", "_hoodie_file_name"])
        keys = found["_hoodie_record_key"].to_pylist()
        assert keys == sorted(keys) and set(found["_hoodie_file_name"].to_pylist()) == {name}
        assert footer[b"hoodie_min_record_key"].decode() == keys[0]
        assert footer[b"hoodie_max_record_key"].decode() == keys[-1]


def test_later_rows_and_loads_become_log_files(loaded: Loaded) -> None:
    loaded.load(rows(range(10), 1, "a"))
    assert loaded.base_files(loaded.load(rows(range(5, 15), 2, "b")).files) == 0
    loaded.table.upsert(rows(range(2), 3, "c"))
    expected = {key: f"{'c' if key < 2 else 'a' if key < 5 else 'b'}{key}" for key in range(15)}
    assert loaded.values() == expected
    loaded.compact()
    assert loaded.values() == expected


# -- what comes in between --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", MEANWHILE)
def test_log_files_that_complete_later_are_merged_onto_the_base_file(table: Loaded, point: str) -> None:
    with meanwhile(lambda: table.table.upsert(rows(range(5), 2, "log")), point):
        done = table.load(rows(range(10), 1, "load"))
    assert table.base_files(done.files) == 2
    expected = {key: f"{'log' if key < 5 else 'load'}{key}" for key in range(10)}
    assert table.values() == expected
    table.compact()
    assert table.values() == expected


@pytest.mark.parametrize("point", MEANWHILE)
def test_of_two_loads_the_second_to_commit_has_log_files(table: Loaded, point: str) -> None:
    with meanwhile(lambda: table.load(rows(range(5, 15), 2, "first")), point):
        done = table.load(rows(range(10), 1, "second"))
    assert table.base_files(done.files) == 0 and done.conflicts_retried == 0
    assert table.values() == {key: f"{'second' if key < 5 else 'first'}{key}" for key in range(15)}
    assert table.base_files() == 2 and not Snapshot.load(table.storage).pending


def ids_of(table: Loaded, bucket: int, count: int) -> list[int]:
    """The first keys of a bucket."""
    buckets = bucket_ids_of_texts([pa.array([str(key) for key in range(99)])], table.buckets).to_pylist()
    return [key for key in range(99) if buckets[key] == bucket][:count]


@pytest.mark.parametrize("point", MEANWHILE)
def test_buckets_that_nobody_else_has_touched_keep_base_files(table: Loaded, point: str) -> None:
    left, right = ids_of(table, 0, 4), ids_of(table, 1, 4)
    with meanwhile(lambda: table.load(rows(left[:2], 2, "first")), point):
        done = table.load(rows([*left, *right], 1, "second"))
    assert table.base_files(done.files) == 1 and len(done.files) == 2 and done.conflicts_retried == 0
    expected = {key: f"{'first' if key in left[:2] else 'second'}{key}" for key in [*left, *right]}
    assert table.values() == expected
    (name,) = [name for name in done.files if isinstance(parse_data_file(name), BaseFile)]
    found, footer = read_base_file(table.storage, name, ["_hoodie_commit_time", "_hoodie_file_name"])
    assert set(found["_hoodie_commit_time"].to_pylist()) == {done.instant}
    assert set(found["_hoodie_file_name"].to_pylist()) == {name} and b"hoodie_max_record_key" in footer
    completed = next(one for one in Snapshot.load(table.storage).completed if one.requested == done.instant)
    assert [stat.num_writes for stat in read_commit(table.storage, completed).stats] == [4, 4]
    table.compact()
    assert table.values() == expected and not Snapshot.load(table.storage).pending


def test_a_base_file_that_is_taken_over_keeps_its_order_and_layout(table: Loaded) -> None:
    """Numbers are in another order than the keys, which are texts."""
    left, right = ids_of(table, 0, 2), ids_of(table, 1, 20)
    with meanwhile(lambda: table.load(rows(left, 2, "first")), "commit.after_lock"):
        more = {
            "hoodie.bulkinsert.user.defined.partitioner.sort.columns": "id",
            "hoodie.parquet.compression.codec": "gzip",
        }
        done = table.load(rows([*left, *right], 1, "second"), **more)
    (name,) = [name for name in done.files if isinstance(parse_data_file(name), BaseFile)]
    file = pq.ParquetFile(Path(table.path) / name)
    assert file.read()["id"].to_pylist() == right != sorted(right, key=str)
    assert file.metadata.row_group(0).column(0).compression == "GZIP"


@pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])
def test_a_column_that_came_meanwhile_is_null_in_what_is_taken_over(tmp_path: Path, mode: str) -> None:
    table = Loaded(tmp_path / "t", mode)
    table.make()
    left, right = ids_of(table, 0, 4), ids_of(table, 1, 4)
    more = rows(left[:2], 2, "first").append_column("more", pa.array([7, 8], pa.int64()))
    retried = {} if mode == NON_BLOCKING else RETRIED
    with meanwhile(lambda: table.load(more, mergeSchema="true"), "commit.after_lock"):
        done = table.load(rows([*left, *right], 1, "second"), **retried)
    assert table.base_files(done.files) == 1
    expected = {key: f"{'first' if key in left[:2] else 'second'}{key}" for key in [*left, *right]}
    assert table.values() == expected
    found = {row["id"]: row["more"] for row in table.table.to_arrow(columns=["id", "more"]).to_pylist()}
    assert found == {**dict.fromkeys([*left, *right]), left[0]: 7, left[1]: 8}


@pytest.mark.parametrize("point", MEANWHILE)
def test_what_is_in_the_way_twice_makes_log_files_of_all(tmp_path: Path, point: str) -> None:
    """Also in a bucket that nobody else has touched."""
    table = Loaded(tmp_path / "t", buckets=3)
    table.make()
    left, right, alone = (ids_of(table, bucket, 4) for bucket in range(3))
    steps = [(right[:2], "then"), (left[:2], "first")]

    def meanwhile(_: str) -> None:
        if steps:
            keys, name = steps.pop()
            with calling(lambda _: None, [point]):
                table.load(rows(keys, 2, name))

    with calling(meanwhile, [point]):
        done = table.load(rows([*left, *right, *alone], 1, "last"))
    named = {**dict.fromkeys([*left, *right, *alone], "last"), **dict.fromkeys(left[:2], "first")}
    if not steps:  # the second try came by that point as well
        named |= dict.fromkeys(right[:2], "then")
        assert table.base_files(done.files) == 0
    assert table.values() == {key: f"{name}{key}" for key, name in named.items()}


@pytest.mark.parametrize("point", MEANWHILE)
def test_a_plan_that_waits_is_not_in_front_of_a_base_file(table: Loaded, point: str) -> None:
    plans: list[str | None] = []

    def planned() -> None:
        table.table.upsert(rows(range(5), 2, "log"))
        plans.append(table.plan())

    with meanwhile(planned, point):
        done = table.load(rows(range(10), 1, "load"))
    expected = {key: f"{'log' if key < 5 else 'load'}{key}" for key in range(10)}
    assert table.base_files(done.files) == 0 and table.values() == expected
    table.execute(plans[0])
    assert table.values() == expected


@pytest.mark.parametrize("point", MEANWHILE)
def test_a_compaction_that_has_completed_is_not_hidden(table: Loaded, point: str) -> None:
    def compacted() -> None:
        table.table.upsert(rows(range(5), 2, "log"))
        table.compact()

    with meanwhile(compacted, point):
        table.load(rows(range(10), 1, "load"))
    assert table.values() == {key: f"{'log' if key < 5 else 'load'}{key}" for key in range(10)}


@pytest.mark.parametrize("point", MEANWHILE)
def test_a_load_of_file_groups_that_are_replaced_meanwhile_is_there(table: Loaded, point: str) -> None:
    def replaced() -> None:
        table.table.upsert(rows(range(5), 2, "gone"))
        table.load(rows(range(20, 22), 2, "over"), **{OPERATION: "insert_overwrite_table"})

    with meanwhile(replaced, point):
        table.load(rows(range(10), 1, "load"))
    assert table.values() == {key: f"{'over' if key >= 20 else 'load'}{key}" for key in [*range(10), 20, 21]}


@pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])
def test_a_log_file_that_completes_below_is_not_hidden(tmp_path: Path, mode: str) -> None:
    """Its time is taken before the load's, and its slot after the load has looked."""
    table = Loaded(tmp_path / "t", mode)
    table.make()
    begun: list[Writing] = []
    built = table.built
    with meanwhile(lambda: begun.append(built.begin("bulk_insert")), "commit.before_slot"):
        below = table.table.upsert(rows(range(5), 2, "below"))
    (writing,) = begun
    assert below.completion <= writing.instant
    writing.put_sorted(rows(range(10), 1, "load"))
    assert table.base_files(tuple(report.file_name for report in writing.reports)) == 2
    writing.loses()
    assert writing.staged().may_become_logs == (mode == NON_BLOCKING)
    assert table.values() == {key: f"below{key}" for key in range(5)}


@pytest.mark.parametrize("point", MEANWHILE)
def test_under_optimistic_control_it_is_a_conflict(tmp_path: Path, point: str) -> None:
    table = Loaded(tmp_path / "t", OPTIMISTIC)
    table.make()
    with meanwhile(lambda: table.load(rows(range(5), 2, "first")), point), pytest.raises(WriteConflict):
        table.load(rows(range(10), 1, "second"))
    assert table.values() == {key: f"first{key}" for key in range(5)}
    with meanwhile(lambda: table.load(rows(range(10, 15), 2, "third")), point):
        table.load(rows(range(10), 3, "second"), **RETRIED)
    assert table.values() == {key: f"{'second' if key < 10 else 'third'}{key}" for key in range(15)}


def test_two_loads_that_make_the_table(tmp_path: Path) -> None:
    table = Loaded(tmp_path / "t")
    with meanwhile(lambda: table.load(rows(range(5, 15), 2, "first")), "write.before_rows"):
        table.load(rows(range(10), 1, "second"))
    assert table.values() == {key: f"{'second' if key < 5 else 'first'}{key}" for key in range(15)}


def test_time_travel_and_windows_see_the_load_from_its_completion_on(table: Loaded) -> None:
    logs: list[CommitResult] = []
    with meanwhile(lambda: logs.append(table.table.upsert(rows(range(5), 2, "log"))), "commit.after_lock"):
        done = table.load(rows(range(10), 1, "load"))
    (log,) = logs
    assert done.instant < log.completion < done.completion and table.base_files(done.files) == 2

    def values(**options: str) -> Values:
        plan = plan_read(table.path, {name.replace("__", "."): value for name, value in options.items()})
        read = [row for found in plan.slices for batch in plan.read(found) for row in batch.to_pylist()]
        return {row["id"]: row["v"] for row in read}

    assert values(as__of__instant=log.completion) == {key: f"log{key}" for key in range(5)}
    window = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": log.completion}
    assert values(**window) == {key: f"load{key}" for key in range(5, 10)}
