from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import NAMESPACE_URL, uuid5

import pytest

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.storage import MemoryStorage
from lakelatch.timeline.properties_file import BACKUP_PATH, PROPERTIES_PATH, is_table
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig, checksum, load_table_config

CONFIG = TableConfig("t", ("id",), ("day",), "ts", EVENT_TIME, bucket_count=4, hash_fields=("id",))


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Iterator[MemoryStorage]:
    yield MemoryStorage(uuid5(NAMESPACE_URL, request.node.nodeid).hex)


def change(storage: MemoryStorage, **values: str | None) -> None:
    """Rewrites properties by hand; None removes one. Underscores stand for dots."""
    lines = dict(line.split("=", 1) for line in CONFIG.to_properties().decode().splitlines())
    for key, value in values.items():
        name = key.replace("_", ".")
        if value is None:
            del lines[name]
        else:
            lines[name] = value
    storage.put(PROPERTIES_PATH, "\n".join(f"{key}={value}" for key, value in lines.items()).encode())


@pytest.mark.parametrize(
    ("database", "name", "expected"),
    [("default", "v8_empty", 640695144), ("default", "t", 454464632), ("", "t", 498511606)],
)
def test_the_checksum_is_the_one_that_hudi_writes(database: str, name: str, expected: int) -> None:
    assert checksum(database, name) == expected


def test_what_is_written_is_read_back(storage: MemoryStorage) -> None:
    storage.put(PROPERTIES_PATH, CONFIG.to_properties())
    assert load_table_config(storage) == CONFIG
    plain = TableConfig("t", ("a", "b"))
    storage.put(PROPERTIES_PATH, plain.to_properties())
    assert load_table_config(storage) == plain


def test_a_schema_survives_the_escapes_of_the_format(storage: MemoryStorage) -> None:
    schema = '{"type": "record", "name": "r", "doc": "a=b: #!\\\\n é 漢", "fields": []}'
    storage.put(PROPERTIES_PATH, replace(CONFIG, create_schema=schema).to_properties())
    assert load_table_config(storage).create_schema == schema


def test_the_backup_of_an_interrupted_update_is_used(storage: MemoryStorage) -> None:
    assert not is_table(storage)
    storage.put(BACKUP_PATH, CONFIG.to_properties())
    assert is_table(storage)
    assert load_table_config(storage) == CONFIG
    for damaged in (b"", CONFIG.to_properties()[:40], b"\xff\xfe\x00", b"a=\\u12"):
        storage.put(PROPERTIES_PATH, damaged)
        assert load_table_config(storage) == CONFIG


def test_the_main_file_is_preferred_to_the_backup(storage: MemoryStorage) -> None:
    storage.put(BACKUP_PATH, replace(CONFIG, name="older").to_properties())
    storage.put(PROPERTIES_PATH, CONFIG.to_properties())
    assert load_table_config(storage).name == "t"


def test_no_file_at_all_is_no_table(storage: MemoryStorage) -> None:
    with pytest.raises(InvalidRequest, match=r"no table at memory://"):
        load_table_config(storage)


@pytest.mark.parametrize("damaged", [b"", b"\xff\xfe", b"a=\\u12", b"hoodie.table.name=t\n"])
def test_a_damaged_file_without_a_backup_is_an_error(storage: MemoryStorage, damaged: bytes) -> None:
    storage.put(PROPERTIES_PATH, damaged)
    with pytest.raises(CorruptTable, match=r"hoodie\.properties"):
        load_table_config(storage)


@pytest.mark.parametrize(("version", "way_out"), [("11", "upgrade lakelatch"), ("6", "upgrade the table")])
def test_other_table_versions_are_refused_with_the_way_out(storage: MemoryStorage, version: str, way_out: str) -> None:
    change(storage, hoodie_table_version=version)
    with pytest.raises(InvalidRequest, match=rf"hoodie\.table\.version={version}.*{way_out}"):
        load_table_config(storage)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"hoodie_table_version": "nine"}, "hoodie.table.version='nine'"),
        ({"hoodie_timeline_layout_version": "1"}, "layout.version"),
        ({"hoodie_timeline_layout_version": None}, "layout.version"),
        ({"hoodie_table_checksum": "1"}, "hoodie.table.checksum=1"),
        ({"hoodie_table_name": "other"}, "hoodie.table.checksum=454464632"),
    ],
)
def test_contradictions_are_corruption(storage: MemoryStorage, values: dict[str, str | None], said: str) -> None:
    change(storage, **values)
    with pytest.raises(CorruptTable, match=said.replace(".", r"\.")):
        load_table_config(storage)


def test_an_absent_checksum_or_database_is_accepted(storage: MemoryStorage) -> None:
    change(storage, hoodie_table_checksum=None)
    assert load_table_config(storage).name == "t"
    change(storage, hoodie_table_checksum="498511606", hoodie_database_name=None)
    assert load_table_config(storage).database == ""
