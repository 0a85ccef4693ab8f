"""A delete at an ordering value of a 32-bit 0, which Hudi takes for none, is one thing in every form."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelatch.engine.arrow import ArrowTable

Read = Callable[..., list[dict[str, Any]]]
FLAG = "_hoodie_is_deleted"
KINDS = {"int": pa.int32(), "date": pa.date32(), "long": pa.int64()}


class Deleting:
    """A table in which each row has its number as value; rows are deleted by operation, or by a flag."""

    def __init__(self, path: Path, kind: str, table_type: str, form: str, by_hudi_rs: Read) -> None:
        self.kind, self.form, self._by_hudi_rs = kind, form, by_hudi_rs
        options = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.bucket.index.num.buckets": 1,
            "hoodie.datasource.write.table.type": table_type,
        }
        self.table = ArrowTable(path, options)

    def put(self, *rows: tuple[int, int], gone: bool | None = None) -> None:
        ids, times = zip(*rows, strict=True)
        at = [date(1970, 1, 1) + timedelta(time) for time in times] if self.kind == "date" else list(times)
        data = pa.table({"id": pa.array(ids, pa.int64()), "ts": pa.array(at, KINDS[self.kind]), "v": list(times)})
        flagged = data.append_column(FLAG, pa.array([bool(gone)] * len(ids)))
        if gone and self.form == "operation":
            self.table.delete(data)
        elif self.form == "column" or (gone and self.form == "flag"):
            self.table.upsert(flagged)
        else:
            self.table.upsert(data)

    def values(self) -> dict[int, int]:
        found: pa.Table = self.table.to_arrow()
        return dict(sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)))

    def by_hudi_rs(self) -> dict[int, int]:
        return {row["id"]: row["v"] for row in self._by_hudi_rs(str(self.table.path))}


@pytest.fixture(params=["MERGE_ON_READ", "COPY_ON_WRITE"])
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("form", ["operation", "flag", "column"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_delete_at_zero(tmp_path: Path, by_hudi_rs: Read, table_type: str, kind: str, form: str) -> None:
    """Of 32 bits it wins over all that was written before, and loses to all that comes; of 64 bits it is a value."""
    made = Deleting(tmp_path / "t", kind, table_type, form, by_hudi_rs)
    made.put((1, 5), (2, 5), (3, -5), (4, 5))
    made.put((1, 0), (3, 0), gone=True)
    made.put((2, 3), gone=True)  # older than the row, whatever the type is
    expected = {2: 5, 4: 5} if kind != "long" else {1: 5, 2: 5, 4: 5}
    if (kind, form, table_type) == ("date", "column", "MERGE_ON_READ"):
        assert (made.values(), made.by_hudi_rs()) == (expected, {**expected, 1: 5})  # which compares the flagged row
    else:
        assert made.values() == made.by_hudi_rs() == expected
    made.put((1, -7), (3, -7))
    if kind != "long":
        expected |= {1: -7, 3: -7}
    elif table_type == "COPY_ON_WRITE":
        expected[3] = -7  # these tables forget a delete
    assert made.values() == expected
