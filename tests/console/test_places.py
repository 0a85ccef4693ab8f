"""A command that is given a path at which there is no table names it, and says once what is there instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelatch.console.main import main
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import TableConfig

NOTHING = "check the path, write to it, or make the table with lakelatch.Table.create"


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
        ("no/such/table", f"nothing is there; {NOTHING}"),
        ("tables", "it holds 'flights'; check the path. Below it are tables: flights, trips"),
        (
            "tables/flights/2026/11",
            f"nothing is there; {NOTHING}. It is within the table at file://{{0}}/tables/flights",
        ),
        ("tables/flights/.hoodie/", "check the path. It is within the table at file://{0}/tables/flights"),
        ("plain", "it has plain parquet files ('0.parquet'); read them with spark.read.format('parquet')"),
        ("plain/0.parquet", "it is a file; name the table's folder"),
    ],
)
@pytest.mark.parametrize("command", ["timeline", "clean", "savepoint create", "locks", "verify"])
def test_the_path_is_named_and_what_is_there(
    command: str, path: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert main([*command.split(), str(folder / path)]) == 1
    text = capsys.readouterr().err
    assert f"there is no table at file://{folder / path}" in text and told.format(folder) in text
    assert text.count(str(folder)) == 1 + told.count("{0}") and "There is " not in text
    assert text.lower().count("nothing is there") == told.count("nothing is there")
    assert text.lower().count("it is a file") == told.count("it is a file")
    assert sorted(folder.rglob("*")) == before


def test_a_service_says_it_of_each_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["service", "run", "--once", "--cores", "0", str(folder / "tables")]) == 1
    assert "Below it are tables: flights, trips" in capsys.readouterr().out


def test_other_errors_stay_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", str(folder / "tables"), "-o", "no.such.option=1"]) == 2
    assert "Below it" not in capsys.readouterr().err
