"""What a first write decides by itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from live_table import LiveTable
from table import meanwhile

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.table import making
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.storage import LocalStorage
from lakelatch.storage.contract import Storage
from lakelatch.timeline.properties_file import is_table
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import load_table_config


@pytest.mark.parametrize(
    "folder, name",
    [("flights", "flights"), ("my flights", "my_flights"), ("d=1", "d_1"), ("a:b\\c#d!", "a_b_c_d_"), ("ключ", "ключ")],
)
def test_a_table_is_called_like_its_folder_whatever_that_holds(tmp_path: Path, folder: str, name: str) -> None:
    table = LiveTable(tmp_path / folder)
    table.write([(1, 1, "a")])
    assert load_table_config(table.storage).name == name
    assert table.by_hudi_rs() == table.read() != []


@pytest.mark.parametrize("name", ["my flights", "a=b", "a\tb", ""])
def test_a_name_that_was_asked_for_is_not_changed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"hoodie\.table\.name="):
        LiveTable(tmp_path / "table", hoodie__table__name=name)


def test_a_table_that_others_make_while_it_is_looked_for_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 1}
    table = ArrowTable(tmp_path / "t", options)

    def made_meanwhile(storage: Storage) -> bool:
        monkeypatch.setattr(making, "is_table", is_table)
        ArrowTable(tmp_path / "t", options).upsert(pa.table({"id": ["theirs"]}))
        return is_table(storage)

    monkeypatch.setattr(making, "is_table", made_meanwhile)
    table.upsert(pa.table({"id": ["own"]}))
    assert sorted(table.to_arrow()["id"].to_pylist()) == ["own", "theirs"]


@pytest.mark.parametrize(
    "files, told",
    [
        ((), "nothing is there; check the path, write to it, or make the table with lakelatch.Table.create"),
        (("_delta_log/0.json", "a.parquet"), "it is a table of Delta Lake; read it with spark.read.format('delta')"),
        (("metadata/v1.metadata.json", "data/a.parquet"), "it looks like a table of Iceberg"),
        (("_SUCCESS", "a.snappy.parquet"), "it has plain parquet files ('a.snappy.parquet'); read them with spark"),
        (("a.csv",), "it has plain csv files ('a.csv'); read them with spark.read.format('csv')"),
        (("day=1/a.parquet",), "it has plain folders of partitions (day=1)"),
        ((".hoodie_partition_metadata", "a.parquet"), "it is a partition of a table; name the table's own folder"),
        ((".hoodie/.lakelatch/x",), "it has a folder .hoodie without that file, as before the first commit"),
        (("notes.txt",), "it holds 'notes.txt'; check the path"),
        (None, "it is a file; name the table's folder"),
    ],
)
def test_a_place_without_a_table_is_told_with_what_lies_there(
    tmp_path: Path, files: tuple[str, ...] | None, told: str
) -> None:
    place = tmp_path / "t"
    for name in files or ():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    if files is None:
        place.touch()
    table = ArrowTable(place, {"hoodie.datasource.write.recordkey.field": "id"})
    with pytest.raises(InvalidRequest) as caught:
        table.to_arrow()
    assert f"no table at file://{place} (no .hoodie/hoodie.properties): {told}" in caught.value.message
    if files is None:
        with pytest.raises(InvalidRequest, match=f"{place} is a file, and a table is a folder"):
            table.upsert(pa.table({"id": ["a"]}))
    elif files and files[0] != ".hoodie/.lakelatch/x":
        with pytest.raises(InvalidRequest, match="is not empty and is no table") as caught:
            table.upsert(pa.table({"id": ["a"]}))
        assert told.partition(";")[0] in caught.value.message


def test_the_loser_of_a_first_write_is_rolled_back_by_itself(tmp_path: Path) -> None:
    """It finds at its place in the log, with the lock, that others have made the table; the rollback needs the lock."""
    path = str(tmp_path / "t")
    options = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.write.lock.provider": "in_process",
        "hoodie.write.lock.wait_time_ms": "2000",
        "lakelatch.lock.elision": "off",
    }
    first = pa.table({"id": ["a"], "other": [1]})
    with (
        meanwhile(lambda: ArrowTable(path, options).upsert(first), "write.before_rows"),
        pytest.raises(WriteConflict),
    ):
        ArrowTable(path, options).upsert(pa.table({"id": ["b"], "v": ["x"]}))
    timeline = Snapshot.load(LocalStorage(path))
    assert not timeline.pending and [one.action for one in timeline.by_completion] == ["deltacommit", "rollback"]
