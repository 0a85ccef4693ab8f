"""Several writers fill different columns of the same rows, and the same ones win before and after any compaction."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grouped_table import SCHEMA, A, D, GroupedTable, V, Values
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables.made_slice import holding
from table import Writing

from lakelatch.engine.options.table_services.compaction import CompactionOptions
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.write.rebase import rewritten
from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.format.avro import META_COLUMNS, arrow_to_avro, avro_to_arrow, with_meta_columns
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import Deletes, encode_empty_log, encode_log_file, read_log_file
from lakelatch.format.log.framing import AVRO_BLOCK, IS_PARTIAL, PARQUET_BLOCK, read_blocks
from lakelatch.format.log.framing import SCHEMA as SCHEMA_HEADER
from lakelatch.format.merge.slice import compact_logs, merge_slice
from lakelatch.format.merge.spilled_logs import LogBounds
from lakelatch.format.names import LogFile
from lakelatch.storage import MemoryStorage
from lakelatch.timeline.column_groups import ColumnGroup
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig
from lakelatch.transactions.base.settings import OPTIMISTIC

PLAN, EXECUTE, COMPACT_LOGS = "plan", "execute", "compact_logs"
GROUPS = {"dt": ("d", "e"), "at": ("a",), "ts": ("v",)}
LOG_BOUNDS = [LogBounds(), LogBounds(held=0, run=1, batch=1, part=1), LogBounds(0, 1500, 400, 1000)]
History = tuple[list[tuple[str, list[Values]]], list[int | str]]


def joined(writes: Sequence[tuple[int, str, list[Values]]]) -> tuple[list[dict[str, Any]], dict[int, set[int]]]:
    """The rows: for each key and group the entry with the greatest ordering value, unless that is a delete.

    And for each write the keys of rows in which it won something.
    """
    best: dict[tuple[int, str], tuple[int, str, Values]] = {}
    for number, operation, rows in writes:
        for row in rows:
            for ordering in GROUPS.keys() & row.keys():
                held = best.get((row["id"], ordering))
                if held is None or row[ordering] > held[2][ordering]:
                    best[row["id"], ordering] = number, operation, row
    found: dict[int, dict[str, Any]] = {}
    for (key, ordering), (_, operation, row) in best.items():
        if operation != "delete":
            names = ("id", ordering, *GROUPS[ordering])
            found.setdefault(key, {}).update({name: row[name] for name in names if name in row})
    won: dict[int, set[int]] = {}
    for (key, _), (number, _, _) in best.items():
        if key in found:
            won.setdefault(number, set()).add(key)
    return sorted(found.values(), key=lambda row: row["id"]), won


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Writes in the order in which they begin, and the order of their commits with other steps in between."""
    count = draw(st.integers(2, 5))
    times = draw(st.permutations(range(1, 4 * count + 1)))  # no two entries have one ordering value
    writes: list[tuple[str, list[Values]]] = []
    for number in range(count):
        filled = draw(st.sets(st.sampled_from(sorted(GROUPS)), min_size=1))
        rows: list[Values] = []
        for place, key in enumerate(draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))):
            row: dict[str, Any] = {"id": key}
            for ordering in draw(st.sets(st.sampled_from(sorted(filled)), min_size=1)):
                row[ordering] = times[4 * number + place]
                row.update({name: number if name == "e" else f"w{number}" for name in GROUPS[ordering]})
                if draw(st.booleans()):
                    del row[GROUPS[ordering][0]]  # written as null
            rows.append(row)
        writes.append((draw(st.sampled_from(["upsert", "upsert", "delete"])), rows))
    order: list[int | str] = list(draw(st.permutations(range(count))))
    for _ in range(draw(st.integers(0, 4))):
        order.insert(draw(st.integers(0, len(order))), draw(st.sampled_from([PLAN, EXECUTE, COMPACT_LOGS])))
    return writes, order


def begin_all(table: GroupedTable, writes: Sequence[tuple[str, list[Values]]]) -> list[Writing]:
    """Each frame has the columns of the groups that any of its rows fills, and no others."""
    begun = []
    for operation, rows in writes:
        filled = sorted({ordering for row in rows for ordering in GROUPS if ordering in row})
        columns = [name for ordering in filled for name in (ordering, *GROUPS[ordering])]
        begun.append(table.begin(operation).put_table(table.frame(columns, rows)))
    return begun


@settings(max_examples=30, deadline=None)
@given(history=histories(), block_format=st.sampled_from(["parquet", "avro"]), bounds=st.sampled_from(LOG_BOUNDS))
def test_the_join_does_not_depend_on_commits_and_compactions(
    history: History, block_format: str, bounds: LogBounds
) -> None:
    """Nor on whether logs are too many for memory."""
    writes, order = history
    with tempfile.TemporaryDirectory() as folder, holding(bounds):
        table = GroupedTable(Path(folder) / "t", block_format=block_format)
        begun = begin_all(table, writes)
        committed: list[tuple[int, str, list[Values]]] = []
        moments: list[tuple[str, list[dict[str, Any]]]] = []
        plans: list[str] = []
        for step in order:
            if isinstance(step, int):
                before = moments[-1][0] if moments else "0"
                completion = begun[step].commit().completion
                committed.append((step, *writes[step]))
                rows, won = joined(committed)
                moments.append((completion, rows))
                changed = [row for row in rows if row["id"] in won.get(step, ())]
                assert table.since(before) == changed == table.since(before, completion)
            elif step == COMPACT_LOGS:
                table.compact_logs()
            elif step == PLAN:
                plans += [plan for plan in [table.plan()] if plan]
            elif plans:
                table.execute(plans.pop())
            assert table.read() == (moments[-1][1] if moments else [])
        for plan in plans:
            table.execute(plan)
        table.compact()
        rows = moments[-1][1]
        assert table.read() == rows == table.read({"hoodie.datasource.query.type": "read_optimized"})
        assert rows == table.by_hudi_rs() == table.by_hudi_rs(optimized=True)
        for completion, then in moments:
            assert table.read({"as.of.instant": completion}) == then


def dep(key: int, time: int, name: str) -> Values:
    return {"id": key, "dt": time, "d": name, "e": time}


def arr(key: int, time: int, name: str) -> Values:
    return {"id": key, "at": time, "a": name}


@pytest.mark.parametrize("step", ["nothing", "compact", "compact_logs"])
def test_a_compaction_forgets_no_group_s_time(tmp_path: Path, step: str) -> None:
    """A newer value of one group does not make another group's writes old."""
    table = GroupedTable(tmp_path / "t")
    table.write(D, dep(1, 10, "left"))
    table.write(A, arr(1, 5, "early"))
    assert step == "nothing" or getattr(table, step)() is not None
    table.write(A, arr(1, 7, "late"), arr(2, 1, "alone"))
    table.write(D, dep(1, 9, "older"))
    assert table.read() == [{**dep(1, 10, "left"), **arr(1, 7, "late")}, arr(2, 1, "alone")]


@pytest.mark.parametrize("compacts_logs", [False, True])
def test_a_log_compaction_adds_nothing_to_a_window(tmp_path: Path, compacts_logs: bool) -> None:
    """The run joins a group with a write that loses to one outside of the run, and completed after that."""
    table = GroupedTable(tmp_path / "t")
    winner = table.begin().put_table(table.frame(A, [arr(1, 9, "wins")]))
    under_way = table.begin()  # keeps the winner out of the run
    table.write(D, dep(1, 1, "a"))
    loser = table.begin().put_table(table.frame(A, [arr(1, 5, "loses")]))
    begin = winner.commit().completion
    loser.commit()
    if compacts_logs:
        assert table.compact_logs() is not None
    assert table.since(begin) == []
    under_way.transaction.abort()


def test_a_row_without_a_value_in_an_ordering_column_leaves_that_group_alone(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(D + A, {**dep(1, 1, "a"), **arr(1, 1, "a")}, dep(2, 1, "a"))
    table.write(D + A, dep(1, 2, "b"), {**dep(2, 2, "b"), "d": None, **arr(2, 2, "b")})
    assert table.read() == [{**dep(1, 2, "b"), **arr(1, 1, "a")}, {"id": 2, "dt": 2, "e": 2, **arr(2, 2, "b")}]


@pytest.mark.parametrize("compacted", ["", "compact", "compact_logs"])
def test_a_delete_takes_the_groups_that_it_speaks_of(tmp_path: Path, compacted: str) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(D + A, {**dep(1, 3, "a"), **arr(1, 3, "a")}, dep(2, 3, "a"), dep(3, 9, "a"))
    table.delete(("dt", "d"), *({"id": key, "dt": 5, "d": "ignored"} for key in (1, 2, 3)))
    if compacted:
        getattr(table, compacted)()
    assert table.read() == [arr(1, 3, "a"), dep(3, 9, "a")]
    table.write(D, *(dep(key, 4, "older than its delete") for key in (1, 2, 3)))
    table.write(A, arr(2, 1, "a group of its own"))
    assert table.read() == [arr(1, 3, "a"), arr(2, 1, "a group of its own"), dep(3, 9, "a")]
    table.write(D, dep(1, 6, "newer"))
    table.compact()
    assert table.read()[0] == {**dep(1, 6, "newer"), **arr(1, 3, "a")}
    assert table.read() == table.by_hudi_rs() == table.by_hudi_rs(optimized=True)


def test_group_deletes_outlive_a_compaction_that_finds_nothing_new(tmp_path: Path) -> None:
    """Its only log is the tombstone of a failed attempt, for which nobody plans one without being told to."""
    table = GroupedTable(tmp_path / "t")
    late = table.begin().put_table(table.frame(A, [arr(1, 4, "late")]))
    table.delete(("at",), arr(1, 5, ""))
    first = table.compact()
    failed = table.begin()
    failed.transaction.markers.announce("", f".{late.reports[0].file_id}_{failed.instant}.log.1_9-9-9")
    failed.commit()
    assert table.compact() is None
    plan = Compaction(CompactionOptions(least_logs=0)).schedule(table.context())
    assert first is not None and plan is not None and first.files != table.execute(plan).files
    late.commit()
    assert table.read() == []


def test_group_deletes_are_forgotten_if_the_plan_says_so(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(A, arr(1, 1, "a"))
    table.delete(("at",), arr(1, 5, ""))
    table.compact({"lakelatch.compact.keep.deletes": "false"})
    assert not [name for name in table.storage.list("").files if name.endswith(".kept")]
    table.write(A, arr(1, 2, "back"))
    assert table.read() == [arr(1, 2, "back")]


@pytest.mark.parametrize("step", ["", "compact", "compact_logs"])
def test_a_delete_without_an_ordering_value_takes_all_that_lies_before_it(tmp_path: Path, step: str) -> None:
    table = GroupedTable(tmp_path / "t", mode=OPTIMISTIC)
    table.write(D + A, {**dep(1, 8, "a"), **arr(1, 8, "a")}, dep(2, 8, "a"))
    table.compact()
    table.write(D, dep(1, 9, "a"))
    table.delete((), {"id": 1}, {"id": 3})
    table.write(A, arr(1, 2, "after"), arr(3, 1, "after"))
    if step:
        getattr(table, step)()
    assert table.read() == [arr(1, 2, "after"), dep(2, 8, "a"), arr(3, 1, "after")]


@pytest.mark.parametrize("bounds", LOG_BOUNDS)
@pytest.mark.parametrize("step", ["", "compact", "compact_logs"])
def test_columns_outside_of_groups_follow_the_order_of_commits_without_an_ordering_field(
    tmp_path: Path, step: str, bounds: LogBounds
) -> None:
    table = GroupedTable(tmp_path / "t", ordering=None, mode=OPTIMISTIC)
    table.write(V, *({"id": key, "ts": 9, "v": "a"} for key in (1, 2, 4)))
    table.compact()
    table.write(A, *(arr(key, 5, "a") for key in (1, 2, 3, 4)))
    table.write(V + D, {"id": 1, "ts": 1, "v": "later"}, {"id": 2, **dep(2, 1, "nulls")})
    if step:
        with holding(bounds):
            getattr(table, step)()
    table.delete(("at",), arr(3, 6, ""), arr(1, 4, ""))
    rows = [{"id": 1, "ts": 1, "v": "later", **arr(1, 5, "a")}, {**dep(2, 1, "nulls"), **arr(2, 5, "a")}]
    rows.append({"id": 4, "ts": 9, "v": "a", **arr(4, 5, "a")})
    with holding(bounds):
        assert table.read() == rows
        table.compact()
    assert table.read() == rows


def test_columns_that_are_read_do_not_change_who_wins(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(A, arr(1, 5, "kept"), arr(2, 5, "a"))
    table.compact()
    table.write(D + A, {**dep(1, 1, "d"), **arr(1, 4, "older")})
    table.delete(("at",), arr(2, 6, ""))
    (found,) = plan_read(str(table.root)).slices
    schema = with_meta_columns(SCHEMA)
    merged = merge_slice(table.storage, found, schema, table.opened.config, {}, ["a", "id"])
    assert merged.rows.to_pylist() == [{"a": "kept", "id": 1}]


@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_partial_blocks_are_those_of_hudi(tmp_path: Path, block_format: str) -> None:
    """Whoever reads them without knowing of groups has to refuse them: joined by times they would be other rows."""
    table = GroupedTable(tmp_path / "t", block_format=block_format)
    table.write(D, dep(1, 10, "d"), dep(2, 10, "d"))
    table.write(A, arr(1, 5, "a"))
    assert table.read() == [{**dep(1, 10, "d"), **arr(1, 5, "a")}, dep(2, 10, "d")]
    with pytest.raises(Exception, match="CUSTOM record merge mode"):
        table.by_hudi_rs()
    table.compact()
    assert table.read() == table.by_hudi_rs()
    table.write(A, arr(1, 4, "older"))
    table.delete(("dt",), dep(2, 11, ""))
    names = table.storage.list("").files
    blocks = [block for name in names if ".log." in name for block in read_blocks(table.storage.read(name), name)]
    flags = {tuple(_columns(block)): (block.headers.get(IS_PARTIAL), block.kind) for block in blocks}
    kind = PARQUET_BLOCK if block_format == "parquet" else AVRO_BLOCK
    assert flags == {("id", *D): ("true", kind), ("id", *A): ("true", kind)}
    assert table.read() == [{**dep(1, 10, "d"), **arr(1, 5, "a")}]
    with pytest.raises(Exception, match="CUSTOM record merge mode"):
        table.by_hudi_rs()
    assert table.by_hudi_rs(optimized=True) == [{**dep(1, 10, "d"), **arr(1, 5, "a")}, dep(2, 10, "d")]
    table.compact()
    assert table.read() == table.by_hudi_rs() == table.by_hudi_rs(optimized=True)


def _columns(block: Any) -> list[str]:
    names = [field["name"] for field in json.loads(block.headers[SCHEMA_HEADER])["fields"]]
    assert names[: len(META_COLUMNS)] == list(META_COLUMNS)
    return names[len(META_COLUMNS) :]


def test_a_write_of_all_columns_is_no_partial_one(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    row = {**dep(1, 1, "d"), **arr(1, 1, "a"), "ts": 1, "v": "v"}
    table.write(D + A + V, row)
    (name,) = (name for name in table.storage.list("").files if ".log." in name)
    (block,) = read_blocks(table.storage.read(name), name)
    assert IS_PARTIAL not in block.headers and table.read() == [row]


def test_partial_blocks_in_a_table_without_groups_are_refused(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(D, dep(1, 1, "d"))
    plan = plan_read(str(table.root))
    without = replace(plan, table=replace(plan.table, config=replace(plan.table.config, column_groups=())))
    with pytest.raises(InvalidRequest, match=r"partial update by Hudi.*lakelatch\.table\.column\.groups"):
        list(without.read(plan.slices[0]))


def test_ordered_deletes_of_whole_rows_are_another_writer_s(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(D, dep(1, 1, "d"))
    (found,) = plan_read(str(table.root)).slices
    deletes = Deletes(pa.array(["1"]), "", pa.array([5], pa.int64()))
    log = encode_log_file(found.base_instant, table.opened.avro_schema, None, deletes)
    table.storage.put(found.log_files[0], log)
    with pytest.raises(CorruptTable, match="another writer"):
        table.read()


def test_base_files_say_in_their_footers_what_hudi_expects_there(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(A, arr(1, 1, "a"), arr(2, 1, "a"), arr(3, 1, "a"))
    table.delete(("at",), arr(1, 5, ""))
    compacted = table.compact()
    assert compacted is not None
    (name,) = compacted.files
    footer = pq.read_metadata(table.root / name).metadata
    assert avro_to_arrow(footer[b"parquet.avro.schema"].decode()) == with_meta_columns(SCHEMA)
    assert (footer[b"hoodie_min_record_key"], footer[b"hoodie_max_record_key"]) == (b"2", b"3")
    assert table.storage.exists(footer[b"lakelatch.kept.deletes"].decode())


def test_a_log_file_that_is_rebased_is_as_partial_as_it_was(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(D, dep(1, 1, "d"))
    table.delete(("at",), arr(1, 5, ""))
    (found,) = plan_read(str(table.root)).slices
    for name in found.log_files:
        data = table.storage.read(name)
        (before,) = read_log_file(data, name)
        (after,) = read_log_file(rewritten(data, name, "20260101000000000", "f-0"), name)
        assert before.records is not None and after.records is not None and after.partial
        assert after.records.column_names == before.records.column_names
        assert after.group_deletes == before.group_deletes == ("a" in after.records.column_names)


def test_damaged_files_beside_base_files_are_named(tmp_path: Path) -> None:
    table = GroupedTable(tmp_path / "t")
    table.write(A, arr(1, 1, "a"))
    table.delete(("at",), arr(1, 5, ""))
    table.compact()
    table.write(A, arr(1, 2, "a"))
    (kept,) = (name for name in table.storage.list("").files if name.endswith(".kept"))
    table.storage.put(kept, b"no parquet")
    with pytest.raises(CorruptTable, match=kept):
        table.read()


def test_a_placeholder_says_nothing_in_a_log_compaction() -> None:
    """Its block of deletes has no key in it."""
    data = pa.schema([("id", pa.string()), ("dt", pa.int64()), ("d", pa.string())])
    schema, avro_schema = with_meta_columns(data), arrow_to_avro(data, "t")
    storage = MemoryStorage("placeholder")
    times = ["20260101000000001", "20260101000000002"]
    row = {"_hoodie_record_key": "a", "_hoodie_commit_time": times[1], "id": "a", "dt": 1, "d": "x"}
    rows = pa.Table.from_pylist([row], schema=schema)
    contents = (encode_empty_log(times[0], avro_schema), encode_log_file(times[1], avro_schema, rows, None))
    logs = [LogFile("f-0", instant, 1, "0-0-0").name for instant in times]
    for name, content in zip(logs, contents, strict=True):
        storage.put(f"p/{name}", content)
    config = TableConfig(
        name="t",
        record_key_fields=("id",),
        ordering_field=None,
        merge_mode=EVENT_TIME,
        column_groups=(ColumnGroup("dt", ("d",)),),
    )
    found = list(compact_logs(storage, FileSlice("p", "f-0", times[0], None, tuple(logs)), schema, config, {}))
    assert [(one.row_count, one.delete_count) for one in found] == [(1, 0)]
    assert all(one.encode(times[1], avro_schema) for one in found)
