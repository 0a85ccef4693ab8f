"""Conditions and the statistics of a row group: what these do not say rules nothing out."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.format.merge.conditions import Bound, OneOf, row_group_may_hold


def test_a_day_that_python_has_not_rules_nothing_out() -> None:
    days, sink = pa.array([9_000_000, 1], pa.int32()).cast(pa.date32()), io.BytesIO()
    pq.write_table(pa.table({"day": days, "n": [1, 2]}), sink)
    group = pq.ParquetFile(sink).metadata.row_group(0)
    day = pa.scalar(1, pa.int32()).cast(pa.date32()).as_py()
    assert row_group_may_hold(group, [Bound("day", ">", day)])
    assert not row_group_may_hold(group, [Bound("day", ">", day), OneOf("n", (3,))])
