"""Tables that others restore, clean or remove while a transaction over several tables has seen them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from several_tables import FIRST, OPTIMISTIC, Tables, rows, values

import lakelatch
from lakelatch import ArrowTable
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import calling

ARCHIVING = {
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "lakelatch.archive.minimum.age.seconds": "0",
}
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
KEYLESS = {**OPTIMISTIC, "hoodie.write.lock.provider": "filesystem", "lakelatch.rewrite.automatic": "false"}
IN_PARTITIONS = {"hoodie.datasource.write.partitionpath.field": "at"}  # rows of another partition are in nobody's way
CLEANING = {"hoodie.cleaner.commits.retained": "1"}
NEW = {
    **OPTIMISTIC,
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "at",
}


def by_others(act: Callable[..., object], *arguments: object) -> None:
    """Called in a thread of its own, in which no transaction is open."""
    others = Thread(target=act, args=arguments)
    others.start()
    others.join()


def restored(tables: Tables) -> Callable[[], None]:
    """What takes the first table back to its first commit, after it has got another one."""
    table = lakelatch.open(tables.paths[0], OPTIMISTIC)
    first = lakelatch.snapshot(tables.paths).times[tables.paths[0]]
    tables.write(0, {1: 11, 3: 30})
    return lambda: by_others(table.restore, first)


def added(tmp_path: Path) -> list[str]:
    """Two tables without a record key, each with three files of one row."""
    paths = [str(tmp_path / name) for name in ("first", "second")]
    for path in paths:
        for value in range(3):
            ArrowTable(path, {**KEYLESS, "hoodie.table.name": Path(path).name}).insert(pa.table({"v": [value]}))
    return paths


def rows_of(found: pa.Table) -> list[int]:
    return sorted(found["v"].to_pylist())


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING], ids=["optimistic", "non-blocking"])
def test_files_that_others_join_are_not_in_the_way_of_rows_that_are_added(
    tmp_path: Path, mode: Mapping[str, object], isolation: str
) -> None:
    """Whether they are joined before the first read or after it: no row has changed."""
    paths = added(tmp_path)
    path, other = paths
    with lakelatch.transaction(paths, mode, isolation) as tx:
        tx.insert(path, pa.table({"v": [10]}))
        by_others(lakelatch.open(path, KEYLESS).cluster)
        assert rows_of(tx.to_arrow(path)) == [0, 1, 2, 10]
        by_others(lakelatch.open(other, KEYLESS).cluster)
        for one in paths:
            tx.insert(one, pa.table({"v": [11]}))
        assert [rows_of(tx.to_arrow(one)) for one in paths] == [[0, 1, 2, 10, 11], [0, 1, 2, 11]]
    assert [rows_of(lakelatch.open(one).to_arrow()) for one in paths] == [[0, 1, 2, 10, 11], [0, 1, 2, 11]]
    for one in paths:
        assert any(name.endswith(".replacecommit") for name in os.listdir(f"{one}/.hoodie/timeline")), "nothing joined"


def test_what_replaces_all_rows_replaces_those_that_others_have_joined_before_the_first_read(tmp_path: Path) -> None:
    path, other = paths = added(tmp_path)
    with lakelatch.transaction(paths, OPTIMISTIC) as tx:
        tx.arrow_table(path).overwrite(pa.table({"v": [10]}))
        by_others(lakelatch.open(path, KEYLESS).cluster)
        assert rows_of(tx.to_arrow(path)) == [10]
        tx.insert(other, pa.table({"v": [10]}))
    assert [rows_of(lakelatch.open(one).to_arrow()) for one in paths] == [[10], [0, 1, 2, 10]]


@pytest.mark.parametrize("changed", [{}, {5: 50}], ids=["read only", "changed as well"])
def test_what_others_take_back_ends_the_next_read(tmp_path: Path, changed: Mapping[int, int]) -> None:
    """All reads are of one moment; what was there then would be missing."""
    tables = Tables(tmp_path)
    path, other = tables.paths
    restore = restored(tables)
    block = lakelatch.transaction(tables.paths, OPTIMISTIC)
    with pytest.raises(WriteConflict, match="run the block again"), block as tx:
        assert values(tx.to_arrow(path)) == {1: 11, 2: 20, 3: 30}
        if changed:
            tx.upsert(path, rows(changed))
            assert values(tx.to_arrow(path)) == {1: 11, 2: 20, 3: 30, **changed}
        tx.upsert(other, rows({1: 12}, 2))
        restore()
        tx.to_arrow(path)
    assert tables.now() == [FIRST, FIRST]


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING], ids=["optimistic", "non-blocking"])
def test_what_others_take_back_ends_the_first_change(tmp_path: Path, mode: Mapping[str, object]) -> None:
    """It would be computed from what is not there any more."""
    tables = Tables(tmp_path)
    path = tables.paths[0]
    restore = restored(tables)
    with (
        pytest.raises(WriteConflict, match="have taken back"),
        lakelatch.transaction(tables.paths, mode) as tx,
    ):
        assert values(tx.to_arrow(path)) == {1: 11, 2: 20, 3: 30}
        restore()
        tx.upsert(path, rows({1: 12}, 20))
    assert tables.now() == [FIRST, FIRST]


def test_so_does_a_restore_that_is_under_way(tmp_path: Path) -> None:
    """What it names is void from then on, and may be gone in a moment."""
    tables = Tables(tmp_path)
    restore = restored(tables)
    found = list[BaseException]()
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        assert values(tx.to_arrow(tables.paths[0])) == {1: 11, 2: 20, 3: 30}

        def read() -> None:
            with pytest.raises(WriteConflict, match="run the block again") as raised:
                tx.to_arrow(tables.paths[0])
            found.append(raised.value)

        with calling(lambda _: read(), ["restore.after_claim"]):
            restore()
    assert len(found) == 1 and tables.now()[0] == FIRST


def _archived_by_others(tables: Tables) -> None:
    """All that the first table had until now is archived."""
    path = tables.paths[0]
    for number in range(4):
        tables.write(0, {3: number}, 20 + number)
    by_others(lakelatch.open(path, OPTIMISTIC).compact)
    for number in range(4):
        tables.write(0, {3: number}, 30 + number)
    by_others(partial(lakelatch.archive, path, ARCHIVING))


def test_what_is_archived_meanwhile_is_seen_as_before(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    path = tables.paths[0]
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        assert values(tx.to_arrow(path)) == FIRST
        _archived_by_others(tables)
        assert tx.mark_of(path).snapshot().writes[0].file_name not in os.listdir(f"{path}/.hoodie/timeline")
        assert values(tx.to_arrow(path)) == FIRST


def test_what_is_archived_meanwhile_is_not_taken_for_what_others_take_back(tmp_path: Path) -> None:
    """Where the log still has all of it as well."""
    tables = Tables(tmp_path, options=IN_PARTITIONS)
    path = tables.paths[0]
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        assert values(tx.to_arrow(path)) == FIRST
        for number in range(4):
            tables.write(0, {3: number}, 20)
        by_others(lakelatch.open(path, OPTIMISTIC).compact)
        for number in range(4):
            tables.write(0, {3: number}, 20)
        by_others(partial(lakelatch.archive, path, ARCHIVING))
        assert tables.log(0).tail().watermark <= tx.mark_of(path).slot + 1
        assert tx.mark_of(path).snapshot().writes[0].file_name not in os.listdir(f"{path}/.hoodie/timeline")
        tx.upsert(path, rows({1: 11}))
    assert tables.now()[0] == {1: 11, 2: 20, 3: 3}


def test_a_change_that_needs_what_a_clean_has_removed_is_a_conflict(tmp_path: Path) -> None:
    """Nothing is damaged: others have written the file group anew since."""
    made = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE", "hoodie.bucket.index.num.buckets": "1"}
    tables = Tables(tmp_path, 1, made)
    (path,) = tables.paths
    with pytest.raises(WriteConflict, match="has removed"), lakelatch.transaction([path], OPTIMISTIC) as tx:
        assert values(tx.to_arrow(path)) == FIRST
        for number in range(3):
            tables.write(0, {3: number}, 20 + number)
        by_others(lakelatch.open(path, {**OPTIMISTIC, **CLEANING}).clean)
        tx.upsert(path, rows({4: 40}, 2))
    assert tables.now() == [{**FIRST, 3: 2}] and not lakelatch.verify(path).findings


def test_a_table_that_is_removed_before_the_end_gets_no_commit(tmp_path: Path) -> None:
    """Nor do the others: a commit in an empty folder would be seen by nobody."""
    tables = Tables(tmp_path)
    home, removed = tables.paths
    told = f"there is no table at file://{removed} any more"
    with pytest.raises(InvalidRequest, match=told), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        for path in tables.paths:
            tx.upsert(path, rows({3: 30}))
        tx.to_arrow(home)
        shutil.rmtree(removed)
    assert values(lakelatch.open(home).to_arrow()) == FIRST
    assert not list(Path(removed).rglob("*.deltacommit"))


@pytest.mark.parametrize("read", [False, True], ids=["before its first change", "after a read"])
@pytest.mark.parametrize("options", [OPTIMISTIC, NEW], ids=["plain", "with what would make a table"])
def test_a_table_that_is_gone_is_not_made_anew(tmp_path: Path, options: Mapping[str, object], read: bool) -> None:
    """Whoever writes it is told so, and the others stay as they were."""
    tables = Tables(tmp_path)
    other, removed = tables.paths
    told = f"there is no table at file://{removed}"
    with pytest.raises(InvalidRequest, match=told), lakelatch.transaction(tables.paths, options) as tx:
        if read:
            tx.to_arrow(removed)
        tx.upsert(other, rows({3: 30}))
        shutil.rmtree(removed)
        tx.upsert(removed, rows({3: 30}))
    assert values(lakelatch.open(other).to_arrow()) == FIRST
    assert not ArrowTable.is_table(removed)


def test_so_does_one_that_was_never_written(tmp_path: Path) -> None:
    """Its log is as long as that of a table that is gone."""
    paths = [str(tmp_path / name) for name in ("first", "second")]
    for path in paths:
        ArrowTable.create(path, rows({1: 1}).schema, key="id", ordering="at")
    told = f"there is no table at file://{paths[1]} any more"
    with pytest.raises(InvalidRequest, match=told), lakelatch.transaction(paths, OPTIMISTIC) as tx:
        for path in paths:
            tx.upsert(path, rows({3: 30}))
        tx.await_staged()
        shutil.rmtree(paths[1])
    assert lakelatch.open(paths[0]).to_arrow().num_rows == 0
    assert not list(Path(paths[1]).rglob("*.deltacommit"))


def replace_by_another(path: str) -> None:
    shutil.rmtree(path)
    ArrowTable(path, NEW).upsert(rows({9: 90}))


@pytest.mark.parametrize("number", [0, 1], ids=["home", "other"])
@pytest.mark.parametrize("read", [False, True], ids=["blind", "after a read"])
@pytest.mark.parametrize("changed", [False, True], ids=["before its first change", "after it"])
def test_a_table_in_the_place_of_another_one_is_not_changed(
    tmp_path: Path, number: int, read: bool, changed: bool
) -> None:
    """What the block knows, and what it was told to change, is the table of its beginning."""
    tables = Tables(tmp_path)
    replaced, other = tables.paths[number], tables.paths[1 - number]
    told = f"another table is in the place of file://{replaced}"
    with pytest.raises(WriteConflict, match=told), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        if read:
            tx.to_arrow(replaced)
        tx.upsert(other, rows({3: 30}))
        if changed:
            tx.upsert(replaced, rows({3: 30}))
        tx.await_staged()
        by_others(replace_by_another, replaced)
        if not changed:
            tx.upsert(replaced, rows({3: 30}))
    assert values(lakelatch.open(replaced).to_arrow()) == {9: 90}
    assert values(lakelatch.open(other).to_arrow()) == FIRST


@pytest.mark.parametrize("read", [False, True], ids=["before its first read", "after it"])
def test_a_table_in_the_place_of_another_one_is_not_read(tmp_path: Path, read: bool) -> None:
    tables = Tables(tmp_path)
    (path,) = tables.paths[:1]
    told = f"another table is in the place of file://{path}"
    with pytest.raises(WriteConflict, match=told), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        if read:
            tx.to_arrow(path)
        by_others(replace_by_another, path)
        tx.to_arrow(path)


def test_a_table_whose_commits_were_all_archived_is_still_the_same(tmp_path: Path) -> None:
    """Nothing of the beginning is left on its timeline; the history says that it was there."""
    tables = Tables(tmp_path)
    path, other = tables.paths
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        _archived_by_others(tables)
        tx.upsert(other, rows({3: 30}))
        assert values(tx.to_arrow(path)) == {**FIRST, 3: 3}
        tx.upsert(path, rows({4: 40}))
    assert tables.now() == [{**FIRST, 3: 3, 4: 40}, {**FIRST, 3: 30}]
