"""Merging the rows of a slice, against a fold that goes entry by entry."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storages.counting import CountingStorage
from whole_rows import merge_rows

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.format import base_files
from lakelatch.format.avro import arrow_to_avro, with_meta_columns
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import Deletes, encode_log_file
from lakelatch.format.log.framing import COMMAND_BLOCK, INSTANT_TIME, TARGET_INSTANT_TIME, encode_block
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.merge.rows import RowMerging
from lakelatch.format.merge.stream import in_order, joined_deletes
from lakelatch.format.names import BaseFile, LogFile
from lakelatch.storage.contract import NotFound
from lakelatch.storage.memory import MemoryStorage
from lakelatch.timeline.table_config import COMMIT_TIME, EVENT_TIME

SCHEMA = pa.schema([("v", pa.int64()), ("ts", pa.int64())])
FULL = with_meta_columns(SCHEMA)
AVRO = arrow_to_avro(SCHEMA, "made")
Row = tuple[str, int, int]  # key, value, ordering value
Delete = tuple[str, "int | None"]  # key, ordering value or None for the default


def time(number: int) -> str:
    return f"20260101{number:09d}"


def table_of(rows: list[Row], instant: int) -> pa.Table:
    values = [{"_hoodie_record_key": k, "v": v, "ts": ts, "_hoodie_commit_time": time(instant)} for k, v, ts in rows]
    return pa.Table.from_pylist(values, schema=FULL)


class Group:
    """A file group under construction, in memory."""

    def __init__(self) -> None:
        self.storage: MemoryStorage = MemoryStorage("merge")
        self.base: str | None = None
        self.logs: list[str] = []

    def put_base(self, rows: pa.Table) -> None:
        self.base = BaseFile("f-0", "0-0-0", time(0)).name
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        self.storage.put(f"p/{self.base}", sink.getvalue())

    def put_log(self, data: bytes) -> None:
        self.logs.append(LogFile("f-0", time(len(self.logs) + 1), 1, "0-0-0").name)
        self.storage.put(f"p/{self.logs[-1]}", data)

    def put_block(self, rows: list[Row], deletes: list[Delete]) -> None:
        instant = len(self.logs) + 1
        removed = None
        if deletes:
            ordering = pa.array([at for _, at in deletes], pa.int64())
            removed = Deletes(pa.array([key for key, _ in deletes]), "p", ordering)
        records = table_of(rows, instant) if rows else None
        data = encode_log_file(time(instant), AVRO, records, removed) if rows or deletes else b""
        self.put_log(data)

    @property
    def slice(self) -> FileSlice:
        return FileSlice("p", "f-0", time(0), self.base, tuple(self.logs))

    def merge(self, mode: str = EVENT_TIME, schema: pa.Schema = FULL, columns: Sequence[str] | None = None) -> Merged:
        ordering_field = "ts" if mode == EVENT_TIME else None
        return merge_rows(self.storage, self.slice, schema, ordering_field, columns or schema.names)

    def rows(self, mode: str = EVENT_TIME) -> list[Row]:
        found = self.merge(mode).rows.select(["_hoodie_record_key", "v", "ts"]).to_pylist()
        return [(row["_hoodie_record_key"], row["v"], row["ts"]) for row in found]

    def rows_in_parts(self, mode: str) -> tuple[list[Row], Deletes | None]:
        """By parts of the base file that have a row or two."""
        ordering_field = "ts" if mode == EVENT_TIME else None
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(base_files, "BATCH_ROWS_MAX", 2)
            merging = RowMerging.of(self.storage, self.slice, FULL, ordering_field, FULL.names)
            parts = list(in_order(merging))
        rows = pa.concat_tables([part.rows for part in parts])
        found = rows.select(["_hoodie_record_key", "v", "ts"]).to_pylist()
        return [(row["_hoodie_record_key"], row["v"], row["ts"]) for row in found], joined_deletes(parts)


Entry = tuple[str, "int | None", "int | None"]  # key, value or None for a delete, ordering value


def fold(entries: list[Entry], event_time: bool) -> list[Row]:
    """The rule read aloud: one entry after another against the current one of its key."""
    current: dict[str, tuple[int | None, int | None]] = {}  # value or None if deleted, ordering value or None if lowest
    for key, value, at in entries:
        _, old = current.get(key, (None, None))
        default_delete = value is None and at is None
        if not event_time or default_delete or old is None or (at is not None and at >= old):
            current[key] = (value, at)
    return sorted((key, value, at or 0) for key, (value, at) in current.items() if value is not None)


keys = st.sampled_from("abcd")
row = st.tuples(keys, st.integers(0, 99), st.integers(-2, 2))
delete = st.tuples(keys, st.one_of(st.none(), st.integers(-2, 2)))
block = st.tuples(st.lists(row, max_size=5), st.lists(delete, max_size=4))


@settings(deadline=None)
@given(
    base=st.lists(row, max_size=4, unique_by=lambda found: found[0]),
    blocks=st.lists(block, max_size=5),
    mode=st.sampled_from([EVENT_TIME, COMMIT_TIME]),
    in_key_order=st.booleans(),
)
def test_merging_is_the_fold(
    base: list[Row], blocks: list[tuple[list[Row], list[Delete]]], mode: str, in_key_order: bool
) -> None:
    group = Group()
    entries: list[Entry] = [(key, value, at) for key, value, at in base]
    if in_key_order:
        base = sorted(base)
    if base:
        group.put_base(table_of(base, 0))
    for rows, deletes in blocks:
        group.put_block(rows, deletes)
        entries += rows
        entries += [(key, None, at) for key, at in deletes if at is None]  # written as a block before the others
        entries += [(key, None, at) for key, at in deletes if at is not None]
    assert group.rows(mode) == fold(entries, mode == EVENT_TIME)
    assert group.rows_in_parts(mode) == (group.rows(mode), group.merge(mode).deletes)


def test_meta_columns_are_those_of_the_winner() -> None:
    group = Group()
    group.put_base(table_of([("a", 1, 5), ("b", 1, 5)], 0))
    group.put_block([("a", 2, 6), ("b", 2, 4)], [])
    rows = group.merge().rows
    assert rows["_hoodie_commit_time"].to_pylist() == [time(1), time(0)]
    assert rows.schema == FULL


def test_rows_are_sorted_by_key_and_only_wanted_columns_come() -> None:
    group = Group()
    group.put_base(table_of([("c", 1, 1), ("a", 1, 1)], 0))
    group.put_block([("b", 2, 1)], [])
    assert group.merge(columns=["v"]).rows.to_pydict() == {"v": [1, 2, 1]}
    group.logs.clear()
    assert group.merge().rows["_hoodie_record_key"].to_pylist() == ["a", "c"]


def test_rows_of_a_base_that_no_log_names_are_left_as_they_are() -> None:
    group = Group()
    group.put_base(table_of([("a", 1, 1), ("a", 2, 1), ("b", 1, 1)], 0))
    group.put_block([("b", 3, 1)], [])
    assert group.rows() == [("a", 1, 1), ("a", 2, 1), ("b", 3, 1)]


def test_rows_of_a_base_with_one_key_become_one_though_they_come_in_several_parts() -> None:
    group = Group()
    group.put_base(table_of([("a", 1, 1), ("b", 1, 1), ("b", 2, 1), ("b", 3, 1), ("c", 1, 1)], 0))
    group.put_block([("b", 4, 1)], [])
    assert group.rows_in_parts(EVENT_TIME)[0] == group.rows() == [("a", 1, 1), ("b", 4, 1), ("c", 1, 1)]


def test_zero_byte_logs_are_skipped() -> None:
    group = Group()
    group.put_log(b"")
    assert group.rows() == []
    group.put_block([("a", 1, 1)], [])
    assert group.rows() == [("a", 1, 1)]


def test_blocks_of_other_instants_do_not_count() -> None:
    group = Group()
    stray = encode_log_file(time(77), AVRO, table_of([("z", 1, 1)], 77), None)
    group.put_log(encode_log_file(time(1), AVRO, table_of([("a", 1, 1)], 1), None) + stray)
    assert group.rows() == [("a", 1, 1)]


def test_rolled_back_blocks_do_not_count() -> None:
    group = Group()
    group.put_block([("a", 1, 1)], [])
    group.put_block([("a", 2, 2), ("b", 2, 2)], [])
    group.put_log(encode_block(COMMAND_BLOCK, {INSTANT_TIME: time(3), TARGET_INSTANT_TIME: time(2)}, b""))
    assert group.rows() == [("a", 1, 1)]


def test_many_small_logs_are_read_side_by_side() -> None:
    """And what a late one rolls back is gone all the same."""
    group, storage = Group(), CountingStorage("merge")
    group.storage = storage
    for number in range(63):
        group.put_block([("a", number, number), (f"{number}", 1, 1)], [])
    group.put_log(encode_block(COMMAND_BLOCK, {INSTANT_TIME: time(64), TARGET_INSTANT_TIME: time(63)}, b""))
    storage.forget()
    assert group.rows() == sorted([("a", 61, 61), *((f"{number}", 1, 1) for number in range(62))])
    assert (len(storage.calls), storage.steps) == (64, 2), storage.story()


def test_a_damaged_log_is_told_before_one_that_is_missing_after_it() -> None:
    group = Group()
    for _ in range(9):
        group.put_block([("a", 1, 1)], [])
    group.storage.put(f"p/{group.logs[3]}", b"no log")
    group.storage.delete(f"p/{group.logs[5]}")
    with pytest.raises(CorruptTable, match=group.logs[3]):
        group.merge()


def test_rows_marked_as_deleted_are_deletes_with_their_ordering_value() -> None:
    schema = with_meta_columns(pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())]))
    avro = arrow_to_avro(schema, "made")

    def rows(instant: int, *values: tuple[str, int | None, bool | None]) -> bytes:
        found = [{"_hoodie_record_key": k, "ts": ts, "_hoodie_is_deleted": gone} for k, ts, gone in values]
        return encode_log_file(time(instant), avro, pa.Table.from_pylist(found, schema=schema), None)

    group = Group()
    group.put_log(rows(1, *((key, 5, None) for key in "abcd")))
    group.put_log(rows(2, ("a", 4, True), ("b", 5, True), ("c", 6, False), ("d", None, True)))
    assert group.merge(schema=schema).rows["_hoodie_record_key"].to_pylist() == ["a", "c"]
    group.put_log(rows(3, ("b", 4, False), ("d", 1, None)))
    assert group.merge(schema=schema).rows["_hoodie_record_key"].to_pylist() == ["a", "c", "d"]


def test_columns_that_came_later_are_null_in_older_files() -> None:
    group = Group()
    group.put_base(table_of([("a", 1, 1), ("b", 1, 1)], 0))
    wider = with_meta_columns(pa.schema([("v", pa.float64()), ("new", pa.list_(pa.string())), ("ts", pa.int64())]))
    later = pa.Table.from_pylist([{"_hoodie_record_key": "b", "v": 2.5, "new": ["x"], "ts": 2}], schema=wider)
    group.put_log(encode_log_file(time(1), arrow_to_avro(wider, "made"), later, None))
    rows = group.merge(schema=wider).rows
    assert rows.select(["v", "new"]).to_pydict() == {"v": [1.0, 2.5], "new": [None, ["x"]]}


def test_orderings_of_a_wider_type_compare() -> None:
    group = Group()
    group.put_block([("a", 1, 5), ("b", 1, 5)], [])
    removed = Deletes(pa.array(["a", "b"]), "p", pa.array([4, 5], pa.int32()))
    group.put_log(encode_log_file(time(2), AVRO, None, removed))
    assert group.rows() == [("a", 1, 5)]


def test_missing_and_broken_files_are_said() -> None:
    group = Group()
    group.put_block([("a", 1, 1)], [])
    group.logs.append(LogFile("f-0", time(9), 1, "0-0-0").name)
    with pytest.raises(NotFound):
        group.merge()
    group.logs.pop()
    group.put_base(table_of([("a", 1, 1)], 0))
    group.storage.put(f"p/{group.base}", b"no parquet")
    with pytest.raises(CorruptTable, match="data file p/f-0"):
        group.merge()
    with pytest.raises(InvalidRequest, match="other are not in the table's schema"):
        merge_rows(group.storage, group.slice, FULL, "other", FULL.names)


def test_columns_that_do_not_fit_are_corrupt() -> None:
    group = Group()
    text = with_meta_columns(pa.schema([("v", pa.string()), ("ts", pa.int64())]))
    rows = pa.Table.from_pylist([{"_hoodie_record_key": "a", "v": "x", "ts": 1}], schema=text)
    group.put_log(encode_log_file(time(1), arrow_to_avro(text, "made"), rows, None))
    with pytest.raises(CorruptTable, match="column 'v' of a log block of"):
        group.merge()
    group = Group()
    group.put_log(encode_log_file(time(1), AVRO, None, Deletes(pa.array(["a"]), "p", pa.array(["text"]))))
    with pytest.raises(CorruptTable, match="ordering values of type string"):
        group.merge()
