"""Tables that Java Hudi wrote read as Java reads them: every row, meta columns included.

`tests/java/make_tables.py` has made them, and noted what Java read. No Java runs here.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from java_hudi import Rows, plain

from lakelatch.engine.read.plan import plan_read

TABLES = Path(__file__).parents[1] / "data" / "java"
NAMES = sorted(file.stem for file in TABLES.glob("*.zip"))

# Where hudi-rs 0.5.0 reads other rows than Java 1.2.0, we read what Java reads, for the reason that is given.
HUDI_RS_DIFFERS: dict[str, str] = {}


def unpacked(name: str, folder: Path) -> str:
    with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
        archive.extractall(folder)
    return str(folder / name)


def by_us(path: str) -> Rows:
    plan = plan_read(path, {"lakelatch.read.meta.columns": True})
    batches = [batch for file_slice in plan.slices for batch in plan.read(file_slice)]
    return plain(pa.Table.from_batches(batches)) if batches else []


def by_hudi_rs(path: str) -> Rows:
    batches = [pa.record_batch(batch) for batch in HudiTableBuilder.from_base_uri(path).build().read()]
    return plain(pa.Table.from_batches(batches)) if batches else []


@pytest.mark.parametrize("name", NAMES)
def test_we_read_what_java_reads(name: str, tmp_path: Path) -> None:
    notes = json.loads((TABLES / f"{name}.json").read_text())
    path = unpacked(name, tmp_path)
    assert by_us(path) == notes["rows"]
    assert ("hudi-rs" in notes) == (name in HUDI_RS_DIFFERS)
    if "hudi-rs" not in notes:
        assert by_hudi_rs(path) == notes["rows"]


def test_the_tables_are_there() -> None:
    assert len(NAMES) >= 25 and set(HUDI_RS_DIFFERS) <= set(NAMES)
