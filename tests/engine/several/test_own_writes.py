"""Inside a transaction over several tables: reads see what it wrote, and a table is changed more than once."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from several_tables import FIRST, OPTIMISTIC, QUICK, Tables, rows, values

import lakelatch
from lakelatch import failpoints
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import calling
from lakelatch.timeline.log.events import COMPLETE, ROLLBACK

NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
COPY_ON_WRITE = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
TABLES = {
    "optimistic": ({}, OPTIMISTIC),
    "non-blocking": ({}, NON_BLOCKING),
    "copy-on-write": (COPY_ON_WRITE, OPTIMISTIC),
}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


@pytest.mark.parametrize(("made", "options"), TABLES.values(), ids=TABLES)
def test_each_change_sees_those_before_it(tmp_path: Path, made: Any, options: Mapping[str, object]) -> None:
    """At equal ordering values the later change wins, of whatever kind both are."""
    tables = Tables(tmp_path, 2, made)
    path, other = tables.paths
    with lakelatch.transaction(tables.paths, options) as tx:
        table = tx.arrow_table(path)
        tx.upsert(path, rows({1: 11, 3: 30}))
        assert values(tx.to_arrow(path)) == {1: 11, 2: 20, 3: 30}
        tx.upsert(path, rows({3: 31}))
        table.delete("v = 20")
        assert values(tx.to_arrow(path)) == {1: 11, 3: 31}
        tx.upsert(path, rows({2: 22}))
        table.update("id < 3", {"v": "v + 100"})
        with pytest.raises(InvalidRequest, match="has a row with id=2"):
            tx.insert(path, rows({2: 1}))
        tx.insert(path, rows({4: 40}))
        table.merge(rows({4: 44, 5: 50})).when_matched_update_all().when_not_matched_insert_all().execute()
        assert values(tx.to_arrow(path)) == {1: 111, 2: 122, 3: 31, 4: 44, 5: 50}
        tx.upsert(other, rows({1: 1}))
        assert values(table.to_arrow(where="v > 100")) == {1: 111, 2: 122}
        assert tables.now() == [FIRST, FIRST]
    assert tables.now() == [{1: 111, 2: 122, 3: 31, 4: 44, 5: 50}, {1: 1, 2: 20}] == tables.cut()
    events = tables.log(0).tail().events
    assert [event.kind for event in events] == [COMPLETE] * 7 and {event.decision for event in events} != {""}
    assert tx.results[path].operation == "merge" and tx.results[path].completion == events[-1].time
    lakelatch.open(path, options).compact() if options is NON_BLOCKING else None
    assert not lakelatch.open(path).verify().findings


@pytest.mark.parametrize(("made", "options"), TABLES.values(), ids=TABLES)
def test_an_overwrite_replaces_what_was_written_before_it(
    tmp_path: Path, made: Any, options: Mapping[str, object]
) -> None:
    tables = Tables(tmp_path, 1, {**made, "hoodie.bucket.index.num.buckets": "4"})
    (path,) = tables.paths
    with lakelatch.transaction([path], options) as tx:
        tx.upsert(path, rows({3: 30, 4: 40}))
        tx.arrow_table(path).overwrite(rows({4: 41, 5: 50}))
        assert values(tx.to_arrow(path)) == {4: 41, 5: 50}
        tx.upsert(path, rows({4: 42, 6: 60}))
        assert values(tx.to_arrow(path)) == {4: 42, 5: 50, 6: 60}
        tx.arrow_table(path).overwrite(rows({7: 70}))
        tx.upsert(path, rows({8: 80}))
        assert values(tx.to_arrow(path)) == {7: 70, 8: 80}
    tables.write(0, {8: 81, 9: 90})
    assert tables.now() == [{7: 70, 8: 81, 9: 90}]
    assert not lakelatch.open(path).verify().findings


def test_a_table_that_was_empty(tmp_path: Path) -> None:
    """Its first rows are base files, above which later changes are merged."""
    path = str(tmp_path / "table")
    options = {**OPTIMISTIC, "hoodie.write.lock.provider": "filesystem"}
    lakelatch.ArrowTable.create(path, "id long, v long, at long", key="id", ordering="at", options=options)
    with lakelatch.transaction([path], options) as tx:
        tx.insert(path, rows({number: number for number in range(5)}))
        tx.upsert(path, rows({1: 10, 7: 70}))
        assert values(tx.to_arrow(path)) == {0: 0, 1: 10, 2: 2, 3: 3, 4: 4, 7: 70}
    assert values(lakelatch.open(path).to_arrow()) == {0: 0, 1: 10, 2: 2, 3: 3, 4: 4, 7: 70}


def overtaken(tables: Tables, options: Mapping[str, object]) -> None:
    """A block that has read a table when others overwrite it, and then changes it more than once."""
    (path,) = tables.paths
    with lakelatch.transaction([path], options) as tx:
        assert values(tx.to_arrow(path)) == FIRST
        overwritten(path, options, {7: 70})
        tx.upsert(path, rows({3: 3}, 2))
        tx.upsert(path, rows({5: 5}, 2))
        assert values(tx.to_arrow(path)) == {**FIRST, 3: 3, 5: 5}
        tx.arrow_table(path).overwrite(rows({2: 2}, 2))
        tx.upsert(path, rows({4: 4}, 2))
        assert values(tx.to_arrow(path)) == {2: 2, 4: 4}


def overwritten(path: str, options: Mapping[str, object], given: Mapping[int, int]) -> None:
    others = Thread(target=lakelatch.open(path, options).overwrite, args=(rows(given),))
    others.start()
    others.join()


def test_what_others_replace_after_the_first_read_is_not_seen(tmp_path: Path) -> None:
    """The transaction goes on as of its moment: at its end that is a conflict, or its rows move."""
    one_bucket = {"hoodie.bucket.index.num.buckets": "1"}
    tables = Tables(tmp_path, 1, one_bucket)
    with pytest.raises(WriteConflict, match="completed first"):
        overtaken(tables, OPTIMISTIC)
    assert tables.now() == [{7: 70}] and not lakelatch.verify(tables.paths[0]).findings
    tables = Tables(tmp_path / "moves", 1, one_bucket)
    overtaken(tables, NON_BLOCKING)
    assert tables.now() == [{2: 2, 4: 4}] and not lakelatch.verify(tables.paths[0]).findings


def test_what_others_write_after_the_first_read_is_in_nobodys_way_under_non_blocking_control(tmp_path: Path) -> None:
    """An overwrite takes it away, also where there was no row at the transaction's moment."""
    tables = Tables(tmp_path, 2, {"hoodie.bucket.index.num.buckets": "64"})
    with lakelatch.transaction(tables.paths, NON_BLOCKING) as tx:
        assert values(tx.to_arrow(tables.paths[0])) == FIRST
        for number in range(4):
            lakelatch.open(tables.paths[0], NON_BLOCKING).upsert(rows({number: 7}, 9))
        lakelatch.open(tables.paths[1], NON_BLOCKING).upsert(rows({7: 70}, 9))
        tx.upsert(tables.paths[0], rows({1: 11}, 10))
        tx.upsert(tables.paths[0], rows({1: 12}, 10))
        tx.arrow_table(tables.paths[1]).overwrite(rows({4: 4}, 10))
        tx.upsert(tables.paths[1], rows({5: 5}, 10))
    assert tables.now() == [{**dict.fromkeys(range(4), 7), 1: 12}, {4: 4, 5: 5}]


@pytest.mark.parametrize("options", [OPTIMISTIC, NON_BLOCKING])
def test_rows_that_others_move_before_the_first_read_would_not_be_seen_by_it(
    tmp_path: Path, options: Mapping[str, object]
) -> None:
    tables = Tables(tmp_path, 1)
    (path,) = tables.paths
    words = r"table0 between the first.*run the block again"
    with pytest.raises(WriteConflict, match=words), lakelatch.transaction([path], options) as tx:
        tx.upsert(path, rows({3: 3}))
        tx.staged_in(path)
        overwritten(path, options, {7: 70})
        tx.to_arrow(path)
    assert tables.now() == [{7: 70}]


def test_columns_that_a_change_adds_are_there_for_the_next_one(tables: Tables) -> None:
    path = tables.paths[0]
    wider = rows({3: 30}, 2).append_column("more", [["new"]])
    with lakelatch.transaction([path], {**OPTIMISTIC, "mergeSchema": "true"}) as tx:
        tx.upsert(path, wider)
        assert tx.to_arrow(path).sort_by("id")["more"].to_pylist() == [None, None, "new"]
        tx.arrow_table(path).update("id = 1", {"more": "'old'"})
        tx.upsert(path, wider.slice(0, 0))
        tx.arrow_table(path).delete("id = 2")
    found = lakelatch.open(path).to_arrow().sort_by("id")
    assert found["more"].to_pylist() == ["old", "new"]


@pytest.mark.parametrize("options", [OPTIMISTIC, NON_BLOCKING], ids=["optimistic", "non-blocking"])
def test_nothing_later_of_others_is_seen(tmp_path: Path, options: Mapping[str, object]) -> None:
    """Others' rows are merged below those of the transaction once it commits, where it does not end for them."""
    tables = Tables(tmp_path, 1, {"hoodie.bucket.index.num.buckets": "1"})
    (path,) = tables.paths

    def change() -> None:
        with lakelatch.transaction([path], options) as tx:
            assert values(tx.to_arrow(path)) == FIRST
            tx.upsert(path, rows({1: 11}, 5))
            thread = Thread(target=tables.write, args=(0, {2: 7, 3: 7}))
            thread.start()
            thread.join()
            assert values(tx.to_arrow(path)) == {1: 11, 2: 20}
            tx.upsert(path, rows({1: 12}, 5))
            assert values(tx.to_arrow(path)) == {1: 12, 2: 20}

    if options is OPTIMISTIC:
        with pytest.raises(WriteConflict):
            change()
        assert tables.now() == [{1: 10, 2: 7, 3: 7}]
    else:
        change()
        assert tables.now() == [{1: 12, 2: 7, 3: 7}]


def test_what_others_replace_meanwhile_moves_all_changes(tmp_path: Path) -> None:
    """The rows of an upsert lie elsewhere by the time at which a later overwrite takes them away."""
    tables = Tables(tmp_path, 2, {"hoodie.bucket.index.num.buckets": "64"})

    def overwrite() -> None:
        for path in tables.paths:
            lakelatch.open(path, NON_BLOCKING).overwrite(rows({1: 7}, 6))

    with lakelatch.transaction(tables.paths, NON_BLOCKING) as tx:
        for path in tables.paths:
            tx.upsert(path, rows(dict.fromkeys(range(9), 1), 5))
        tx.upsert(tables.paths[0], rows({2: 2}, 5))
        tx.arrow_table(tables.paths[1]).overwrite(rows({4: 4}, 5))
        thread = Thread(target=overwrite)
        thread.start()
        thread.join()
    assert tables.now() == [{0: 1, 1: 7, 2: 2, **dict.fromkeys(range(3, 9), 1)}, {4: 4}]
    for path in tables.paths:
        lakelatch.open(path, NON_BLOCKING).upsert(rows({5: 5}, 9))
        assert not lakelatch.open(path).verify().findings
    assert tables.now()[1] == {4: 4, 5: 5}


def test_a_conflict_of_one_change_ends_all(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 2, {"hoodie.bucket.index.num.buckets": "64"})
    with pytest.raises(WriteConflict), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        tx.to_arrow(tables.paths[0])
        tx.upsert(tables.paths[0], rows({3: 30}))
        tx.upsert(tables.paths[1], rows({1: 11}))
        tx.upsert(tables.paths[0], rows({2: 22}))
        tables.write(0, {2: 7})
    assert tables.now() == [{1: 10, 2: 7}, FIRST] == tables.cut()
    with pytest.raises(ZeroDivisionError), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        tx.upsert(tables.paths[0], rows({3: 30}))
        tx.upsert(tables.paths[0], rows({2: 1 // 0}))
    assert tables.now() == [{1: 10, 2: 7}, FIRST]
    log = tables.log(0)
    assert [event.kind for event in log.events_after(1, log.tail())].count(ROLLBACK) == 3


@pytest.mark.parametrize("number", [0, 1])
def test_a_serializable_transaction_is_held_against_what_it_has_read_and_not_against_itself(
    tables: Tables, number: int
) -> None:
    def change(meanwhile: bool) -> None:
        with lakelatch.transaction(tables.paths, OPTIMISTIC, isolation="serializable") as tx:
            read = values(tx.to_arrow(tables.paths[1]))
            tx.upsert(tables.paths[0], rows({1: read[1] + 1}, 2))
            tx.upsert(tables.paths[0], rows({1: values(tx.to_arrow(tables.paths[0]))[1] + 1}, 2))
            if meanwhile:
                tables.write(number, {7: 7})

    with pytest.raises(WriteConflict):
        change(meanwhile=True)
    change(meanwhile=False)
    assert tables.now()[0] == {1: 12, 2: 20, **({7: 7} if number == 0 else {})}


def killed_at(tables: Tables, point: str) -> None:
    """A transaction that changes its second table three times, killed at a failpoint."""
    child = os.fork()
    if child == 0:
        try:
            with (
                failpoints.active(f"{point}=kill@1"),
                lakelatch.transaction(tables.paths, {**OPTIMISTIC, **QUICK}) as tx,
            ):
                tx.upsert(tables.paths[0], rows({1: 11}, 2))
                for number in range(3):
                    tx.upsert(tables.paths[1], rows({1: 11, number + 5: number}, 2))
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("point", ["several.before_decision", "several.after_decision"])
def test_a_dead_writer_has_changed_all_or_nothing(tables: Tables, point: str) -> None:
    killed_at(tables, point)
    assert tables.now() == [FIRST, FIRST]
    shown: dict[int, int] = {}
    if point == "several.after_decision":
        shown = {5: 0, 6: 1, 7: 2}
        assert tables.cut() == [{1: 11, 2: 20}, {1: 11, 2: 20, **shown}]
    for number in range(2):
        tables.write(number, {2: 7})
    assert tables.now()[1] == {1: 11 if shown else 10, 2: 7, **shown}


def test_no_reader_sees_some_of_several_changes_of_one_table(tables: Tables) -> None:
    """Their completed files are made one after the other, and whoever makes them may die in between."""
    path, seen = tables.paths[0], []
    before = tables.log(0).tail().time

    def look(_: str) -> None:
        table = lakelatch.open(path)
        made = len(list(Path(path, ".hoodie/timeline").glob("*.deltacommit")))
        written = [found.read_all() for found in (table.changes(before), table.changes(before, images=True))]
        seen.append((made, values(table.to_arrow()), [found.num_rows for found in written]))

    with calling(look, ["commit.after_projection"]), lakelatch.transaction([path], OPTIMISTIC) as tx:
        tx.upsert(path, rows({1: 11}, 2))
        tx.upsert(path, rows({2: 21}, 2))
        tx.upsert(path, rows({1: 12, 3: 30}, 2))
    assert [made for made, _, _ in seen] == [2, 3, 4]
    assert [found for _, found, _ in seen] == [FIRST, FIRST, {1: 12, 2: 21, 3: 30}]
    assert [found for _, _, found in seen] == [[0, 0], [0, 0], [3, 4]]
    lakelatch.roll_back(path, tables.log(0).tail().events[-1].instant)
    assert tables.now()[0] == {1: 11, 2: 21}


def test_a_batch_that_comes_again_changes_nothing(tables: Tables) -> None:
    batch = {"hoodie.datasource.write.streaming.checkpoint.identifier": "app", "lakelatch.write.batch.number": 1}

    def write() -> Any:
        with lakelatch.transaction(tables.paths, {**OPTIMISTIC, **batch}) as tx:
            tx.upsert(tables.paths[0], rows({1: 11}, 2))
            tx.upsert(tables.paths[0], rows({1: 12}, 2))
        return tx.results[tables.paths[0]]

    assert not write().repeated
    tables.write(0, {1: 13})
    assert write().repeated and tables.now()[0] == {1: 13, 2: 20}
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        tx.upsert(tables.paths[0], rows({2: 1}, 20))
        with pytest.raises(InvalidRequest, match="belong to different batches"):
            tx.upsert(tables.paths[0], rows({2: 2}, 20), {**batch, "lakelatch.write.batch.number": 2})
    assert tables.now()[0] == {1: 13, 2: 1}


def test_files_that_another_read_would_need_are_there_once_it_is_asked(tables: Tables) -> None:
    """A transaction that reads nothing back puts its small files at its end, as ever."""
    seen: list[int] = []

    def count(_: str) -> None:
        seen.append(len(list(Path(tables.paths[0]).glob(".*log*"))))

    with calling(count, ["several.before_decision"]), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        before = len(list(Path(tables.paths[0]).glob(".*log*")))
        tx.upsert(tables.paths[0], rows({1: 11}, 2))
        assert len(list(Path(tables.paths[0]).glob(".*log*"))) == before
        assert values(tx.to_arrow(tables.paths[0])) == {1: 11, 2: 20}
        assert len(list(Path(tables.paths[0]).glob(".*log*"))) > before
    assert seen


def test_history_and_restore_wait_for_the_end_of_the_block(tables: Tables) -> None:
    """What is staged has no completion time yet."""
    path = tables.paths[0]
    first = lakelatch.snapshot([path]).times[path]
    with lakelatch.transaction([path], OPTIMISTIC) as tx:
        table = tx.arrow_table(path)
        assert len(table.history().to_pylist()) == 1
        tx.upsert(path, rows({3: 30}))
        with pytest.raises(InvalidRequest, match="read its history after the block"):
            table.history()
        with pytest.raises(InvalidRequest, match=r"restore of .* outside of the block"):
            table.restore(first)
    assert tables.now()[0] == {**FIRST, 3: 30}
