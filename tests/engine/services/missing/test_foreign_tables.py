"""Tables that Java has written, cleaned, archived, rolled back and restored: nothing of them is missing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import lakelatch
from lakelatch.engine.read.plan import plan_read

TABLES = sorted((Path(__file__).parents[3] / "data/java").glob("*.zip"))


@pytest.mark.parametrize("archive", TABLES, ids=[path.stem for path in TABLES])
def test_nothing_is_missing(archive: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(archive).extractall(tmp_path)
    (properties,) = [one for one in tmp_path.rglob("hoodie.properties") if "metadata" not in one.parts]
    path = str(properties.parents[1])
    found = lakelatch.verify(path, deep=True)
    assert found.findings == () and found.files > 0
    assert len(plan_read(path, {"lakelatch.read.verify": "true"}).slices) == len(plan_read(path).slices)
