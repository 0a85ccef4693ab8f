"""`lakelatch adopt` on tables that Java Hudi wrote: what it says of them, what it sets, and what it refuses."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bare_table import provider_of
from grouped_table import D, GroupedTable

from lakelatch.console.main import main
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.table import check_writable
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.storage.local import LocalStorage
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.properties_file import BACKUP_PATH, PROPERTIES_PATH
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.table_config import load_table_config

DATA = Path(__file__).parents[1] / "data"
BUCKETS = {"8": "java/mor_v8", "9": "java/mor_local_time"}
SET = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.num.buckets": "2",
}
Adopt = Callable[..., tuple[int, Any]]


@pytest.fixture
def unzip(tmp_path: Path) -> Callable[[str], Path]:
    def find(name: str) -> Path:
        with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
            archive.extractall(tmp_path, [entry for entry in archive.namelist() if "__MACOSX" not in entry])
        (found,) = (path for path in tmp_path.iterdir() if (path / ".hoodie").is_dir())
        return found

    return find


@pytest.fixture
def adopt(capsys: pytest.CaptureFixture[str]) -> Adopt:
    def call(path: Path, *more: str) -> tuple[int, Any]:
        code = main(["adopt", str(path), "--json", *more])
        return code, json.loads(capsys.readouterr().out)

    return call


def set_property(path: Path, name: str, value: str) -> None:
    update_properties(LocalStorage(str(path)), {name: value})


@pytest.mark.parametrize("version", ["8", "9"])
def test_a_bucket_table_of_java_s_is_made_writable(version: str, unzip: Callable[[str], Path], adopt: Adopt) -> None:
    path = unzip(BUCKETS[version])
    before, schema = load_table_config(LocalStorage(str(path))), open_table(LocalStorage(str(path))).schema
    with pytest.raises(InvalidRequest):
        check_writable(before)
    rows = sum(batch.num_rows for found in plan_read(str(path)).slices for batch in plan_read(str(path)).read(found))
    checksum = path / ".hoodie" / ".hoodie.properties.crc"
    checksum.write_bytes(b"crc\0 of the file as Java wrote it, which Java verifies")

    code, found = adopt(path, "--yes")

    expected = SET if version == "8" else {**SET, "hoodie.table.timeline.timezone": "UTC"}
    assert (code, found["set"], found["write"], found["settings"]) == (0, True, True, expected)
    assert found["java"]["hoodie.bucket.index.num.buckets"] == "2"
    assert ("hoodie.write.table.version" in found["java"]) is (version == "8")
    opened = open_table(LocalStorage(str(path)))
    check_writable(opened.config)
    assert opened.config.raw == {**before.raw, **expected} and opened.schema == schema
    assert rows == sum(
        batch.num_rows for found in plan_read(str(path)).slices for batch in plan_read(str(path)).read(found)
    )
    assert not (path / BACKUP_PATH).exists() and not checksum.exists()
    code, found = adopt(path)
    assert (code, found["set"], found["write"], found["settings"]) == (0, False, True, {})


def test_nothing_is_set_unless_somebody_agrees(
    unzip: Callable[[str], Path], adopt: Adopt, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unzip(BUCKETS["9"])
    before = (path / PROPERTIES_PATH).read_bytes()
    code, found = adopt(path)
    assert (code, found["set"], found["write"]) == (1, False, False)
    for answer, expected in (("", 1), ("no", 1), ("y", 0)):
        assert (path / PROPERTIES_PATH).read_bytes() == before
        monkeypatch.setattr("builtins.input", lambda answer=answer: answer)
        assert main(["adopt", str(path)]) == expected
        shown = capsys.readouterr().out
        assert "hoodie.bucket.index.num.buckets=2" in shown and "hoodie.metadata.enable=false" in shown
    assert load_table_config(LocalStorage(str(path))).bucket_count == 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("java/mor_clustered", "hoodie.index.type=BUCKET"),
        ("java/mor_metadata_table", "hoodie.metadata.enable=false"),
        ("java/mor_writer_killed", "deltacommit.inflight"),
        ("mor_v8_trips_8i3u1d", "hoodie.metadata.enable=false"),
        ("mor_v9_txns_nonpart", "hoodie.index.type=BUCKET"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_reason(
    name: str, reason: str, unzip: Callable[[str], Path], adopt: Adopt
) -> None:
    path = unzip(name)
    before = (path / PROPERTIES_PATH).read_bytes()
    code, found = adopt(path, "--yes")
    assert (code, found["read"], found["write"], found["set"]) == (1, True, False, False)
    assert any(reason in refusal for refusal in found["refusals"])
    assert (path / PROPERTIES_PATH).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hoodie.table.keygenerator.type", "TIMESTAMP"),
        ("hoodie.record.merge.mode", "CUSTOM"),
        ("hoodie.table.ordering.fields", "ts,v"),
        ("hoodie.table.recordkey.fields", ""),
        ("hoodie.table.metadata.partitions.inflight", "files"),
    ],
)
def test_a_property_that_is_beyond_us_is_named(
    name: str, value: str, unzip: Callable[[str], Path], adopt: Adopt
) -> None:
    path = unzip(BUCKETS["9"])
    set_property(path, name, value)
    code, found = adopt(path, "--yes")
    assert (code, found["set"]) == (1, False)
    assert any(name in refusal or f"({value})" in refusal for refusal in found["refusals"])


def test_a_wrong_number_of_buckets_or_wrong_fields_are_refused(unzip: Callable[[str], Path], adopt: Adopt) -> None:
    path = unzip(BUCKETS["9"])
    for more, expected in (
        (("--buckets", "3"), "3 buckets of id"),
        (("--hash-field", "v"), "only fields of the record key (id)"),
    ):
        code, found = adopt(path, "--yes", *more)
        assert code == 1 and any(expected in refusal for refusal in found["refusals"]), found
    assert adopt(path, "--yes", "--buckets", "2")[0] == 0
    code, found = adopt(path, "--yes", "--buckets", "4")
    assert code == 1 and "cannot change later" in found["refusals"][0]


def test_a_table_of_ours_needs_nothing(tmp_path: Path, adopt: Adopt) -> None:
    table = GroupedTable(tmp_path / "grouped")
    table.write(D, {"id": 1, "dt": 1, "d": "a"})
    open_one = table.begin()
    code, found = adopt(table.root)
    assert (code, found["write"], found["settings"], found["refusals"]) == (0, True, {}, [])
    open_one.abort()


def test_two_groups_of_one_bucket_are_refused(unzip: Callable[[str], Path], adopt: Adopt) -> None:
    path = unzip(BUCKETS["9"])
    base = next((path / "q").glob("00000000-*.parquet"))
    base.with_name(base.name.replace("00000000-", "00000000-ffff", 1)).write_bytes(base.read_bytes())
    code, found = adopt(path, "--yes")
    assert (code, found["set"]) == (1, False)
    assert "bucket 0" in " ".join([found["unreadable"], *found["refusals"]])


def test_a_table_at_work_is_left_alone(unzip: Callable[[str], Path], adopt: Adopt) -> None:
    path = unzip(BUCKETS["9"])
    name = "20991122140530000.deltacommit"
    (path / TIMELINE_FOLDER / f"{name}.inflight").write_bytes(b"")
    code, found = adopt(path, "--yes")
    assert code == 1 and f"{name}.inflight" in found["refusals"][0]


def test_local_times_ahead_of_utc_are_waited_for(unzip: Callable[[str], Path], adopt: Adopt) -> None:
    path = unzip(BUCKETS["9"])
    done = max((path / TIMELINE_FOLDER).glob("*_*.deltacommit"))
    done.rename(done.with_name(f"{done.name.partition('_')[0]}_20991122140524809.deltacommit"))
    code, found = adopt(path, "--yes")
    assert code == 1 and "20991122140524809" in found["refusals"][0] and "timezone=LOCAL" in found["refusals"][0]


def test_the_table_s_lock_is_waited_for(unzip: Callable[[str], Path], adopt: Adopt) -> None:
    path = unzip(BUCKETS["9"])
    provider = provider_of(LocalStorage(str(path)))
    with provider.acquire(TABLE_KEY, 5):
        code, found = adopt(path, "--yes", "-o", "hoodie.write.lock.wait_time_ms=50")
    provider.close()
    assert code == 3 and found["error"] == "LAKELATCH-LOCK-TIMEOUT"


@pytest.mark.parametrize("path", [BACKUP_PATH, PROPERTIES_PATH])
def test_an_update_that_fails_half_way_leaves_a_table_and_is_completed_by_the_next(
    path: str, unzip: Callable[[str], Path]
) -> None:
    storage = LocalStorage(str(unzip(BUCKETS["9"])))
    before = load_table_config(storage)
    with pytest.raises(Unavailable):
        update_properties(FaultyStorage(storage, [Fault(UNAVAILABLE, "put", path)]), SET)
    assert load_table_config(storage) == before
    with pytest.raises(Unavailable):
        update_properties(FaultyStorage(storage, [Fault(UNAVAILABLE, "delete", BACKUP_PATH)]), SET)
    assert load_table_config(storage).bucket_count == 2
    update_properties(storage, SET)
    assert not storage.exists(BACKUP_PATH) and load_table_config(storage).raw == {**before.raw, **SET}
