"""Table services on copy-on-write tables: what keeps them small, takes back, and has nothing to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch import Table
from lakelatch.errors import InvalidRequest
from lakelatch.failpoints import calling
from lakelatch.storage import LocalStorage
from lakelatch.timeline.snapshot import Snapshot

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
KEEPING = {
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}


def test_there_is_nothing_to_compact(make_cow: MakeTable, tree_hash: Callable[[str], dict[str, str]]) -> None:
    table = make_cow()
    table.write([(1, 1, "a")], hoodie__compact__inline="true", hoodie__compact__inline__max__delta__commits="1")
    before = tree_hash(table.path)
    for call in (
        lambda: lakelatch.compact(table.spark, table.path),
        lambda: lakelatch.schedule_compaction(table.path),
        lambda: lakelatch.schedule_log_compaction(table.path),
    ):
        with pytest.raises(InvalidRequest, match="no log files to compact"):
            call()
    report = lakelatch.maintain(table.spark, table.path, {"hoodie.compact.inline.max.delta.commits": "1"})
    assert not report.runs and tree_hash(table.path) == before


def test_old_base_files_and_commits_go(make_cow: MakeTable, base_files: Callable[[str], list[str]]) -> None:
    table = make_cow(hoodie__bucket__index__num__buckets="1")
    done = [table.write([(1, step, f"a{step}"), (step, 1, "b")], **_named(KEEPING)) for step in range(2, 10)]
    rows = table.read()
    assert len(base_files(table.path)) == 8
    lakelatch.clean(table.path, KEEPING)
    assert base_files(table.path) == sorted(result.files[0] for result in done[-3:])
    for file in (Path(table.path) / ".hoodie" / "timeline").iterdir():  # what is young stays
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 3600))
    lakelatch.archive(table.path, KEEPING)
    assert len([one for one in Snapshot.load(LocalStorage(table.path)).completed if one.action == "commit"]) == 3
    assert table.read() == rows
    table.write([(1, 99, "after")])
    assert table.read() == [(1, 99, "after"), *rows[1:]]
    with pytest.raises(InvalidRequest, match="clean"):
        table.read({"as.of.instant": done[0].completion})


def test_a_clustered_table_is_written_on(make_cow: MakeTable, base_files: Callable[[str], list[str]]) -> None:
    """The rows of a clustered file are in another order than that of their keys."""
    table = make_cow()
    table.write([(key, 100 - key, f"a{key % 3}") for key in range(20)])
    lakelatch.cluster(table.spark, table.path, {"hoodie.clustering.plan.strategy.sort.columns": "v"})
    table.write([(3, 200, "new"), (50, 1, "new")])
    table.operate("delete", [(4,), (60,)], "id long")
    found = {row[0]: row[2] for row in table.read()}
    assert found == {**{key: f"a{key % 3}" for key in range(20) if key != 4}, 3: "new", 50: "new"}
    assert base_files(table.path)


def test_what_is_taken_back(make_cow: MakeTable) -> None:
    table = make_cow(hoodie__bucket__index__num__buckets="1")
    first = table.write([(1, 1, "a")])
    second = table.write([(2, 1, "b")])
    third = table.write([(3, 1, "c")])
    with pytest.raises(InvalidRequest):  # the third stands on it
        lakelatch.roll_back(table.path, second.instant)
    lakelatch.roll_back(table.path, third.instant)
    assert table.read() == [(1, 1, "a"), (2, 1, "b")]
    lakelatch.savepoint(table.path, second.instant)
    table.write([(1, 2, "d")])
    lakelatch.restore(table.path, second.instant)
    assert table.read() == [(1, 1, "a"), (2, 1, "b")]
    table.write([(1, 2, "e")])
    assert table.read() == [(1, 2, "e"), (2, 1, "b")]
    assert table.read({"as.of.instant": first.completion}) == [(1, 1, "a")]


def test_changes_by_a_table_in_your_hands(make_cow: MakeTable) -> None:
    small = make_cow()
    options = {"hoodie.table.type": "COPY_ON_WRITE"}
    table = Table.create(small.spark, small.path, small.columns, key="id", ordering="ts", buckets=2, options=options)
    table.upsert(small.frame([(key, 1, "a") for key in range(6)]))
    table.insert(small.frame([(5, 1, "x"), (6, 1, "x")]), if_exists="skip")
    table.update("id < 2", {"v": "'updated'"})
    table.delete("id = 3")
    source = small.frame([(4, 2, "merged"), (7, 2, "merged")])
    table.merge(source).when_matched_update(
        {"v": "source.v", "ts": "source.ts"}
    ).when_not_matched_insert_all().execute()
    table.overwrite(small.frame([(9, 1, "over")]), condition="id IN (6, 9)")
    assert small.read(None, "id", "v") == [
        (0, "updated"),
        (1, "updated"),
        (2, "a"),
        (4, "merged"),
        (5, "a"),
        (7, "merged"),
        (9, "over"),
    ]


@pytest.mark.parametrize("change", ["update", "merge"])
def test_a_column_that_comes_meanwhile_keeps_its_values(make_cow: MakeTable, change: str) -> None:
    """The first try reads the table without the column, and the one that commits has to know it."""
    small = make_cow()
    small.write([(1, 1, "a")])
    table, wider = Table(small.spark, small.path), f"{small.columns}, note string"
    others = [lambda: small.write([(1, 2, "b", "kept")], wider, mergeSchema="true")]
    with calling(lambda _: others and others.pop()(), ["commit.after_lock"]):
        if change == "update":
            result = table.update("id = 1", {"v": "'mine'"})
        else:
            result = table.merge(small.frame([(1, 3, "mine")])).when_matched_update_all().execute()
    assert result.conflicts_retried == 1
    assert small.read(None, "id", "v", "note") == [(1, "mine", "kept")]


def _named(options: dict[str, str]) -> dict[str, str]:
    return {key.replace(".", "__"): value for key, value in options.items()}
