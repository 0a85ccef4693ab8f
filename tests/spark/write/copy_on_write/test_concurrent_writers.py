"""Writers of one bucket of a copy-on-write table: what completed after the file that a write has merged is a conflict.

No Spark here: each writer is an Arrow table's.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from taken_back_table import undone_by_java

import lakelatch
from lakelatch.engine.arrow import ArrowRows, ArrowTable
from lakelatch.engine.run.result import CommitResult
from lakelatch.errors import Unavailable, WriteConflict
from lakelatch.failpoints import active, calling
from lakelatch.format.bucket_index import bucket_file_id
from lakelatch.format.names import BaseFile
from lakelatch.storage import LocalStorage
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.markers.direct import Markers

OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.table.type": "COPY_ON_WRITE",
}
RETRIED = {"hoodie.write.num.retries.on.conflict.failures": 20}


def rows(ids: range, ts: int, name: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids), "v": [f"{name}{key}" for key in ids]})


@pytest.fixture
def table(tmp_path: Path) -> ArrowTable:
    made = ArrowTable(tmp_path / "trips", OPTIONS)
    made.upsert(rows(range(3), 1, "a"))
    return made


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written as tasks write them, of whose instants other attempts may know."""
    monkeypatch.setattr(ArrowRows, "are_here", lambda rows, options: False)


def values(table: ArrowTable) -> dict[int, str]:
    found = table.to_arrow(columns=["id", "v"]).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


def meanwhile(table: ArrowTable, *steps: Callable[[], object]) -> Callable[[str], None]:
    """Each of the steps at one of the first points to which a write comes that is not in a step itself."""
    left, busy = [*steps], False

    def step(_: str) -> None:
        nonlocal busy
        if left and not busy:
            busy = True
            left.pop(0)()
            busy = False

    return step


@pytest.mark.parametrize("point", ["write.before_rows", "commit.after_lock"])
def test_what_completes_meanwhile_is_a_conflict(table: ArrowTable, by_tasks: None, point: str) -> None:
    """Also if it completed before the rows were merged: the base file is the one at the write's beginning."""
    other = meanwhile(table, lambda: table.upsert(rows(range(2, 4), 2, "other")))
    with calling(other, [point]), pytest.raises(WriteConflict):
        table.upsert(rows(range(1), 5, "lost"))
    assert values(table) == {0: "a0", 1: "a1", 2: "other2", 3: "other3"}


def test_who_finds_the_log_later_before_its_files_are_announced_begins_behind_it(table: ArrowTable) -> None:
    """Rows that were merged into the base file of before are not written."""
    other = meanwhile(table, lambda: table.upsert(rows(range(2, 4), 2, "other")))
    with calling(other, ["write.before_rows"]):
        result = table.upsert(rows(range(3), 1, "late"))
    assert result.conflicts_retried == 0
    assert values(table) == {0: "late0", 1: "late1", 2: "other2", 3: "other3"}


def test_a_base_file_that_is_gone_before_it_is_merged_is_a_conflict(table: ArrowTable, by_tasks: None) -> None:
    gone = table.upsert(rows(range(7, 9), 2, "gone"))
    undo = partial(undone_by_java, LocalStorage(table.path), "", gone, "commit")
    with (
        calling(meanwhile(table, undo), ["write.before_rows"]),
        pytest.raises(WriteConflict, match="is gone"),
    ):
        table.upsert(rows(range(1), 2, "lost"))
    gone = table.upsert(rows(range(7, 9), 2, "gone"))
    undo = partial(undone_by_java, LocalStorage(table.path), "", gone, "commit")
    with calling(meanwhile(table, undo), ["write.before_rows"]):
        result = table.upsert(rows(range(1), 2, "own"), RETRIED)
    assert result.conflicts_retried == 1
    assert values(table) == {0: "own0", 1: "a1", 2: "a2"}


@pytest.mark.parametrize("point", ["write.before_rows", "commit.after_lock"])
def test_a_further_try_merges_anew(table: ArrowTable, by_tasks: None, point: str) -> None:
    other = meanwhile(table, lambda: table.upsert(rows(range(2, 4), 2, "other")))
    with calling(other, [point]):
        result = table.upsert(rows(range(3), 1, "late"), RETRIED)
    assert result.conflicts_retried == 1
    assert values(table) == {0: "late0", 1: "late1", 2: "other2", 3: "other3"}
    assert len(Snapshot.load(LocalStorage(table.path)).completed) == 4  # with a rollback


def test_another_bucket_is_no_conflict(tmp_path: Path) -> None:
    table = ArrowTable(tmp_path / "trips", {**OPTIONS, "hoodie.bucket.index.num.buckets": 2})
    table.upsert(rows(range(4), 1, "a"))
    other = meanwhile(table, lambda: table.upsert(rows(range(1, 2), 2, "other")))
    with calling(other, ["commit.after_lock"]):
        assert table.upsert(rows(range(2, 3), 2, "own")).conflicts_retried == 0
    assert values(table) == {0: "a0", 1: "other1", 2: "own2", 3: "a3"}


def test_a_write_that_was_taken_back_leaves_no_row(table: ArrowTable) -> None:
    """It completes and is rolled back while another one is at work: nothing of it may come back."""

    def written_and_taken_back() -> None:
        instant = table.upsert(rows(range(7, 9), 2, "gone")).instant
        lakelatch.roll_back(table.path, instant)

    with calling(meanwhile(table, written_and_taken_back), ["write.before_rows"]):
        table.upsert(rows(range(1), 2, "own"), RETRIED)
    assert values(table) == {0: "own0", 1: "a1", 2: "a2"}


def test_a_merged_write_that_is_taken_back_is_a_conflict(table: ArrowTable) -> None:
    instant = table.upsert(rows(range(7, 9), 2, "gone")).instant
    with calling(meanwhile(table, lambda: lakelatch.roll_back(table.path, instant)), ["commit.after_lock"]):
        result = table.upsert(rows(range(1), 2, "own"), RETRIED)
    assert result.conflicts_retried == 1
    assert values(table) == {0: "own0", 1: "a1", 2: "a2"}


def test_another_engine_s_rollback_of_what_was_merged_is_a_conflict(table: ArrowTable, by_tasks: None) -> None:
    gone = table.upsert(rows(range(7, 9), 2, "gone"))
    undone = meanwhile(table, lambda: undone_by_java(LocalStorage(table.path), "", gone, "commit"))
    with calling(undone, ["close.after"]):
        result = table.upsert(rows(range(1), 2, "own"), RETRIED)
    assert result.conflicts_retried == 1
    assert values(table) == {0: "own0", 1: "a1", 2: "a2"}


def test_what_comes_and_goes_meanwhile_is_not_merged(table: ArrowTable, by_tasks: None) -> None:
    """Another engine's rollback takes away the only trace of it, so nothing but what was merged could tell."""
    done: list[CommitResult] = []
    come = meanwhile(
        table,
        lambda: done.append(table.upsert(rows(range(7, 9), 2, "gone"))),
        lambda: undone_by_java(LocalStorage(table.path), "", done[0], "commit"),
    )
    with calling(come, ["write.before_rows", "close.after"]):
        table.upsert(rows(range(1), 2, "own"), RETRIED)
    assert values(table) == {0: "own0", 1: "a1", 2: "a2"}


def test_an_overwrite_meanwhile_is_a_conflict(table: ArrowTable) -> None:
    def overwrite() -> None:
        table._write(rows(range(5, 6), 1, "over"), "insert_overwrite", None)

    with calling(meanwhile(table, overwrite), ["commit.after_lock"]):
        table.upsert(rows(range(1), 2, "own"), RETRIED)
    assert values(table) == {0: "own0", 5: "over5"}


def test_columns_that_were_added_stay(table: ArrowTable) -> None:
    """A column that came between the opening of the table and the beginning of the write is in its base file."""
    wider = rows(range(1), 2, "wider").append_column("n", pa.array([7]))
    add = meanwhile(table, lambda: table.upsert(wider, {"mergeSchema": "true"}))
    with calling(add, ["begin.after_claim"]):
        table.upsert(rows(range(1, 2), 2, "own"), RETRIED)
    assert table.to_arrow(columns=["id", "v", "n"]).sort_by("id").to_pylist() == [
        {"id": 0, "v": "wider0", "n": 7},
        {"id": 1, "v": "own1", "n": None},
        {"id": 2, "v": "a2", "n": None},
    ]


@pytest.mark.parametrize("point", ["begin.after_claim", "begin.after_requested"])
def test_columns_of_a_table_that_others_have_made_stay(tmp_path: Path, point: str) -> None:
    """The write began where there was no table; by its try there is one, with a column that it does not know."""
    table = ArrowTable(tmp_path / "trips", OPTIONS)

    def others() -> None:
        table.upsert(rows(range(2), 1, "a"))
        noted = rows(range(1, 2), 2, "b").append_column("note", pa.array(["kept"]))
        table.upsert(noted, {"mergeSchema": True})

    with calling(meanwhile(table, others), [point]):
        table.upsert(rows(range(2, 3), 1, "late"), RETRIED)
    assert values(table) == {0: "a0", 1: "b1", 2: "late2"}
    assert sorted(table.to_arrow()["note"].to_pylist(), key=repr) == ["kept", None, None]


def test_many_writers_lose_no_row(tmp_path: Path) -> None:
    """Each adds one to a counter of its own by upserts, all of them in one base file."""
    table = ArrowTable(tmp_path / "trips", {**OPTIONS, **RETRIED, "hoodie.write.num.retries.on.conflict.failures": 200})
    table.upsert(rows(range(1), 0, "first"))

    def write(writer: int) -> None:
        own = ArrowTable(table.path, table._options)
        for number in range(6):
            own.upsert(rows(range(writer * 10 + number, writer * 10 + number + 1), 1, "w"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(1, 5)))
    assert set(values(table)) == {0, *(writer * 10 + number for writer in range(1, 5) for number in range(6))}


def test_a_dead_writer_leaves_no_base_file(table: ArrowTable) -> None:
    short = {"hoodie.client.heartbeat.interval_in_ms": 100, "hoodie.client.heartbeat.tolerable.misses": 1}
    dead = ArrowTable(table.path, {**OPTIONS, **short})
    with active("commit.after_lock=raise"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lakelatch.transactions.transaction.Transaction.abort", lambda self, conflict=None: self.hand_over()
        )
        with pytest.raises(Unavailable):
            dead.upsert(rows(range(3), 9, "dead"))
    timeline = Path(table.path) / ".hoodie" / "timeline"
    number = 10
    while not list(timeline.glob("*.rollback")):
        dead.upsert(rows(range(number, number + 1), 2, "alive"), RETRIED)
        number += 1
    assert values(table) == {0: "a0", 1: "a1", 2: "a2", **{key: f"alive{key}" for key in range(10, number)}}
    done = {one.requested for one in Snapshot.load(LocalStorage(table.path)).completed if one.action == "commit"}
    assert {file.stem.rpartition("_")[2] for file in Path(table.path).glob("*.parquet")} <= done


def test_a_file_of_an_attempt_with_other_rows_is_refused(
    table: ArrowTable, base_files: Callable[[str], list[str]], by_tasks: None
) -> None:
    """It could be made after the commit, of rows that the commit knows nothing of."""
    before = base_files(table.path)

    def attempt_with_other_rows(_: str) -> None:
        storage = LocalStorage(table.path)
        (instant,) = (one.requested for one in Snapshot.load(storage).pending)
        name = BaseFile(bucket_file_id(7), "0-0-0", instant).name
        Markers(storage, instant).announce("", name)

    with calling(attempt_with_other_rows, ["write.before_rows"]), pytest.raises(Unavailable, match="were not the same"):
        table.upsert(rows(range(9), 2, "b"))
    assert values(table) == {0: "a0", 1: "a1", 2: "a2"} and base_files(table.path) == before
