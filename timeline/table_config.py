"""The table's own configuration: `.hoodie/hoodie.properties`, as Hudi writes and checks it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import javaproperties

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.column_groups import COLUMN_GROUPS, ColumnGroup, parse_column_groups, show_column_groups

PROPERTIES_PATH = ".hoodie/hoodie.properties"
BACKUP_PATH = ".hoodie/hoodie.properties.backup"
_OWN_CHECKSUM = "lakelatch.table.checksum"

EVENT_TIME = "EVENT_TIME_ORDERING"
COMMIT_TIME = "COMMIT_TIME_ORDERING"
MERGE_ON_READ = "MERGE_ON_READ"
_READABLE_VERSIONS = (8, 9)
_VERSION = 9
_NUMBER_DIGITS_MOST = 9


@dataclass(frozen=True)
class TableConfig:
    """What every reader and writer of a table must agree on. Fixed when the table is made.

    `bucket_count` and `hash_fields` are None on tables that another writer made: Hudi keeps them in no file.
    """

    name: str
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...] = ()
    ordering_field: str | None = None
    merge_mode: str = COMMIT_TIME
    table_type: str = MERGE_ON_READ
    database: str = "default"
    version: int = _VERSION
    hive_style_partitioning: bool = False
    url_encode_partitioning: bool = False
    bucket_count: int | None = None
    hash_fields: tuple[str, ...] | None = None
    column_groups: tuple[ColumnGroup, ...] = ()
    create_schema: str | None = None
    timezone: str = "UTC"
    metadata_partitions: str = ""
    raw: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def to_properties(self) -> bytes:
        """The file's bytes. Other readers take values as they stand, so only the schema holds escapes."""
        values = {
            "hoodie.table.name": self.name,
            "hoodie.database.name": self.database,
            "hoodie.table.type": self.table_type,
            "hoodie.table.version": str(self.version),
            "hoodie.table.initial.version": str(self.version),
            "hoodie.timeline.layout.version": "2",
            "hoodie.timeline.path": "timeline",
            "hoodie.timeline.history.path": "history",
            "hoodie.archivelog.folder": "archived",
            "hoodie.table.format": "native",
            "hoodie.table.checksum": str(checksum(self.database, self.name)),
            "hoodie.table.recordkey.fields": ",".join(self.record_key_fields),
            "hoodie.table.keygenerator.type": self._key_generator(),
            "hoodie.record.merge.mode": self.merge_mode,
            "hoodie.populate.meta.fields": "true",
            "hoodie.datasource.write.drop.partition.columns": "false",
            "hoodie.datasource.write.hive_style_partitioning": _text(self.hive_style_partitioning),
            "hoodie.datasource.write.partitionpath.urlencode": _text(self.url_encode_partitioning),
            "hoodie.table.timeline.timezone": self.timezone,
        }
        if self.partition_fields:
            values["hoodie.table.partition.fields"] = ",".join(self.partition_fields)
        if self.ordering_field:
            values["hoodie.table.ordering.fields"] = self.ordering_field
        if self.column_groups:
            values[COLUMN_GROUPS] = show_column_groups(self.column_groups)
        if self.create_schema:
            values["hoodie.table.create.schema"] = self.create_schema
        if self.bucket_count is not None:
            values["hoodie.index.type"] = "BUCKET"
            values["hoodie.index.bucket.engine"] = "SIMPLE"
            values["hoodie.bucket.index.num.buckets"] = str(self.bucket_count)
            values["hoodie.bucket.index.hash.field"] = ",".join(self.hash_fields or self.record_key_fields)
        values[_OWN_CHECKSUM] = self.own_checksum()
        return javaproperties.dumps(values, sort_keys=True, timestamp=False).encode("utf-8")

    def own_checksum(self) -> str:
        """Of all that decides which rows a reader sees. It is of values: Hudi's tools may write the file anew."""
        groups = show_column_groups(self.column_groups)
        hash_fields = None if self.bucket_count is None else self.hash_fields or self.record_key_fields
        decisive = (
            *(self.record_key_fields, self.partition_fields, self.ordering_field, self.merge_mode, groups),
            *(self.hive_style_partitioning, self.url_encode_partitioning, self.bucket_count, hash_fields),
            *(self.create_schema, self.table_type, self.timezone),
        )
        return f"{zlib.crc32(json.dumps(decisive).encode()):08x}"

    def _key_generator(self) -> str:
        if not self.partition_fields:
            return "NON_PARTITION"
        return "SIMPLE" if len(self.record_key_fields) == len(self.partition_fields) == 1 else "COMPLEX"


def checksum(database: str, name: str) -> int:
    """CRC-32 of `<database>.<name>`, as Hudi's readers verify it; an absent database is empty."""
    return zlib.crc32(f"{database}.{name}".encode("utf-8", "replace"))


def is_table(storage: Storage) -> bool:
    """Whether there is a table here (whole or with a left-over backup of its properties)."""
    return storage.exists(PROPERTIES_PATH) or storage.exists(BACKUP_PATH)


def load_table_config(storage: Storage) -> TableConfig:
    """The table's configuration, for reading it.

    Errors: `InvalidRequest` where there is no table or one that this version cannot read, `CorruptTable` where the
    file is not what its writer wrote.
    """
    values = _read_properties(storage)
    version = _integer(values, "hoodie.table.version", 0)
    if version not in _READABLE_VERSIONS:
        newer = version > max(_READABLE_VERSIONS)
        raise InvalidRequest(
            f"{PROPERTIES_PATH} of {storage.uri} has hoodie.table.version={version}, and this version of lakelatch "
            f"knows {', '.join(map(str, _READABLE_VERSIONS))}: "
            + ("upgrade lakelatch" if newer else "upgrade the table with Hudi's upgrade command")
        )
    if values.get("hoodie.timeline.layout.version") != "2":
        raise CorruptTable(f"{PROPERTIES_PATH} has no hoodie.timeline.layout.version=2, as its table version demands")
    config = _parse(values, version)
    stored = values.get("hoodie.table.checksum")
    if stored is not None and stored != str(checksum(values.get("hoodie.database.name", ""), config.name)):
        raise CorruptTable(
            f"{PROPERTIES_PATH} has hoodie.table.checksum={stored}, which is not that of "
            f"{config.database}.{config.name}: restore the file from {BACKUP_PATH} or a copy"
        )
    own = values.get(_OWN_CHECKSUM)
    if own is not None and own != config.own_checksum():
        raise CorruptTable(
            f"{PROPERTIES_PATH} has {_OWN_CHECKSUM}={own}, which is not that of its other values: restore the file "
            "from a copy, or remove this line if somebody has changed them on purpose"
        )
    return config


def _parse(values: dict[str, str], version: int) -> TableConfig:
    ordering = values.get("hoodie.table.ordering.fields") or values.get("hoodie.table.precombine.field") or None
    buckets = values.get("hoodie.bucket.index.num.buckets")
    hash_fields = _fields(values, "hoodie.bucket.index.hash.field")
    return TableConfig(
        name=values["hoodie.table.name"],
        record_key_fields=_fields(values, "hoodie.table.recordkey.fields"),
        partition_fields=tuple(name.partition(":")[0] for name in _fields(values, "hoodie.table.partition.fields")),
        ordering_field=ordering,
        merge_mode=values.get("hoodie.record.merge.mode") or (EVENT_TIME if ordering else COMMIT_TIME),
        table_type=values.get("hoodie.table.type", "COPY_ON_WRITE"),
        database=values.get("hoodie.database.name", ""),
        version=version,
        hive_style_partitioning=_flag(values, "hoodie.datasource.write.hive_style_partitioning"),
        url_encode_partitioning=_flag(values, "hoodie.datasource.write.partitionpath.urlencode"),
        bucket_count=int(buckets) if buckets and _is_number(buckets) else None,
        hash_fields=hash_fields or None,
        column_groups=_column_groups(values),
        create_schema=values.get("hoodie.table.create.schema"),
        timezone=values.get("hoodie.table.timeline.timezone", "LOCAL"),
        metadata_partitions=values.get("hoodie.table.metadata.partitions", ""),
        raw=values,
    )


def _read_properties(storage: Storage) -> dict[str, str]:
    """The main file if it is whole, else the backup that an updater leaves while it replaces the main file."""
    problem = ""
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        try:
            values = javaproperties.loads(storage.read(path).decode("utf-8"))
        except NotFound:
            continue
        except ValueError as error:
            problem = problem or f"{path} is no properties file: {error}"
            continue
        if "hoodie.table.name" in values and "hoodie.table.version" in values:
            return dict(values)
        problem = problem or f"{path} has no hoodie.table.name or hoodie.table.version"
    if problem:
        raise CorruptTable(f"the table at {storage.uri} cannot be opened: {problem}. Restore the file from a copy")
    raise InvalidRequest(
        f"there is no table at {storage.uri} (no {PROPERTIES_PATH}): check the path, or write to it first"
    )


def _integer(values: dict[str, str], key: str, default: int) -> int:
    text = values.get(key, str(default))
    if not _is_number(text):
        raise CorruptTable(f"{PROPERTIES_PATH} has {key}={text!r}, which is no number")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MOST


def _column_groups(values: dict[str, str]) -> tuple[ColumnGroup, ...]:
    try:
        return parse_column_groups(values.get(COLUMN_GROUPS, ""))
    except InvalidRequest as error:
        raise CorruptTable(f"{PROPERTIES_PATH}: {error.message}") from error


def _fields(values: dict[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in values.get(key, "").split(",") if name.strip())


def _flag(values: dict[str, str], key: str) -> bool:
    return values.get(key, "false").lower() == "true"


def _text(flag: bool) -> str:
    return "true" if flag else "false"
