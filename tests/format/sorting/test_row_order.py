"""Orders of rows: what is near stays near, whatever the columns hold."""

from __future__ import annotations

import itertools
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lakelatch.format.sorting.row_order import HILBERT, LINEAR, Z_ORDER, hilbert_index, interleaved, order_of


@pytest.mark.parametrize(("axes", "bits"), [(2, 1), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2)])
def test_neighbours_on_the_hilbert_curve_are_neighbours_in_space(axes: int, bits: int) -> None:
    points = list(itertools.product(range(1 << bits), repeat=axes))
    place = hilbert_index([np.array(axis, np.uint64) for axis in zip(*points, strict=True)], bits)
    assert sorted(place.tolist()) == list(range(len(points)))
    walk = [point for _, point in sorted(zip(place.tolist(), points, strict=True))]
    assert all(sum(abs(a - b) for a, b in zip(one, two, strict=True)) == 1 for one, two in itertools.pairwise(walk))


def test_the_z_order_curve_takes_the_bits_of_its_columns_in_turns() -> None:
    axes = [np.array([0b00, 0b01, 0b11], np.uint64), np.array([0b11, 0b10, 0b01], np.uint64)]
    assert interleaved(axes, 2).tolist() == [0b0101, 0b0110, 0b1011]


def test_rows_are_sorted_by_columns_and_equal_ones_stay_in_order() -> None:
    rows = pa.table({"a": [2, 1, None, 2, 1], "b": ["x", "z", "q", "w", "y"], "key": [1, 2, 3, 4, 5]})
    rows = pa.concat_tables([rows.slice(0, 2), rows.slice(2)])
    assert order_of(rows, ["a", "b"], LINEAR).tolist() == [4, 1, 3, 0, 2]
    assert order_of(rows, ["a"], LINEAR).tolist() == [1, 4, 0, 3, 2]


@pytest.mark.parametrize("layout", [LINEAR, Z_ORDER, HILBERT])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, None, False, True]),
        pa.array([Decimal("1.10"), Decimal("-2.00"), None, Decimal("7.00")]),
        pa.array([date(2026, 1, 2), None, date(2025, 1, 1), date(2026, 1, 1)]),
        pa.array([b"b", b"", None, b"a"]),
        pa.array([1.5, float("nan"), None, -1.0]),
        pa.array([None, None, None, None], pa.string()),
        pa.array([3, 1, 2, None], pa.timestamp("us")),
    ],
    ids=lambda values: str(values.type),
)
def test_columns_of_every_plain_type_can_be_sorted_by(values: pa.Array, layout: str) -> None:
    rows = pa.table({"a": values, "b": [4, 3, 2, 1], "key": range(4)})
    found = rows.take(order_of(rows, ["a", "b"], layout))
    assert sorted(found["key"].to_pylist()) == [0, 1, 2, 3] and found.schema == rows.schema


@pytest.mark.parametrize("layout", [Z_ORDER, HILBERT])
def test_a_curve_keeps_both_columns_narrow(layout: str) -> None:
    draw = np.random.default_rng(7)
    rows = pa.table({"a": draw.random(4096), "b": draw.random(4096)})

    def width(found: pa.Table, name: str) -> float:
        parts = np.asarray(found[name]).reshape(64, 64)
        return float((parts.max(axis=1) - parts.min(axis=1)).mean())

    curve, line = (rows.take(order_of(rows, ["a", "b"], one)) for one in (layout, LINEAR))
    assert width(line, "b") > 0.9
    assert width(curve, "a") < 0.3 and width(curve, "b") < 0.3
