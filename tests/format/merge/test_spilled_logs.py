"""Logs that are too many for memory: the same rows win, in the same order, and no temporary file stays."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables.made_slice import Delete, MadeSlice, Row, holding, time

from lakelatch.errors import CorruptTable, InvalidRequest, Unavailable
from lakelatch.format.avro import RECORD_KEY_COLUMN, arrow_to_avro, with_meta_columns
from lakelatch.format.log.blocks import LogEntries, encode_log_file
from lakelatch.format.merge.slice import compact_logs, merge_in_order, merge_onto, merge_slice, read_changed, read_slice
from lakelatch.format.merge.spilled_logs import LogBounds
from lakelatch.format.merge.stream import joined_deletes, matched
from lakelatch.format.names import LogFile
from lakelatch.timeline.table_config import COMMIT_TIME, EVENT_TIME

MB = 1024 * 1024
ALL = LogBounds(held=0, run=1, batch=1, part=1)  # each row is a run
Log = tuple[list[Row], list[Delete], list[Row], int]  # rows, deletes, rows that are deletes, a log that it rolls back
Parts = Callable[[MadeSlice], Iterator[Any]]

keys = st.sampled_from("abcdef")
ordering = st.none() | st.integers(-2, 2)
row = st.tuples(keys, st.integers(0, 99), ordering)
deletes = st.lists(st.tuples(keys, ordering), max_size=3)
log = st.tuples(st.lists(row, max_size=6), deletes, st.lists(row, max_size=2), st.integers(-12, 4))
kinds = st.sampled_from([pa.int64(), pa.int32(), pa.string(), pa.float64(), pa.timestamp("us", "UTC"), pa.date32()])
bounds = st.builds(LogBounds, st.integers(0, 900), st.integers(1, 900), st.integers(1, 300), st.integers(1, 900))


def in_order(made: MadeSlice) -> Iterator[Any]:
    return merge_in_order(made.storage, made.slice, made.schema, made.config, {})


def in_any_order(made: MadeSlice) -> Iterator[Any]:
    return read_slice(made.storage, made.slice, made.schema, made.config, {}, made.schema.names)


def compacted(made: MadeSlice) -> Iterator[Any]:
    return compact_logs(made.storage, made.slice, made.schema, made.config, {})


def said(made: MadeSlice) -> dict[str, Any]:
    """All that is to be told of a slice, by whoever merges it."""
    of_slice = (made.storage, made.slice, made.schema, made.config)
    parts = list(in_order(made))
    found = joined_deletes(parts)
    looked_up = read_slice(*of_slice, {}, made.schema.names, keys=pa.array(["a", "c", "nobody"]))
    logs = [one.encode(time(len(made.logs)), made.avro) for one in compacted(made)]
    name = LogFile("f-0", time(len(made.logs)), 2, "0-0-0").name
    made.storage.put(f"p/{name}", b"".join(logs))
    merged = merge_slice(made.storage, replace(made.slice, log_files=(name,)), made.schema, made.config, {})
    gone = [] if found is None or found.ordering is None else [found.keys.to_pylist(), found.ordering.to_pylist()]
    return {
        "by key": [row for part in parts for row in part.rows.to_pylist()],
        "deletes": sorted(map(str, zip(*gone, strict=True))),
        "in any order": in_some_order(in_any_order(made)),
        "of some keys": in_some_order(looked_up),
        "changed": in_some_order(read_changed(*of_slice, made.schema.names)),
        "after a log compaction": merged.rows.to_pylist() if made.logs else None,
    }


def in_some_order(parts: Iterator[pa.Table]) -> list[str]:
    return sorted(str(row) for part in parts for row in part.to_pylist())


@settings(max_examples=40, deadline=None)
@given(
    base=st.lists(row, max_size=7),
    is_sorted=st.booleans(),
    logs=st.lists(log, max_size=6),
    kind=kinds,
    mode=st.sampled_from([EVENT_TIME, COMMIT_TIME]),
    small=bounds,
)
def test_what_wins_in_memory_wins_in_a_file(
    base: list[Row], is_sorted: bool, logs: list[Log], kind: pa.DataType, mode: str, small: LogBounds
) -> None:
    made = MadeSlice(sorted(base, key=lambda one: one[0]) if is_sorted else base, kind, mode)
    for rows, removed, gone, earlier in logs:
        made.log(rows, removed, gone)
        if 0 < earlier <= len(made.logs):
            made.take_back(earlier)
    expected = said(made)
    for small_ones in (small, ALL):
        with holding(small_ones):
            assert said(made) == expected


def test_parts_have_other_keys_each_and_come_in_their_order() -> None:
    """Also where the base file ends before the logs, and where one key has more entries than a part may have."""
    made = MadeSlice([("b", 0, 1), ("e", 0, 1), ("e", 1, 1)])
    for number in range(1, 4):
        made.log([(key, number, number) for key in "gfedcba"] * 3)
    with holding(LogBounds(held=0, run=400, batch=100, part=300)):
        found = [part.rows["_hoodie_record_key"].to_pylist() for part in in_order(made)]
    assert [key for part in found for key in part] == list("abcdefg")
    assert len([part for part in found if part]) > 3


@pytest.mark.parametrize("mode", [EVENT_TIME, COMMIT_TIME])
@pytest.mark.parametrize("small", [LogBounds(0), LogBounds(0, 20_000, 2_000, 2_000), LogBounds(0, MB, 900, 1)], ids=str)
def test_hundreds_of_rows_of_few_keys_keep_their_order(mode: str, small: LogBounds) -> None:
    """Of equal ordering values the last one wins, and deletes count where they lie: sorting by key must be stable."""
    made, expected = MadeSlice([("a", -1, 1)], mode=mode), {"a": -1}
    number = 0
    for turn in range(30):
        rows = []
        for _ in range(40):
            number += 1
            rows.append(("abc"[number * number % 7 % 3], number, 7))
        expected.update({key: value for key, value, _ in rows})
        gone = "abc"[turn % 3]
        removed: list[Delete] = [(gone, 7)] if turn % 3 == 1 else []  # which lie behind the rows
        made.log(rows, removed)
        for key, _ in removed:
            expected.pop(key)
    with holding(small):
        found = {row["_hoodie_record_key"]: row["v"] for part in in_order(made) for row in part.rows.to_pylist()}
        kept = said(made)
    assert kept == said(made)
    assert found == expected and set(found) == set("abc")


def test_what_is_rolled_back_does_not_count_wherever_it_lies() -> None:
    made = MadeSlice([("a", 0, 1)])
    made.log([("a", 1, 1)])
    made.log([("a", 2, 2), ("b", 2, 2)], [("a", 3)])
    made.take_back(2)
    made.log([("c", 3, 3)])
    for small in (LogBounds(), ALL, replace(ALL, run=MB)):
        with holding(small):
            assert [row["v"] for part in in_order(made) for row in part.rows.to_pylist()] == [1, 3]


def test_a_block_that_nobody_can_read_does_no_harm_if_it_is_rolled_back() -> None:
    made = MadeSlice([("a", 0, 1)])
    text = with_meta_columns(pa.schema([("v", pa.string()), ("ts", pa.int64())]))
    rows = pa.Table.from_pylist([{"_hoodie_record_key": "a", "v": "x", "ts": 1}], schema=text)
    made.log([("a", 1, 1)])
    made.put_log(encode_log_file(time(2), arrow_to_avro(text, "made"), rows, None))
    for small in (LogBounds(), ALL):
        with holding(small), pytest.raises(CorruptTable, match="column 'v' of a log block of"):
            list(in_any_order(made))
    made.take_back(2)
    for small in (LogBounds(), ALL):
        with holding(small):
            assert [row["v"] for part in in_any_order(made) for row in part.to_pylist()] == [1]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[IO[bytes]]]:
    """All temporary files, which are gone when they are closed."""
    found: list[IO[bytes]] = []
    make = tempfile.TemporaryFile

    def noted(**options: Any) -> IO[bytes]:
        found.append(make(**options))
        return found[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", noted)
    yield found


def large_slice() -> MadeSlice:
    """With logs of more than 48 MiB in memory, whose keys overlap, and a small base file."""
    made = MadeSlice([("k", 0, 0), ("k00000001", 0, 0)])
    for number in range(1, 13):
        made.log([(f"k{key * number % 7919:08d}" + "x" * 1024, number, number) for key in range(4 * 1024)])
    return made


@pytest.mark.parametrize("parts_of", [in_order, in_any_order, compacted])
def test_temporary_files_are_gone_at_the_end(parts_of: Parts, files: list[IO[bytes]]) -> None:
    made = MadeSlice([("c", 0, 1), ("a", 0, 1)])
    made.log([("a", 1, 1), ("b", 1, 1)])
    made.log([("c", 2, 2)])
    assert list(parts_of(made)) and files == []
    with holding(ALL):
        assert list(parts_of(made))
        assert files and all(file.closed for file in files)
        files.clear()
        parts = iter(parts_of(made))
        next(parts)
        assert not all(file.closed for file in files)
        del parts  # nobody wants the rest
        assert files and all(file.closed for file in files)
        files.clear()
        made.put_log(b"no log file")
        with pytest.raises(CorruptTable, match="torn at byte 0"):
            list(parts_of(made))
        assert files and all(file.closed for file in files)


def test_rows_that_are_in_memory_anyway_are_no_reason_for_a_file(files: list[IO[bytes]]) -> None:
    made = MadeSlice([("b", 0, 1), ("d", 0, 1)])
    entries = [LogEntries(time(9), records=made.rows_of([(key, 9, 2) for key in "cab"]))]

    def values() -> list[int]:
        parts = merge_onto(made.storage, made.slice, entries, made.schema, made.config, {})
        return [row["v"] for part in parts for row in part.rows.to_pylist()]

    with holding(ALL):
        assert values() == [9, 9, 9, 0]
        assert files == []
        made.log([("c", 1, 3), ("a", 1, 1)])  # with logs they go where these go
        assert values() == [9, 9, 1, 0]
        assert files


@pytest.mark.parametrize("parts_of", [in_order, in_any_order, compacted])
def test_a_disk_that_is_full_is_named(parts_of: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeSlice([])
    made.log([("a", 1, 1)])
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: Path("/dev/full").open("r+b"))  # noqa: SIM115
    with (
        holding(ALL),
        pytest.raises(Unavailable, match=r"the logs of a slice could not be written to a temporary file in .*TMPDIR"),
    ):
        list(parts_of(made))


def test_a_partial_update_by_hudi_is_refused_as_ever() -> None:
    made = MadeSlice([])
    rows = made.rows_of([("a", 1, 1)]).drop_columns(["v"])
    made.put_log(encode_log_file(time(1), made.avro, rows, None))
    with holding(ALL), pytest.raises(InvalidRequest, match="is a partial update by Hudi"):
        list(in_any_order(made))


@contextmanager
def traced() -> Iterator[None]:
    """Python's memory is counted: what is read of files is there, and not in Arrow's."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("parts_of", [in_order, in_any_order, compacted])
def test_memory_holds_a_part_of_the_logs(parts_of: Parts) -> None:
    made = large_slice()
    most, count, least = 0, 0, pa.total_allocated_bytes()
    with holding(LogBounds(held=6 * MB, run=2 * MB, batch=64 * 1024, part=MB)), traced():
        for part in parts_of(made):
            most = max(most, pa.total_allocated_bytes() - least + tracemalloc.get_traced_memory()[0])
            count += sum(rows.num_rows for rows in part.rows) if parts_of is compacted else 1
            del part
    assert count > 12
    assert most < 16 * MB  # of 48; a batch of each run, and a part a few times


@pytest.mark.parametrize(("part_bytes", "times"), [(0, 10), (2**20, 1)])
def test_logs_are_asked_for_as_many_rows_as_are_worth_it(part_bytes: int, times: int) -> None:
    """Each time costs something for each block of them."""
    asked: list[str | None] = []

    class Asked:
        def until(self, key: str | None) -> Iterator[tuple[str | None, list[LogEntries]]]:
            asked.append(key)
            yield key, []

    logs = Asked()
    logs.part_bytes = part_bytes  # type: ignore[attr-defined]
    parts = [pa.table({RECORD_KEY_COLUMN: [f"{part}-{row}" for row in range(10)]}) for part in range(10)]
    reader = SimpleNamespace(schema=parts[0].schema)
    found = [rows for rows, _ in matched(reader, parts, logs)]  # type: ignore[arg-type]
    assert pa.concat_tables(found).equals(pa.concat_tables(parts)) and asked[-1] is None
    assert len(asked) == times + 1
