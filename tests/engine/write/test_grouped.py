"""Writes of rows that others put into the log, and which of them are left to their own writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from live_table import SCHEMA, LiveTable
from table import BuiltTable, Writing, meanwhile
from waiting_writes import Waiting, crowded, records, slots

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.table.columns import fitted
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.schema import parsed_schema
from lakelatch.errors import WriteConflict
from lakelatch.format.avro import comment_of, with_comment
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.timeline.log.events import COMPLETE, WITHDRAW
from lakelatch.timeline.log.whole_timeline import read_commit
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import LOG_VERSION
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.ready import record_path
from lakelatch.transactions.base.settings import OPTIMISTIC

OVERWRITE = "insert_overwrite"


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    made = LiveTable(tmp_path / "t")
    made.write([(1, 1, "old"), (2, 1, "old")])
    return made


def test_rows_of_all_writers_of_a_slot_are_there(table: LiveTable) -> None:
    owner, leader = Waiting(table).put((1, 2, "owner")), crowded(table.begin()).put("p", [(1, 3, "l"), (2, 3, "l")])
    done = owner.commit(leader.commit)
    assert slots(table)[1:] == [[(COMPLETE, leader.instant), (COMPLETE, owner.writing.instant)]]
    assert done.instant == owner.writing.instant and done.rows_written == 1
    assert table.agreed() == [("p", 1, 3, "l"), ("p", 2, 3, "l")] and records(table) == []
    assert table.since(done.completion) == [] and len(table.since("0", done.completion)) == 2


def test_of_optimistic_writers_those_of_other_buckets_are_in_one_slot(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", mode=OPTIMISTIC)
    table.write([(1, 1, "old"), (2, 1, "old")])
    owner, leader = Waiting(table).put((1, 2, "owner")), crowded(table.begin()).put("p", [(2, 2, "leader")])
    loser = Waiting(table).put((2, 3, "loser"))
    owner.commit(leader.commit)
    assert slots(table)[1:] == [[(COMPLETE, leader.instant), (COMPLETE, owner.writing.instant)]]
    with pytest.raises(WriteConflict) as caught:
        loser.writing.commit()
    assert caught.value.details["winner"] == leader.instant and records(table) == []
    assert table.agreed() == [("p", 1, 2, "owner"), ("p", 2, 2, "leader")]


def replacing(table: LiveTable) -> Writing:
    return table.begin(OVERWRITE).put("p", [(1, 5, "over")])


def changing(table: LiveTable) -> Writing:
    """A write that adds a column."""
    wider = SCHEMA.append(pa.field("more", pa.string()))
    other = BuiltTable.at(table.storage, table.options)
    options = Call({**table.options, "mergeSchema": "true"}).write()
    other.opened = fitted(other.opened, wider, options)
    assert other.opened.changes_schema
    return other.begin().put_table(pa.Table.from_pylist([{"id": 1, "ts": 5, "part": "p", "more": "m"}], schema=wider))


def of_before(table: LiveTable) -> Writing:
    """A write of a table whose writers of before know slots of one event only."""
    update_properties(table.storage, {LOG_VERSION: None})
    return BuiltTable.at(table.storage, table.options).begin().put("p", [(1, 5, "row")])


@pytest.mark.parametrize("make", [replacing, changing, of_before])
def test_writes_that_change_more_than_rows_leave_no_record(
    table: LiveTable, make: Callable[[LiveTable], Writing]
) -> None:
    writing = crowded(make(table))
    with meanwhile(lambda: pytest.fail("it has left a record"), "group.after_record"):
        writing.commit()
    assert slots(table)[-1] == [(COMPLETE, writing.instant)] and writing.transaction.record is None


def test_the_first_write_of_a_table_leaves_no_record(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.opened = replace(table.opened, is_new=True)
    writing = crowded(table.begin()).put("p", [(1, 1, "a")])
    with meanwhile(lambda: pytest.fail("it has left a record"), "group.after_record"):
        writing.commit()
    assert table.agreed() == [("p", 1, 1, "a")]


def test_files_that_a_replace_commit_displaces_move_after_their_record_is_withdrawn(table: LiveTable) -> None:
    owner = Waiting(table).put((1, 9, "owner"))
    seen: list[list[tuple[str, str]]] = []

    def look() -> None:
        assert records(table) == []
        seen.append(slots(table)[-1])
        table.storage.put(record_path(owner.writing.instant), owner.left[0])
        crowded(table.begin()).put("p", [(2, 7, "leader")]).commit()

    with meanwhile(look, "relocate.after_reopen"):
        owner.commit(lambda: table.write([(1, 5, "over")], operation=OVERWRITE))
    assert seen == [[(WITHDRAW, owner.writing.instant)]]
    assert slots(table)[-1] == [(COMPLETE, owner.writing.instant)]
    assert table.agreed() == [("p", 1, 9, "owner"), ("p", 2, 7, "leader")]


def test_a_record_of_files_that_are_to_move_is_left_to_its_owner(table: LiveTable) -> None:
    owner, leader = Waiting(table).put((1, 9, "owner")), crowded(table.begin()).put("q", [(2, 7, "leader")])

    def step() -> None:
        table.write([(1, 5, "over")], operation=OVERWRITE)
        leader.commit()

    owner.commit(step)
    assert slots(table)[2] == [(COMPLETE, leader.instant)]
    assert table.agreed() == [("p", 1, 9, "owner"), ("q", 2, 7, "leader")]


def wide_row(key: int, ts: int, v: str) -> dict[str, object]:
    return {"id": key, "ts": ts, "v": v, "part": "p", "more": None}


def test_a_record_of_other_columns_is_left_to_its_owner(table: LiveTable) -> None:
    """It was written before a column was added, and its leader's write after that."""
    owner = Waiting(table).put((1, 9, "owner"))

    def step() -> None:
        changing(table).commit()
        wider = BuiltTable.at(table.storage, table.options)
        rows = pa.Table.from_pylist([wide_row(2, 7, "leader")], schema=wider.opened.schema)
        crowded(wider.begin()).put_table(rows).commit()

    owner.commit(step)
    assert [len(slot) for slot in slots(table)[1:]] == [1, 1, 1]
    assert table.agreed() == [("p", 1, 9, "owner"), ("p", 2, 7, "leader")]


def test_a_record_whose_columns_are_to_be_merged_with_others_is_left_to_its_owner(table: LiveTable) -> None:
    """As those of its leader are, which then says the columns of all."""
    owner, leader = Waiting(table).put((1, 9, "owner")), crowded(table.begin()).put("p", [(2, 7, "leader")])

    def step() -> None:
        changing(table).commit()
        leader.commit()

    owner.commit(step)
    assert [len(slot) for slot in slots(table)[1:]] == [1, 1, 1]
    assert "more" in open_table(table.storage).schema.names
    assert table.agreed() == [("p", 1, 9, "owner"), ("p", 2, 7, "leader")]


def test_a_record_without_comments_that_another_writer_has_said_meanwhile_is_left_to_its_owner(
    table: LiveTable,
) -> None:
    """As Java Hudi says those of `ALTER TABLE ... CHANGE COLUMN`, in a commit that changes no column."""
    (first,) = [one.requested for one in Snapshot.look(table.storage).by_completion]
    owner, leader = Waiting(table).put((1, 9, "owner")), crowded(table.begin()).put("p", [(2, 7, "leader")])

    def step() -> None:
        other = BuiltTable.at(table.storage, table.options)
        key = with_comment("id", other.opened.schema.field("id").type, "the key")
        other.opened = replace(other.opened, schema=other.opened.schema.set(0, key))
        other.begin().put("p", [(3, 5, "other")]).commit()
        leader.commit()

    owner.commit(step)
    written = [one for one in Snapshot.look(table.storage).by_completion if one.requested != first]
    said = [parsed_schema(read_commit(table.storage, one).schema or "", one.path).columns for one in written]
    assert [comment_of(columns.field("id")) for columns in said] == ["the key"] * 3
    assert table.agreed() == [("p", 1, 9, "owner"), ("p", 2, 7, "leader"), ("p", 3, 5, "other")]


@pytest.mark.parametrize("both_load", [False, True])
def test_base_files_of_a_bucket_are_not_put_into_one_slot_with_others(tmp_path: Path, both_load: bool) -> None:
    """Of two base files one hides the other; and whether one hides log files hangs on the time that they get."""
    table = LiveTable(tmp_path / "t", partitioned=False, buckets=1)
    row = pa.Table.from_pylist([{"id": 1, "ts": 2, "v": "load", "part": ""}], schema=SCHEMA)
    owner = Waiting(table, "bulk_insert")
    owner.writing.put_sorted(row)
    leader = crowded(table.begin("bulk_insert" if both_load else "upsert"))
    _ = leader.put_sorted(row) if both_load else leader.put_table(row)
    if both_load:
        with pytest.raises(WriteConflict):
            owner.commit(leader.commit)
    else:
        owner.commit(leader.commit)
    assert slots(table)[0] == [(COMPLETE, leader.instant)] and records(table) == []
    assert len(table.read()) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.update(reports=None),
        lambda facts: facts.update(reports=[{}]),
        lambda facts: facts.update(reports=[5]),
        lambda facts: facts["reports"][0].update(size_bytes="many"),
        lambda facts: facts["reports"][0].update(partition=5),
        lambda facts: facts["reports"][0].update(file_id="other"),
        lambda facts: facts["reports"][0].update(new_field=1),
        lambda facts: facts.update(non_blocking="yes"),
        lambda facts: facts.update(schema="{}"),
        lambda facts: facts.clear(),
    ],
)
def test_facts_of_another_version_are_left_to_their_owner(
    table: LiveTable, change: Callable[[dict[str, Any]], object]
) -> None:
    owner, leader = Waiting(table).put((1, 9, "owner")), crowded(table.begin()).put("p", [(2, 7, "leader")])

    def step() -> None:
        values = open_checksummed_json(owner.left[0])
        assert values is not None
        change(values["facts"])
        table.storage.put(record_path(owner.writing.instant), checksummed_json(values))
        leader.commit()

    owner.commit(step)
    assert slots(table)[1:] == [[(COMPLETE, leader.instant)], [(COMPLETE, owner.writing.instant)]]
    assert records(table) == []
    assert table.agreed() == [("p", 1, 9, "owner"), ("p", 2, 7, "leader")]
