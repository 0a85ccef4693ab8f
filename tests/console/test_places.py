"""A command that is given a path at which there is no table names it, and says what is there instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelatch.console.main import main
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.table_config import PROPERTIES_PATH, TableConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a table, a file, and a folder of files."""
    for name in ("flights", "trips"):
        table = LocalStorage(str(tmp_path / "tables" / name))
        table.put_if_absent(PROPERTIES_PATH, TableConfig("t", ("id",), bucket_count=1).to_properties())
    (tmp_path / "tables" / "flights" / "2026" / "11").mkdir(parents=True)
    (tmp_path / "plain" / "sub").mkdir(parents=True)
    for number in range(7):
        (tmp_path / "plain" / f"{number}.parquet").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("no/such/table", "Nothing is there"),
        ("tables", "Below it are tables: flights, trips"),
        ("tables/flights/2026/11", "It is within the table at file://{0}/tables/flights"),
        ("tables/flights/.hoodie/", "It is within the table at file://{0}/tables/flights"),
        ("plain", "There is sub/, 0.parquet, 1.parquet, 2.parquet, 3.parquet and 3 more"),
        ("plain/0.parquet", "It is a file"),
    ],
)
@pytest.mark.parametrize("command", ["timeline", "clean", "savepoint create", "locks"])
def test_the_path_is_named_and_what_is_there(
    command: str, path: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert main([*command.split(), str(folder / path)]) == 1
    text = capsys.readouterr().err
    assert f"there is no table at file://{folder / path}" in text and told.format(folder) in text
    assert sorted(folder.rglob("*")) == before


def test_a_service_says_it_of_each_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["service", "run", "--once", "--cores", "0", str(folder / "tables")]) == 1
    assert "Below it are tables: flights, trips" in capsys.readouterr().out


def test_other_errors_stay_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", str(folder / "tables"), "-o", "no.such.option=1"]) == 1
    assert "Below it" not in capsys.readouterr().err
