"""The same rows win before and after any compaction, whatever order writers commit in."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_table import LiveTable, Row, TableRows
from table import Writing
from whole_rows import merge_rows

from lakelatch.engine.read.plan import plan_read
from lakelatch.format.avro import arrow_to_avro, with_meta_columns
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import Deletes, encode_log_file
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.names import LogFile, parse_data_file
from lakelatch.storage.memory import MemoryStorage

UTC = timezone.utc
PLAN, EXECUTE = "plan", "execute"
KEYS = range(4)


def winners(writes: Sequence[tuple[str, list[Row]]]) -> TableRows:
    """For each key the entry with the greatest ordering value, unless that is a delete."""
    best: dict[int, tuple[int, str, str]] = {}
    for operation, rows in writes:
        for key, ts, value in rows:
            if key not in best or ts > best[key][0]:
                best[key] = (ts, value, operation)
    return sorted(("p", key, ts, value) for key, (ts, value, operation) in best.items() if operation != "delete")


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[str, list[Row]]], list[int | str]]:
    """Writes in the order in which they begin, and the order of their commits with plans and executions in between."""
    count = draw(st.integers(2, 6))
    times = draw(st.permutations(range(1, 4 * count + 1)))  # no two entries have one ordering value
    writes = []
    for number in range(count):
        keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True))
        rows = [(key, times[4 * number + place], f"w{number}") for place, key in enumerate(keys)]
        writes.append((draw(st.sampled_from(["upsert", "upsert", "delete"])), rows))
    order: list[int | str] = list(draw(st.permutations(range(count))))
    for _ in range(draw(st.integers(0, 4))):
        order.insert(draw(st.integers(0, len(order))), draw(st.sampled_from([PLAN, EXECUTE])))
    return writes, order


def begin_all(table: LiveTable, writes: Sequence[tuple[str, list[Row]]]) -> list[Writing]:
    return [table.begin(operation).put("p", rows) for operation, rows in writes]


@settings(max_examples=40, deadline=None)
@given(history=histories())
def test_winners_do_not_flip(history: tuple[list[tuple[str, list[Row]]], list[int | str]]) -> None:
    writes, order = history
    with tempfile.TemporaryDirectory() as folder:
        table = LiveTable(Path(folder) / "t", buckets=1)
        open_ones = begin_all(table, writes)
        committed: list[tuple[str, list[Row]]] = []
        plans: list[str] = []
        for step in order:
            if isinstance(step, int):
                open_ones[step].commit()
                committed.append(writes[step])
            elif step == PLAN:
                plans += [plan for plan in [table.plan()] if plan]
            elif plans:
                table.execute(plans.pop())
            if committed:
                assert table.agreed() == winners(committed)
        for plan in plans:
            table.execute(plan)
        assert table.agreed() == winners(writes)
        table.compact()
        assert table.agreed() == winners(writes) == table.optimized() == table.by_hudi_rs(optimized=True)


@pytest.mark.parametrize("compactions", [1, 3])
def test_a_row_that_is_older_than_its_delete_stays_deleted(tmp_path: Path, compactions: int) -> None:
    """Whether its writer began before the compaction or long after it."""
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a"), (2, 1, "b")])
    late = table.begin().put("p", [(1, 3, "late")])
    table.delete([(1, 5, "")])
    for number in range(compactions):
        table.write([(3, number, "c")])
        assert table.compact() is not None
    rows = [("p", 2, 1, "b"), ("p", 3, compactions - 1, "c")]
    assert table.agreed() == rows
    late.commit()
    assert table.agreed() == rows
    table.write([(1, 4, "later")])
    table.compact()
    assert table.agreed() == rows
    table.write([(1, 6, "newer")])
    assert table.agreed() == [("p", 1, 6, "newer"), *rows]
    table.compact()
    assert table.agreed() == table.optimized() == [("p", 1, 6, "newer"), *rows]


def test_kept_deletes_cost_readers_nothing_and_are_no_reason_to_compact(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.delete([(1, 5, "")])
    table.compact()
    (found,) = plan_read(str(table.root)).slices
    assert found.base_file and len(found.log_files) == 1 and found.fresh_logs == ()
    assert table.plan() is None
    table.write([(1, 6, "newer")])
    (found,) = plan_read(str(table.root)).slices
    assert len(found.log_files) == 2 and len(found.fresh_logs) == 1
    table.compact()
    (found,) = plan_read(str(table.root)).slices
    assert found.log_files == ()  # nothing is deleted any more


def test_deletes_are_forgotten_if_the_plan_says_so(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.delete([(1, 5, "")])
    table.compact()
    table.write([(2, 2, "B")])
    plan = table.plan({"lakelatch.compact.keep.deletes": "false"})
    assert plan is not None
    table.execute(plan)
    (found,) = plan_read(str(table.root)).slices
    assert found.log_files == () and table.agreed() == [("p", 2, 2, "B")]
    assert not [name for name in table.storage.list("p").files if plan in name and parse_data_file(name) is None]
    table.write([(1, 3, "older than its delete")])
    assert table.agreed() == [("p", 1, 3, "older than its delete"), ("p", 2, 2, "B")]


@pytest.mark.parametrize("compacted", [False, True])
def test_equal_ordering_values_are_decided_by_the_order_that_the_guide_says(tmp_path: Path, compacted: bool) -> None:
    """The later to begin wins, or, with a compaction planned between their completions, the later to complete."""
    table = LiveTable(tmp_path / "t", buckets=1)
    first, second = (table.begin().put("p", [(1, 5, name)]) for name in ("first", "second"))
    second.commit()
    if compacted:
        table.compact()
    first.commit()
    assert table.agreed() == [("p", 1, 5, "first" if compacted else "second")]


@pytest.mark.parametrize("requested_before_the_plan", [True, False])
def test_a_kept_delete_counts_as_requested_with_its_compaction(tmp_path: Path, requested_before_the_plan: bool) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a")])
    table.delete([(1, 5, "")])
    early = table.begin().put("p", [(1, 5, "equal")])
    table.compact()
    late = table.begin().put("p", [(1, 5, "equal")])
    (early if requested_before_the_plan else late).commit()
    (late if requested_before_the_plan else early).transaction.abort()
    assert table.agreed() == ([] if requested_before_the_plan else [("p", 1, 5, "equal")])


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        (pa.int32(), 1, 2),
        (pa.int64(), -5, 2**60),
        (pa.bool_(), False, True),
        (pa.float32(), 0.5, 1.25),
        (pa.float64(), -1e300, 0.1),
        (pa.string(), "a", "b"),
        (pa.date32(), date(1969, 12, 31), date(2026, 11, 21)),
        (pa.decimal128(10, 2), Decimal("-1.25"), Decimal("99999999.99")),
        (
            pa.timestamp("us", "UTC"),
            datetime(1969, 1, 1, tzinfo=timezone.utc),
            datetime(2026, 11, 21, 1, 2, 3, 456789, timezone.utc),
        ),
    ],
)
def test_kept_deletes_have_the_ordering_values_that_they_had(kind: pa.DataType, older: Any, newer: Any) -> None:
    schema = with_meta_columns(pa.schema([("ts", kind)]))
    avro, storage = arrow_to_avro(pa.schema([("ts", kind)]), "made"), MemoryStorage(f"kept-{kind}")

    def merged(*logs: tuple[Deletes | None, list[Any]]) -> Merged:
        names = []
        for number, (deletes, values) in enumerate(logs, 1):
            rows = [{"_hoodie_record_key": key, "ts": value} for key, value in zip("kl", values, strict=False)]
            names.append(LogFile("f-0", f"20260101{number:09d}", 1, "0-0-0").name)
            records = pa.Table.from_pylist(rows, schema=schema) if rows else None
            storage.put(names[-1], encode_log_file(f"20260101{number:09d}", avro, records, deletes))
        return merge_rows(storage, FileSlice("", "f-0", "", None, tuple(names)), schema, "ts", schema.names)

    deletes = Deletes(pa.array(["k", "m"]), "", pa.array([newer, newer], kind))
    kept = merged((None, [older, older]), (deletes, [])).deletes
    assert kept is not None and kept.ordering is not None
    assert kept.keys.to_pylist() == ["k", "m"] and kept.ordering.to_pylist() == [newer, newer]
    assert kept.ordering.type == kind
    assert merged((kept, []), (None, [older, older])).rows["_hoodie_record_key"].to_pylist() == ["l"]
    assert merged((kept, []), (None, [newer, older])).deletes is not None  # m is gone for good
