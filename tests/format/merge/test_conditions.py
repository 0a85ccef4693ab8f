"""Conditions and the statistics of a row group: what these do not say rules nothing out."""

from __future__ import annotations

import datetime
import io
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lakelatch.format.footers.hidden import take_out
from lakelatch.format.merge.conditions import (
    Bound,
    Condition,
    OneOf,
    Present,
    fulfilling,
    row_group_may_hold,
    understood,
)

DAY = datetime.date(2024, 1, 31)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int32(), st.integers(-3, 3)),
    "v": (pa.string(), st.sampled_from(["", "a", "é", "z" * 5000]) | st.text("ab\ud7ff\ue000\U0010ffff", max_size=4)),
    "day": (pa.date32(), st.dates()),
    "yes": (pa.bool_(), st.booleans()),
    "d": (pa.float64(), st.sampled_from([math.nan, 0.0, -0.0]) | st.floats()),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(datetime.timezone.utc))),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
#: Fields of a chunk's statistics in a footer, beside the bounds.
NULLS = 3


def group_of(table: pa.Table, unknown: Sequence[int] = (), chunk: int = 0) -> Any:
    """The row group of a file, of which one chunk's statistics lack some fields."""
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    take_out(sink, [(4, 0, 1, chunk, 3, 12, field) for field in unknown])
    return pq.ParquetFile(sink).metadata.row_group(0)


def conditions_on(column: str) -> st.SearchStrategy[Condition]:
    values = VALUES[column][1]
    lists = st.builds(OneOf, st.just(column), st.lists(st.none() | values, max_size=3).map(tuple))
    bounds = st.builds(Bound, st.just(column), st.sampled_from(["<", "<=", ">", ">="]), values)
    return st.one_of(lists, bounds, st.just(Present(column)))


rows = st.lists(
    st.fixed_dictionaries({name: st.none() | one for name, (_, one) in VALUES.items()}), min_size=1, max_size=4
)


@settings(deadline=None)
@given(rows, st.lists(st.sampled_from(list(VALUES)).flatmap(conditions_on), min_size=1, max_size=2))
def test_a_row_group_with_a_row_that_fulfils_all_conditions_is_read(
    values: list[dict[str, Any]], conditions: list[Condition]
) -> None:
    table = pa.Table.from_pylist(values, SCHEMA)
    wanted = understood(conditions, SCHEMA)
    keeps = row_group_may_hold(group_of(table), wanted)
    event("read" if keeps else "passed over")
    if not keeps:
        assert not fulfilling(table, wanted).num_rows
    for number in range(len(VALUES)):  # what is not said of a column rules nothing out by it
        less = group_of(table, range(1, 9), number)
        alone = [one for one in wanted if one.column == SCHEMA.names[number]]
        assert row_group_may_hold(less, alone)
        if row_group_may_hold(group_of(table, [NULLS], number), wanted) != keeps:
            assert any(isinstance(one, OneOf) and None in one.values for one in wanted)


def test_conditions_do_pass_row_groups_over() -> None:
    table = pa.table({"n": [3, 9, 5], "v": ["b", "d", "c"], "day": [DAY] * 3, "yes": [True] * 3})
    out: list[Condition] = [
        *(OneOf("n", (1, 2, 10)), Bound("n", "<", 3), Bound("n", ">", 9), OneOf("n", (None,)), OneOf("n", (None, 1))),
        *(
            OneOf("v", ("a", "e")),
            Bound("v", ">=", "e"),
            OneOf("v", ()),
            OneOf("yes", (False,)),
            Bound("day", "<", DAY),
        ),
    ]
    kept: list[Condition] = [
        OneOf("n", (4,)),
        Bound("n", "<=", 3),
        Present("n"),
        OneOf("day", (DAY,)),
        Bound("n", "<", "3"),
        Present("x"),
    ]
    group = group_of(table)
    assert [one for one in out if row_group_may_hold(group, [one])] == []
    assert [one for one in kept if not row_group_may_hold(group, [one])] == []
    assert not row_group_may_hold(group, iter([*kept, out[0]]))


@pytest.mark.parametrize("values", [(None,), (None, 7)])
def test_an_unknown_number_of_nulls_is_not_0(values: tuple[int | None, ...]) -> None:
    table = pa.table({"n": pa.array([1, None], pa.int64())})
    wanted = [OneOf("n", values)]
    assert row_group_may_hold(group_of(table), wanted)
    group = group_of(table, [NULLS])
    assert group.column(0).statistics.has_min_max and not group.column(0).statistics.has_null_count
    assert row_group_may_hold(group, wanted)
    assert not row_group_may_hold(group, [OneOf("n", (7,))]), "the bounds are there"
    assert not row_group_may_hold(group_of(pa.table({"n": [1, 2]})), wanted)


def test_bounds_that_are_wider_than_the_values_are_right() -> None:
    """As texts that another writer has cut: each of these is a prefix, or one that was raised."""
    for condition in (OneOf("v", ("mmm",)), Bound("v", ">", "mmm"), Bound("v", "<", "mmm"), Bound("v", ">=", "z")):
        assert condition.may_hold("a", "zz", 0)
    assert not OneOf("v", ("zzz",)).may_hold("a", "zz", 0)


def test_a_column_with_a_dot_is_not_taken_for_a_part_of_another_one() -> None:
    nested = pa.table({"a": [{"b": 1}], "n": [1]})
    assert row_group_may_hold(group_of(nested), [OneOf("a.b", (None,)), OneOf("n", (1,))]), "the file is older"
    both = pa.table({"a": [{"b": 1}], "a.b": [5]})
    assert row_group_may_hold(group_of(both), [OneOf("a.b", (5,))])
    assert row_group_may_hold(group_of(pa.table({"l": [[1]]})), [OneOf("l", (5,))])


def test_a_day_that_python_has_not_rules_nothing_out() -> None:
    days = pa.array([9_000_000, 1], pa.int32()).cast(pa.date32())
    group = group_of(pa.table({"day": days, "n": [1, 2]}))
    day = pa.scalar(1, pa.int32()).cast(pa.date32()).as_py()
    assert row_group_may_hold(group, [Bound("day", ">", day)])
    assert not row_group_may_hold(group, [Bound("day", ">", day), OneOf("n", (3,))])
