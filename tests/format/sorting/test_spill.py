"""Rows in another order, of which memory holds a part."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelatch.errors import Unavailable
from lakelatch.format.sorting.spill import SpilledRuns, reordered, temporary_file

SCHEMA = pa.schema([("a", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int32())), ("at", pa.int64())])


def by_a(rows: pa.Table) -> npt.NDArray[np.int64]:
    assert rows.column_names == ["a"]
    return np.asarray(pc.sort_indices(rows, sort_keys=[("a", "ascending")])).view(np.int64)


def tables(values: list[list[int | None]]) -> list[pa.Table]:
    """A table for each list; `at` says where a row has come."""
    found, count = [], 0
    for part in values:
        rows = [
            {"a": value, "text": f"{value}" * 9, "list": [value] * 3, "at": count + n} for n, value in enumerate(part)
        ]
        found.append(pa.Table.from_pylist(rows, schema=SCHEMA))
        count += len(part)
    return found


@settings(deadline=None)  # each row may be a run
@given(
    st.lists(st.lists(st.none() | st.integers(0, 9), max_size=40), max_size=8),
    st.integers(40, 4000),
    st.integers(40, 4000),
)
def test_rows_come_as_if_they_had_been_sorted_at_once(
    values: list[list[int | None]], run_bytes: int, part_bytes: int
) -> None:
    parts = tables(values)
    whole = pa.concat_tables([SCHEMA.empty_table(), *parts])
    found = pa.concat_tables([SCHEMA.empty_table(), *reordered(parts, ["a"], by_a, run_bytes, part_bytes)])
    assert found.to_pylist() == whole.take(pa.array(by_a(whole.select(["a"])))).to_pylist()


def test_memory_holds_a_part_of_the_rows() -> None:
    draw = np.random.default_rng(3)

    def parts() -> Iterator[pa.Table]:
        for _ in range(64):
            yield pa.table({"a": draw.integers(2**40, size=4096), "text": pa.array(["x" * 256] * 4096)})

    pool, least = pa.default_memory_pool(), pa.total_allocated_bytes()
    most, last, count = 0, -1, 0
    for part in reordered(parts(), ["a"], by_a, 4 * 2**20, 2**20):
        most = max(most, pool.bytes_allocated() - least)
        values = part["a"].to_pylist()
        assert values == sorted(values) and values[0] >= last
        last, count = values[-1], count + part.num_rows
        assert part.nbytes < 3 * 2**20
    assert count == 64 * 4096
    assert most < 24 * 2**20  # of 66 MB; a batch of each run, a part twice, and the keys


def test_few_rows_need_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    parts = tables([[3, 1], [2]])
    assert [row["a"] for part in reordered(parts, ["a"], by_a) for row in part.to_pylist()] == [1, 2, 3]
    with pytest.raises(Unavailable, match=r"rows that are sorted could not be written to a temporary file in .*TMPDIR"):
        list(reordered(parts, ["a"], by_a, run_bytes=1))


def test_a_disk_that_is_full_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where closing the file fails once more."""
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: Path("/dev/full").open("r+b"))  # noqa: SIM115
    with pytest.raises(Unavailable, match="rows that are sorted could not be written to a temporary file in"):
        list(reordered(tables([[3, 1], [2]]), ["a"], by_a, run_bytes=1))


def test_no_rows_are_no_part() -> None:
    assert list(reordered([SCHEMA.empty_table()], ["a"], by_a)) == []


def test_a_temporary_file_that_has_lost_its_end_is_told() -> None:
    with temporary_file() as file:
        runs = SpilledRuns(file)
        runs.add(pa.table({"a": list(range(10_000))}))
        file.truncate(100)
        with pytest.raises(Unavailable, match="could not be read: it ends too early; set TMPDIR"):
            [list(batches) for batches in runs.batches()]
