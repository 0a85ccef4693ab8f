"""What other writers' properties may say that cannot be read right here: each is refused by its name and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelatch.errors import CorruptTable, InvalidRequest, LakelatchError
from lakelatch.storage.memory import MemoryStorage
from lakelatch.timeline.properties_file import BACKUP_PATH, PROPERTIES_PATH
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig, load_table_config

# As Hudi 1.2.0 and 1.0.2 write them.
V9 = {
    "hoodie.table.name": "t",
    "hoodie.table.version": "9",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
    "hoodie.timeline.history.path": "history",
    "hoodie.table.format": "native",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.multiple.base.file.formats.enable": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.table.checksum": "498511606",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.timeline.timezone": "UTC",
}
V8 = {
    **{
        name: value for name, value in V9.items() if name not in ("hoodie.table.ordering.fields", "hoodie.table.format")
    },
    "hoodie.table.version": "8",
    "hoodie.table.precombine.field": "ts",
    "hoodie.table.partition.fields": "",
    "hoodie.record.merge.strategy.id": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    "hoodie.compaction.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
}


def put(storage: MemoryStorage, values: dict[str, str], path: str = PROPERTIES_PATH) -> None:
    storage.put(path, "\n".join(f"{name}={value}" for name, value in values.items()).encode())


@pytest.fixture
def storage(tmp_path: Path) -> MemoryStorage:
    return MemoryStorage(str(tmp_path))


@pytest.mark.parametrize("values", [V8, V9])
def test_plain_tables_of_both_versions(storage: MemoryStorage, values: dict[str, str]) -> None:
    put(storage, values)
    config = load_table_config(storage)
    config.check_mergeable()
    assert (config.ordering_field, config.merge_mode, config.partition_fields) == ("ts", EVENT_TIME, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.table.multiple.base.file.formats.enable", "true"),
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.table.format", "iceberg"),
        ("hoodie.timeline.path", "elsewhere"),
        ("hoodie.bootstrap.base.path", "/data/old"),
    ],
)
def test_what_would_be_missing_is_refused(storage: MemoryStorage, name: str, value: str) -> None:
    put(storage, {**V9, name: value})
    with pytest.raises(InvalidRequest, match=rf"hoodie.properties of .*{name}={value}.*Read .* with Hudi, or copy it"):
        load_table_config(storage)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({**V9, "hoodie.record.merge.mode": "CUSTOM"}, "hoodie.record.merge.mode=CUSTOM"),
        ({**V9, "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, "partial.update.mode=IGNORE_DEFAULTS"),
        ({**V9, "hoodie.record.merge.property.hoodie.payload.delete.field": "Op"}, "hoodie.payload.delete.field=Op"),
        ({**V9, "hoodie.table.ordering.fields": "ts,seq"}, "hoodie.table.ordering.fields=ts,seq"),
        (
            {name: value for name, value in V8.items() if name != "hoodie.record.merge.mode"}
            | {"hoodie.compaction.payload.class": "org.apache.hudi.common.model.PartialUpdateAvroPayload"},
            "hoodie.compaction.payload.class=org.apache.hudi.common.model.PartialUpdateAvroPayload",
        ),
    ],
)
def test_merges_that_are_not_known_are_refused(storage: MemoryStorage, values: dict[str, str], named: str) -> None:
    """Not before there is something to merge: base files hold rows that were merged by whoever wrote them."""
    put(storage, values)
    config = load_table_config(storage)
    with pytest.raises(InvalidRequest, match=named.replace(".", r"\.")):
        config.check_mergeable()


@pytest.mark.parametrize("version", ["7", "11", "99"])
def test_unknown_versions(storage: MemoryStorage, version: str) -> None:
    put(storage, {**V9, "hoodie.table.version": version})
    with pytest.raises(InvalidRequest, match=rf"hoodie\.table\.version={version}, and this version .* knows 8, 9"):
        load_table_config(storage)


def refused_as_it_is(storage: MemoryStorage, error: type[LakelatchError], said: str) -> None:
    before = {path: storage.read(path) for path in storage.walk("")}
    with pytest.raises(error, match=said):
        load_table_config(storage)
    assert {path: storage.read(path) for path in storage.walk("")} == before


@pytest.mark.parametrize(
    "left", ["20240101000000000.commit", "20240101000000.deltacommit.requested", "20240101000000000.inflight"]
)
def test_a_timeline_of_version_6_beside_properties_of_version_9(storage: MemoryStorage, left: str) -> None:
    put(storage, V9)
    storage.put(f".hoodie/{left}", b"")
    refused_as_it_is(
        storage, CorruptTable, rf"version=9, and \.hoodie/{left} .* upgrade was interrupted.*upgrade_table"
    )


def test_properties_of_two_versions(storage: MemoryStorage) -> None:
    put(storage, V9)
    put(storage, V8, BACKUP_PATH)
    refused_as_it_is(storage, CorruptTable, r"version=9, and 8 in \.hoodie/hoodie\.properties\.backup")
    put(storage, {**V9, "hoodie.table.timeline.timezone": "LOCAL"}, BACKUP_PATH)
    assert load_table_config(storage).timezone == "UTC"  # an updater that did not clean up behind itself


def test_version_9_with_the_layout_of_version_6(storage: MemoryStorage) -> None:
    put(storage, {**V9, "hoodie.timeline.layout.version": "1"})
    refused_as_it_is(storage, CorruptTable, r"no hoodie\.timeline\.layout\.version=2")


@pytest.mark.parametrize(
    ("values", "prefixed"),
    [
        ({}, False),
        ({"hoodie.table.keygenerator.type": "SIMPLE"}, False),
        ({"hoodie.table.keygenerator.type": "COMPLEX"}, True),
        ({"hoodie.table.keygenerator.type": "COMPLEX", "hoodie.table.recordkey.fields": "id,id2"}, False),
        ({"hoodie.table.keygenerator.type": "COMPLEX", "hoodie.table.version": "8"}, None),
        (
            {
                "hoodie.table.keygenerator.type": "COMPLEX",
                "hoodie.table.version": "8",
                "hoodie.table.complex.keygenerator.encoding": "VALUE_ONLY",
            },
            False,
        ),
    ],
)
def test_how_java_writes_keys_of_one_field(storage: MemoryStorage, values: dict[str, str], prefixed: bool) -> None:
    put(storage, {**V9, **values})
    assert load_table_config(storage).prefixed_keys is prefixed


def test_keys_of_one_field_in_tables_of_ours(storage: MemoryStorage) -> None:
    """Tables from before the encoding was written down have plain ones, and stay so."""
    old = TableConfig("t", ("id",), ("a", "b"), bucket_count=2)
    storage.put(PROPERTIES_PATH, old.to_properties())
    assert load_table_config(storage).prefixed_keys is False
    new = TableConfig("t", ("id",), ("a", "b"), bucket_count=2, key_encoding="FIELD_PREFIXED")
    storage.put(PROPERTIES_PATH, new.to_properties())
    assert load_table_config(storage).prefixed_keys is True
    storage.put(PROPERTIES_PATH, new.to_properties().replace(b"FIELD_PREFIXED", b"VALUE_ONLY"))
    with pytest.raises(CorruptTable, match=r"lakelatch\.table\.checksum"):
        load_table_config(storage)
