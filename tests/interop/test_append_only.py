"""Tables without a record key: hudi-rs reads what we write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelatch.engine.arrow import ArrowTable

pytestmark = pytest.mark.spark
ROWS = pa.table({"day": ["a", "b", "a"], "x": [1, 2, 1]})


@pytest.mark.parametrize("options", [{}, {"hoodie.datasource.write.partitionpath.field": "day"}])
def test_hudi_rs_reads_what_we_write(
    options: dict[str, object],
    tmp_path: Path,
    by_lakelatch: Callable[..., list[dict[str, Any]]],
    by_hudi_rs: Callable[..., list[dict[str, Any]]],
) -> None:
    table = ArrowTable(tmp_path / "events", options)
    for count in (3, 6):
        table.insert(ROWS)
        assert by_lakelatch(table.path) == by_hudi_rs(table.path) and len(by_hudi_rs(table.path)) == count
    table.overwrite(ROWS.slice(0, 1), partitions="touched" if options else "all")
    assert by_lakelatch(table.path) == by_hudi_rs(table.path) and len(by_hudi_rs(table.path)) == (3 if options else 1)
