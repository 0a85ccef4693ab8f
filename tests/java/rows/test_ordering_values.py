"""Ordering values that are compared otherwise than their types suggest.

A delete at a 32-bit 0 (or on 1970-01-01) counts in Java as one without an ordering value, in every form of ours.
That is what Java merges: base files of tables that are copied on write have no deletes.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from java_hudi import OURS, JavaHudi

from lakelatch.engine.arrow import ArrowTable

FLAG = "_hoodie_is_deleted"


@pytest.mark.parametrize("form", ["operation", "column"])
@pytest.mark.parametrize("kind", ["int", "date"])
def test_a_delete_at_zero(java: JavaHudi, tmp_path: Path, kind: str, form: str) -> None:
    table = ArrowTable(tmp_path / "trips", OURS)

    def rows(*pairs: tuple[int, int], gone: bool = False) -> pa.Table:
        ids, times = zip(*pairs, strict=True)
        at = pa.array(times, pa.int32())
        if kind == "date":
            at = pa.array([date(1970, 1, 1) + timedelta(time) for time in times])
        found = pa.table({"id": pa.array(ids, pa.int64()), "ts": at, "v": pa.array(times, pa.int64())})
        return found.append_column(FLAG, pa.array([gone] * len(ids))) if form == "column" else found

    def agreed() -> dict[int, int]:
        ours = table.to_arrow()
        found = dict(zip(ours["id"].to_pylist(), ours["v"].to_pylist(), strict=True))
        assert {row["id"]: row["v"] for row in java.read(str(table.path))} == found
        return found

    table.upsert(rows((1, 5), (2, 5), (3, -5)))
    deletes = rows((1, 0), (3, 0), gone=True)
    older = rows((2, 3), gone=True)
    for one in (deletes, older):
        table.upsert(one) if form == "column" else table.delete(one)
    assert agreed() == {2: 5}
    table.upsert(rows((1, -7)))
    assert agreed() == {1: -7, 2: 5}


def test_negative_zero_is_less_than_zero(java: JavaHudi, tmp_path: Path) -> None:
    table = ArrowTable(tmp_path / "trips", OURS)
    for pairs in (((1, 0.0), (2, -0.0), (3, 0.0)), ((1, -0.0), (2, 0.0), (3, 0.0))):
        ids, times = zip(*pairs, strict=True)
        names = [f"{key} at {time}" for key, time in pairs]
        table.upsert(pa.table({"id": pa.array(ids, pa.int64()), "ts": pa.array(times, pa.float64()), "v": names}))
    table.delete(pa.table({"id": [1, 3], "ts": [-0.0, 0.0]}))
    expected = {1: "1 at 0.0", 2: "2 at 0.0"}
    found = table.to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    assert {row["id"]: row["v"] for row in java.read(str(table.path))} == expected
