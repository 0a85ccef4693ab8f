"""That rows cross to Java and back with their types, and that a dead process is told and begun anew."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from java_hudi import ORDERED, SHARED, JavaHudi, JavaHudiError, table_of

FULL = {
    "id": 1,
    "ts": datetime(2024, 2, 29, 23, 59, 59, 999999),
    "d": date(1969, 12, 31),
    "n": Decimal("-1.50"),
    "f": 0.5,
    "b": True,
    "x": b"\0\xff",
    "l": [1, 2],
    "m": [("k", 1)],
    "s": {"a": 1, "b": "é"},
}
TYPED = table_of(
    "id long, ts timestamp, d date, n decimal, f float, b boolean, x binary, l list, m map, s struct",
    [tuple(FULL.values()), (2, *[None] * 9)],
    n=pa.decimal128(10, 2),
    l=pa.list_(pa.int64()),
    m=pa.map_(pa.string(), pa.int32()),
    s=pa.struct([("a", pa.int32()), ("b", pa.string())]),
)


def test_rows_come_back_as_they_were_sent(java: JavaHudi, tmp_path: Path) -> None:
    path = str(tmp_path / "trips")
    java.write(path, TYPED, SHARED)
    rows = java.read(path)
    assert {name: rows[0][name] for name in FULL} == FULL
    assert {rows[1][name] for name in FULL} == {2, None}
    assert rows[0]["_hoodie_record_key"] == "1"


def test_errors_and_procedures(java: JavaHudi, tmp_path: Path) -> None:
    path = str(tmp_path / "trips")
    with pytest.raises(JavaHudiError, match="TableNotFoundException"):
        java.read(path)
    java.write(path, table_of("id long, ts long", [(1, 1)]))
    (commit,) = java.sql(f"call show_commits(table => '{java.register(path)}')")
    assert commit["action"] == "deltacommit"


def test_a_killed_writer_leaves_an_instant_behind_and_the_next_command_finds_a_new_process(
    java: JavaHudi, tmp_path: Path
) -> None:
    path = str(tmp_path / "trips")
    java.write(path, table_of("id long, ts long", [(1, 1)]))
    name = java.write_and_die(path, table_of("id long, ts long", [(2, 2)]), SHARED | ORDERED)
    timeline = Path(path) / ".hoodie" / "timeline"
    assert not list(timeline.glob(f"{name.partition('.')[0]}_*"))
    assert [row["id"] for row in java.read(path)] == [1]
