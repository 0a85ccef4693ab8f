"""Changes of a table without Spark: what they come to, what they refuse, and that nobody's rows are lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelatch.engine.arrow import ArrowTable
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import calling

NAMES = ("id", "ts", "v", "part")
COLUMNS = "id long, ts long, v string, part string"
ROWS = [(1, 1, "a", "p"), (2, 1, "b", "p"), (3, 1, "c", "q"), (4, 1, "d", "q")]
SOURCE = [(1, 2, "A", "p"), (2, 2, "B", "p"), (3, 2, "C", "q"), (8, 2, "H", "q"), (9, 2, "I", "p")]


def rows(given: list[tuple[Any, ...]], names: tuple[str, ...] = NAMES) -> pa.Table:
    kinds = {"id": pa.int64(), "ts": pa.int64()}
    columns = [
        pa.array([row[place] for row in given], kinds.get(name, pa.string())) for place, name in enumerate(names)
    ]
    return pa.table(columns, names=list(names))


def rows_of(table: ArrowTable, **how: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow(**how).to_pylist()), key=repr)


@pytest.fixture(params=["ts", None], ids=["event-time", "commit-time"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> ArrowTable:
    made = ArrowTable.create(tmp_path / "t", COLUMNS, key="id", ordering=request.param, partition_by="part", buckets=2)
    made.upsert(rows(ROWS))
    return made


def test_rows_are_filtered_by_text_and_by_expressions(table: ArrowTable) -> None:
    table.upsert(rows([(2, 2, "B", "p"), (5, 2, None, "q")]))
    assert rows_of(table, where="v > 'B' and part = 'p'") == [(1, 1, "a", "p")]
    assert rows_of(table, where="v IS NULL OR id IN (2)", columns=["id"]) == [(2,), (5,)]
    assert rows_of(table, where=(pc.field("ts") == 2) & (pc.field("part") == "p"), columns=["v"]) == [("B",)]
    assert table.explain("part = 'p' AND id = 1").slices == 1
    with table.to_batches(where="ts = 1", columns=["id", "part"]) as batches:
        assert batches.schema.names == ["id", "part"] and pa.table(batches.read_all()).num_rows == 3
    assert pa.table(table).num_rows == 5


def test_inserts_take_what_is_new(table: ArrowTable) -> None:
    new = [(7, 1, "g", "p"), (1, 1, "other", "q")]
    done = table.insert(rows(new))
    assert (done.operation, done.rows_written, done.rows_skipped) == ("insert", 2, 0)
    for wrong, words in [
        ([(8, 1, "h", "p"), (2, 9, "x", "p")], r"the table has a row with id=2, part=p already"),
        ([(8, 1, "h", "p"), (8, 2, "h", "p")], r"more than one row of the frame has id=8, part=p"),
    ]:
        with pytest.raises(InvalidRequest, match=words):
            table.insert(rows(wrong))
    several = [(2, 9, "x", "p"), (8, 1, "h", "p"), (8, 2, "i", "p"), (8, 2, "j", "p"), (9, 1, None, "q")]
    done = table.insert(rows(several), if_exists="skip")
    assert (done.rows_written, done.rows_skipped) == (2, 3)
    assert rows_of(table) == sorted([*ROWS, *new, (8, 2, "j", "p"), (9, 1, None, "q")], key=repr)
    with pytest.raises(InvalidRequest, match="if_exists='keep': it is 'error' or 'skip', and a table"):
        table.insert(rows(new), if_exists="keep")


def test_the_first_insert_makes_the_table(tmp_path: Path) -> None:
    options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "part"}
    made = ArrowTable(tmp_path / "new", options)
    with pytest.raises(InvalidRequest, match="more than one row"):
        made.insert(rows([ROWS[0], ROWS[0]]))
    assert not ArrowTable.is_table(made.path)
    assert made.insert(rows([*ROWS, ROWS[0]]), if_exists="skip").rows_skipped == 1
    assert rows_of(made) == ROWS


def test_updates_and_deletes_of_a_condition(table: ArrowTable) -> None:
    done = table.update("id < 3", {"v": "concat(v, '-', id)", "ts": "ts + 1"})
    assert (done.operation, done.rows_written, done.deletes_written) == ("update", 2, 0)
    moved = table.update("id = 1", {"part": "'q'", "v": pc.utf8_upper(pc.field("v"))})
    assert (moved.rows_written, moved.deletes_written) == (1, 1)
    assert rows_of(table) == sorted([(1, 2, "A-1", "q"), (2, 2, "b-2", "p"), *ROWS[2:]], key=repr)
    gone = table.delete("part = 'q' AND v <> 'd'")
    assert (gone.operation, gone.deletes_written) == ("delete", 2)
    assert rows_of(table) == [(2, 2, "b-2", "p"), ROWS[3]]
    assert table.delete(pc.field("id") == 2).deletes_written == 1
    assert table.update(None, {"v": "NULL"}).rows_written == 1
    assert rows_of(table) == [(4, 1, None, "q")] and table.delete("true").deletes_written == 1
    said = [one["operation"] for one in table.history().to_pylist() if one["operation"] != "COMPACT"]
    assert said[:3] == ["DELETE", "UPDATE", "DELETE"]


def test_overwrites_of_the_table_of_partitions_and_of_a_condition(table: ArrowTable) -> None:
    table.overwrite(rows([(9, 5, "only p", "p")]), partitions="touched")
    assert rows_of(table) == [*ROWS[2:], (9, 5, "only p", "p")]
    done = table.overwrite(rows([(3, 5, "C", "q")]), "part = 'q'")
    assert done.operation == "overwrite" and rows_of(table) == [(3, 5, "C", "q"), (9, 5, "only p", "p")]
    with pytest.raises(InvalidRequest, match="does not hold for the new row with id=7, part=p"):
        table.overwrite(rows([(7, 1, "g", "p")]), condition="part = 'q'")
    table.overwrite(rows([(8, 1, "h", "r")]))
    assert rows_of(table) == [(8, 1, "h", "r")]


def test_each_row_of_a_merge_takes_the_first_clause_that_applies(table: ArrowTable) -> None:
    done = (
        table.merge(rows(SOURCE))
        .when_matched_delete("source.v = 'A'")
        .when_matched_update({"v": "concat(target.v, source.v)", "ts": "source.ts"}, "target.id < 3")
        .when_not_matched_insert({"id": "source.id", "part": "source.part", "ts": pc.scalar(7)}, "source.id = 9")
        .when_not_matched_by_source_update({"v": "'left'"}, pc.field("target", "part") == "q")
        .when_not_matched_by_source_delete()
        .execute()
    )
    assert (done.operation, done.rows_written, done.deletes_written) == ("merge", 3, 1)
    assert rows_of(table) == [(2, 2, "bB", "p"), (3, 1, "c", "q"), (4, 1, "left", "q"), (9, 7, None, "p")]


def test_merges_by_other_columns_than_the_key(table: ArrowTable) -> None:
    codes = rows([("a", "one"), ("d", "four"), ("z", "none"), ("c", "no")], ("code", "name"))
    table.merge(codes, "target.v = source.code AND name <> 'no'").when_matched_update({"v": "name"}).execute()
    assert [row[2] for row in rows_of(table)] == ["one", "b", "c", "four"]
    moved = rows([(1, 2, "A", "q"), (2, 2, "B", "p")])
    table.merge(moved, "target.id = source.id").when_matched_update_all().execute()
    assert rows_of(table)[:2] == [(1, 2, "A", "q"), (2, 2, "B", "p")]
    over = table.merge(rows([(1, 5, "other", "q")]), "target.v = source.v").when_not_matched_insert_all()
    with pytest.raises(InvalidRequest, match="a row with id=1, part=q, which the condition does not match"):
        over.execute()
    again = table.merge(rows(SOURCE)).when_matched_update_all().when_not_matched_insert_all().execute()
    assert again.rows_written == 5 and len(rows_of(table)) == 7


def test_merges_by_any_condition_from_a_small_source(table: ArrowTable) -> None:
    bands = pa.table({"low": [0, 2, 9], "high": [2, 4, 12], "name": ["few", "some", "many"]})
    within = "source.low < target.id AND target.id <= source.high"
    done = table.merge(bands, within).when_matched_update({"v": "concat(name, v)"}).execute()
    assert done.rows_written == 4 and [row[2] for row in rows_of(table)] == ["fewa", "fewb", "somec", "somed"]
    table.merge(bands, within).when_not_matched_insert(
        {"id": "low + 90", "part": "'p'", "ts": "1", "v": "name"}
    ).execute()
    assert [row for row in rows_of(table) if row[0] > 90] == [(99, 1, "many", "p")]
    table.merge(bands, "source.name = 'few'").when_matched_delete("target.part = 'q'").execute()
    assert sorted(row[0] for row in rows_of(table)) == [1, 2, 99]


def test_two_new_rows_of_one_key_end_the_merge(table: ArrowTable) -> None:
    """Unless an ordering value says which one is wanted."""
    twice = rows([(6, 1, "f", ""), (6, 2, "g", None), (7, 1, "h", "p"), (7, 1, "h", "q")])
    merge = table.merge(twice).when_matched_update_all().when_not_matched_insert_all("source.v = 'f'")
    merge = merge.when_not_matched_insert_all()
    if table.detail().ordering is None:
        with pytest.raises(InvalidRequest, match="more than one row of the source would be the new row with id=6"):
            merge.execute()
        assert rows_of(table) == ROWS
        return
    merge.execute()
    assert rows_of(table) == sorted([*ROWS, (6, 2, "g", None), (7, 1, "h", "p"), (7, 1, "h", "q")], key=repr)


def test_a_row_that_is_matched_twice_ends_the_merge(table: ArrowTable) -> None:
    twice = rows([(1, 2, "A", "p"), (1, 3, "AA", "p"), (6, 1, "f", "p"), (6, 1, "f", "p")])
    with pytest.raises(InvalidRequest, match="id=1, part=p is matched by more than one row of the source"):
        table.merge(twice).when_matched_update_all("source.ts > 0").when_not_matched_insert_all().execute()
    assert rows_of(table) == ROWS
    table.merge(twice).when_matched_update_all("source.ts = 3").execute()
    assert rows_of(table)[0] == (1, 3, "AA", "p")


MERGED_INTO_OTHERS: list[tuple[str, Callable[[ArrowTable], object]]] = [
    ("id=1, part=q", lambda table: table.update("id = 1", {"part": "'q'"})),
    ("id=2, part=z", lambda table: table.update("id = 2", {"part": "'z'"})),
    ("id=1, part=", lambda table: table.update("id = 1", {"part": "CASE WHEN part = 'p' THEN 'q' ELSE 'p' END"})),
    (
        "id=1, part=q",
        lambda table: (
            table.merge(rows([(1, 9, "x", "q")]), "target.id = source.id AND target.part = 'p'")
            .when_matched_update({"part": "source.part"})
            .execute()
        ),
    ),
    (
        "id=4, part=p",
        lambda table: (
            table.merge(rows([(4, 9, "x", "p")]))
            .when_not_matched_insert({"id": "source.id", "part": "source.part"})
            .when_not_matched_by_source_update({"part": "'p'"}, "target.id = 4")
            .execute()
        ),
    ),
    (
        "id=2, part=p",
        lambda table: (
            table.merge(rows([(8, 9, "x", "p")]))
            .when_not_matched_insert({"id": "source.id - 6", "part": "source.part"})
            .execute()
        ),
    ),
]


@pytest.mark.parametrize(("row", "call"), MERGED_INTO_OTHERS)
def test_no_row_of_the_table_is_written_over_by_another_one(
    table: ArrowTable, row: str, call: Callable[[ArrowTable], object]
) -> None:
    table.upsert(rows([(1, 1, "aq", "q"), (2, 1, "bq", "q")]))
    before = rows_of(table)
    with pytest.raises(InvalidRequest, match=f"{row}.*(would be lost|would write over it)"):
        call(table)
    assert rows_of(table) == before


REFUSED: list[tuple[str, Callable[[ArrowTable], object]]] = [
    ("there is no column 'nope'", lambda table: table.to_arrow(where="nope = 1")),
    ("there is no column 'nope'", lambda table: table.delete("nope = 1")),
    ("bigint and string do not go together", lambda table: table.update("id = v", {"v": "'x'"})),
    ("RAND\\(\\) is not known without Spark", lambda table: table.update(None, {"v": "rand()"})),
    ("'id' is of the record key", lambda table: table.update(None, {"id": "id + 1"})),
    ("'w' is no column of the table", lambda table: table.update(None, {"w": "1"})),
    ("date as bigint is not the same everywhere", lambda table: table.update(None, {"ts": "DATE '2026-01-01'"})),
    ("is bigint, and a condition is true or false", lambda table: table.delete("id + 1")),
    ("without a clause", lambda table: table.merge(rows(SOURCE)).execute()),
    (
        "lacks the column\\(s\\) v",
        lambda table: table.merge(rows(SOURCE).drop_columns(["v"])).when_matched_update_all().execute(),
    ),
    ("no value to part", lambda table: table.merge(rows(SOURCE)).when_not_matched_insert({"id": "source.id"})),
    (
        "says of no column of the table that it is equal.* at most 1,000 rows of the source, and it has 1,001",
        lambda table: table.merge(rows([SOURCE[0]] * 1001), "target.id > source.id").when_matched_delete().execute(),
    ),
    ("give SQL text", lambda table: table.merge(rows(SOURCE), pc.field("id") == 1)),
    ("lacks the column 'part'", lambda table: table.merge(rows([(1,)], ("id",))).when_matched_delete().execute()),
    ("does not speak Arrow", lambda table: table.insert([{"id": 1}])),
    ("lacks the column\\(s\\) v", lambda table: table.insert(rows(SOURCE).drop_columns(["v"]))),
    ("w are not in the table", lambda table: table.upsert(rows(SOURCE).append_column("w", pa.array([1] * 5)))),
    ("'ts' is string", lambda table: table.upsert(pa.table({"id": [1], "ts": ["1"], "v": [""], "part": [""]}))),
]


@pytest.mark.parametrize("table", ["ts"], indirect=True)
@pytest.mark.parametrize(("words", "call"), REFUSED, ids=[words[:30] for words, _ in REFUSED])
def test_what_is_refused_leaves_the_table_as_it_was(
    table: ArrowTable, words: str, call: Callable[[ArrowTable], object]
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        call(table)
    assert rows_of(table) == ROWS and len(table.history()) == 1


@pytest.mark.parametrize("table", [None], indirect=True)
def test_a_value_that_does_not_fit_changes_nothing(table: ArrowTable) -> None:
    with pytest.raises(InvalidRequest, match="a value of the column 'ts' is no bigint: Failed to parse string: 'a'"):
        table.update(None, {"ts": "v"})
    with pytest.raises(InvalidRequest, match="cannot be evaluated: divide by zero"):
        table.delete("id / (id - 2) > 1")
    assert rows_of(table) == ROWS


@pytest.mark.parametrize("table", [None], indirect=True)
def test_what_reads_first_reads_again_after_a_conflict(table: ArrowTable) -> None:
    """Otherwise the other's change would be written over with what was read before it."""
    left = ["theirs"]

    def disturb(_: str) -> None:
        if left:
            table.upsert(rows([(1, 2, left.pop(), "p")]))

    with calling(disturb, ["mark.after"]):
        done = table.update("id = 1", {"v": "concat(v, '+')"})
    assert done.conflicts_retried == 1 and rows_of(table)[0] == (1, 2, "theirs+", "p")
    left.append("x")
    never_again = {"hoodie.write.num.retries.on.conflict.failures": 0}
    with calling(disturb, ["mark.after"]), pytest.raises(WriteConflict):
        table.delete("id = 1", never_again)
    assert rows_of(table)[0] == (1, 2, "x", "p") and len(table.conflicts()) == 2


@pytest.mark.parametrize("table", ["ts"], indirect=True)
def test_services_and_changes_of_a_window(table: ArrowTable) -> None:
    first = table.history().to_pylist()[0]["completion"]
    table.update("id = 1", {"v": "'A'", "ts": "2"})
    table.delete("id = 4")
    images = table.changes(first, images=True).read_all().to_pylist()
    assert [(one["op"], (one["before"] or {}).get("v"), (one["after"] or {}).get("v")) for one in images] == [
        ("u", "a", "A"),
        ("d", "d", None),
    ]
    assert [run.operation for run in table.compact()] == ["compact"]
    assert rows_of(table) == [(1, 2, "A", "p"), *ROWS[1:3]]
    assert not table.maintain().failed and table.clean() == [] and table.verify(deep=True).whole


WRITER = """
import sys
import pyarrow as pa
from lakelatch.engine.arrow import ArrowTable
table, me = ArrowTable(sys.argv[1], {"hoodie.write.num.retries.on.conflict.failures": 100}), int(sys.argv[2])
for number in range(5):
    key = 100 + me * 5 + number
    row = pa.table({"id": [key], "ts": [1], "v": ["w"], "part": ["p"]})
    (table.insert if number % 2 else table.upsert)(row)
    table.update("id = 1", {"ts": "ts + 1"})
"""


@pytest.mark.parametrize("table", [None], indirect=True)
def test_processes_that_write_at_once_lose_nothing(table: ArrowTable) -> None:
    """Neither a row nor a count: each update reads what those before it have committed."""
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, table.path, str(number)]) for number in range(4)]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    found = rows_of(table)
    assert found[0] == (1, 21, "a", "p")
    assert sorted(row[0] for row in found) == [1, 2, 3, 4, *range(100, 120)]
