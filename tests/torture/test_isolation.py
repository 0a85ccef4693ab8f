"""The checker of isolation knows Adya's phenomena, and what each isolation allows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from lakelatch.torture.check.isolation import Key, Observed, find_anomalies

X, Y = ("bank", "x"), ("bank", "y")
Orders = Mapping[Key, Sequence[str]]


def write_skew(serializable: bool) -> tuple[list[Observed], Orders]:
    """Each reads both, and writes one."""
    one = Observed("one", {X: "x0", Y: "y0"}, {X: ("x1",)}, serializable)
    other = Observed("other", {X: "x0", Y: "y0"}, {Y: ("y1",)}, serializable)
    return [one, other], {X: ("x0", "x1"), Y: ("y0", "y1")}


def test_write_skew_passes_as_snapshot_isolation_and_not_as_serializable() -> None:
    assert not find_anomalies(*write_skew(serializable=False))
    (found,) = find_anomalies(*write_skew(serializable=True))
    assert found.kind == "G2" and found.text in (
        "one before other (rw), other before one (rw)",
        "other before one (rw), one before other (rw)",
    )


def test_skew_with_one_that_is_not_serializable_is_allowed() -> None:
    (one, _), orders = write_skew(serializable=False)
    (_, other), _ = write_skew(serializable=True)
    assert not find_anomalies([one, other], orders)


def test_a_reader_that_makes_a_history_not_serializable_is_found_with_them() -> None:
    """Fekete's, O'Neil's and O'Neil's: without the reader there is an order."""
    one = Observed("one", {X: "", Y: ""}, {X: ("x1",)}, serializable=True)
    other = Observed("other", {Y: ""}, {Y: ("y1",)}, serializable=True)
    reader = Observed("reader", {X: "", Y: "y1"}, serializable=True)
    orders = {X: ("x1",), Y: ("y1",)}
    assert not find_anomalies([one, other], orders)
    (found,) = find_anomalies([one, other, reader], orders)
    assert found.kind == "G2"


LONG_FORK = [
    Observed("one", writes={X: ("x1",)}),
    Observed("other", writes={Y: ("y1",)}),
    Observed("first reader", {X: "x1", Y: ""}),
    Observed("second reader", {X: "", Y: "y1"}),
]


@pytest.mark.parametrize(
    ("kind", "transactions", "orders"),
    [
        ("G-nonadjacent", LONG_FORK, {X: ("x1",), Y: ("y1",)}),
        ("G1a", [Observed("one", {X: "never"})], {X: ("x1",)}),
        ("G1a", [Observed("one", writes={X: ("x1",)}, committed=False), Observed("other", {X: "x1"})], {}),
        ("G1b", [Observed("one", writes={X: ("x1", "x2")}), Observed("other", {X: "x1"})], {X: ("x2",)}),
        (
            "G0",
            [Observed("one", writes={X: ("x1",), Y: ("y1",)}), Observed("other", writes={X: ("x2",), Y: ("y2",)})],
            {X: ("x1", "x2"), Y: ("y2", "y1")},
        ),
        (
            "G1c",
            [Observed("one", {Y: "y1"}, {X: ("x1",)}), Observed("other", {X: "x1"}, {Y: ("y1",)})],
            {X: ("x1",), Y: ("y1",)},
        ),
        (  # a lost update
            "G-single",
            [Observed("one", {X: "x0"}, {X: ("x1",)}), Observed("other", {X: "x0"}, {X: ("x2",)})],
            {X: ("x0", "x1", "x2")},
        ),
        (  # half of a transaction
            "G-single",
            [Observed("one", writes={X: ("x1",), Y: ("y1",)}), Observed("other", {X: "x1", Y: ""})],
            {X: ("x1",), Y: ("y1",)},
        ),
        (  # what was acknowledged before it began
            "G-single-realtime",
            [Observed("one", writes={X: ("x1",)}, began=1, ended=2), Observed("other", {X: ""}, began=3, ended=4)],
            {X: ("x1",)},
        ),
    ],
)
def test_a_phenomenon_is_found_under_its_name(kind: str, transactions: list[Observed], orders: Orders) -> None:
    assert [found.kind for found in find_anomalies(transactions, orders)] == [kind]


def test_what_overlaps_may_come_in_either_order() -> None:
    writer = Observed("one", writes={X: ("x1",)}, began=1, ended=4)
    assert not find_anomalies([writer, Observed("other", {X: ""}, began=3, ended=5)], {X: ("x1",)})
    assert not find_anomalies([writer, Observed("other", {X: "x1"}, began=2, ended=3)], {X: ("x1",)})


def test_a_long_history_in_order_is_right_and_one_read_out_of_order_is_found() -> None:
    """Without recursion, and in a moment."""
    count = 3000
    versions = tuple(f"x{number}" for number in range(count))
    history = [
        Observed(f"t{number}", {X: versions[number - 1] if number else ""}, {X: (version,)}, number % 2 == 0)
        for number, version in enumerate(versions)
    ]
    assert not find_anomalies(history, {X: versions})
    late = Observed("late", {X: versions[5], Y: versions[count - 1]})
    twice = [*history[:-1], Observed("both", writes={X: (versions[-1],), Y: (versions[-1],)})]
    (found,) = find_anomalies([*twice, late], {X: versions, Y: (versions[-1],)})
    assert found.kind == "G-single"
