"""The table's own configuration: what `.hoodie/hoodie.properties` says of it, as Hudi writes and checks that."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import javaproperties

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.storage.contract import Storage
from lakelatch.timeline.column_groups import (
    COLUMN_GROUPS,
    COLUMN_GROUPS_MERGER,
    COLUMN_GROUPS_MODE,
    COLUMN_GROUPS_PAYLOAD,
    ColumnGroup,
    parse_column_groups,
    show_column_groups,
)
from lakelatch.timeline.foreign_tables import check_readable, check_upgraded, unmergeable
from lakelatch.timeline.properties_file import (
    BACKUP_PATH,
    NAME_PROPERTY,
    PROPERTIES_PATH,
    VERSION_PROPERTY,
    fields_in,
    flag_in,
    flag_text,
    integer_in,
    is_number,
    properties_at,
    read_properties,
)
from lakelatch.timeline.recorded_options import LOG_VERSION, check_log_version, lock_properties, locks_in, log_property

_OWN_CHECKSUM = "lakelatch.table.checksum"
_TABLE_ID = "lakelatch.table.id"
_MERGE_MODE = "hoodie.record.merge.mode"
_MERGER = "hoodie.record.merge.strategy.id"
_OWN_MERGE_MODE = "lakelatch.table.merge.mode"  # of columns outside of every column group

EVENT_TIME = "EVENT_TIME_ORDERING"
COMMIT_TIME = "COMMIT_TIME_ORDERING"
MERGE_ON_READ, COPY_ON_WRITE = "MERGE_ON_READ", "COPY_ON_WRITE"
TABLE_TYPES = (MERGE_ON_READ, COPY_ON_WRITE)
TABLE_VERSIONS = (8, 9)
LATEST_VERSION = 9
READABLE_VERSIONS = (*TABLE_VERSIONS, 10)  # Hudi 1.3's has logs that are parquet files
# How a complex key generator writes the key of one field: `id:7` (Hudi from 1.1 on), or `7` (0.14.1 to 1.0.2).
FIELD_PREFIXED = "FIELD_PREFIXED"
VALUE_ONLY = "VALUE_ONLY"
KEY_ENCODING = "hoodie.table.complex.keygenerator.encoding"
CDC_ENABLED = "hoodie.table.cdc.enabled"  # change queries may ask for images of rows
CDC_MODE = "hoodie.table.cdc.supplemental.logging.mode"
DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"
CDC_MODES = ("OP_KEY_ONLY", "DATA_BEFORE", DATA_BEFORE_AFTER)
KEY_GENERATOR = "hoodie.table.keygenerator.type"
TIMESTAMP_KEYS, CUSTOM_KEYS = "TIMESTAMP", "CUSTOM"  # key generators that make folders of times
TIME_OPTIONS = "hoodie.keygen.timebased."
SIMPLE_FIELD, TIMESTAMP_FIELD = "SIMPLE", "TIMESTAMP"  # kinds of partition fields of a custom key generator
_COMPLEX = ("COMPLEX", "COMPLEX_AVRO")
_ORDERING = {8: "hoodie.table.precombine.field", 9: "hoodie.table.ordering.fields"}
_PAYLOADS = "org.apache.hudi.common.model"
# Version 8 has, with the merge mode, Hudi's id of the merger and the payload class of the same meaning.
_MERGERS = {
    EVENT_TIME: ("eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", f"{_PAYLOADS}.DefaultHoodieRecordPayload"),
    COMMIT_TIME: ("ce9acb64-bde0-424c-9b91-f6ebba25356d", f"{_PAYLOADS}.OverwriteWithLatestAvroPayload"),
}


@dataclass(frozen=True)
class TableConfig:
    """The settings on which all readers and writers of a table must agree. Fixed when the table is made.

    `bucket_count` and `hash_fields` are None on tables that another writer made: Hudi keeps them in no file.
    `key_encoding` is None where the file does not say how it writes keys of one field. `key_generator` is named where
    the fields do not decide it, `partition_kinds` are those of a custom one, and `time_options` say how either makes
    folders of times. `locks` are lock options, no secret among them, for writers that name none. `log_version` is that
    of the commit log, which says whether one writer may commit for others. `table_id` is drawn when a table is made,
    and tells it from one that was at its path before; "" on tables of other writers and older versions.
    """

    name: str
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...] = ()
    ordering_field: str | None = None
    merge_mode: str = COMMIT_TIME
    table_type: str = MERGE_ON_READ
    database: str = "default"
    version: int = LATEST_VERSION
    hive_style_partitioning: bool = False
    url_encode_partitioning: bool = False
    bucket_count: int | None = None
    hash_fields: tuple[str, ...] | None = None
    column_groups: tuple[ColumnGroup, ...] = ()
    key_encoding: str | None = None
    key_generator: str | None = None
    partition_kinds: tuple[str, ...] = ()
    time_options: tuple[tuple[str, str], ...] = ()
    cdc_enabled: bool = False
    cdc_mode: str = DATA_BEFORE_AFTER
    create_schema: str | None = None
    timezone: str = "UTC"
    metadata_partitions: str = ""
    locks: Mapping[str, str] = field(default_factory=dict, compare=False)
    log_version: int = field(default=1, compare=False)
    table_id: str = field(default="", compare=False)
    raw: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def to_properties(self) -> bytes:
        """The file's bytes. Other readers take values as they stand, so only the schema holds escapes."""
        values = {
            NAME_PROPERTY: self.name,
            "hoodie.database.name": self.database,
            "hoodie.table.type": self.table_type,
            VERSION_PROPERTY: str(self.version),
            "hoodie.table.initial.version": str(self.version),
            "hoodie.timeline.layout.version": "2",
            "hoodie.timeline.path": "timeline",
            "hoodie.timeline.history.path": "history",
            "hoodie.archivelog.folder": "archived",
            "hoodie.table.checksum": str(checksum(self.database, self.name)),
            "hoodie.table.keygenerator.type": self._key_generator(),
            "hoodie.populate.meta.fields": "true",
            "hoodie.datasource.write.drop.partition.columns": "false",
            "hoodie.datasource.write.hive_style_partitioning": flag_text(self.hive_style_partitioning),
            "hoodie.datasource.write.partitionpath.urlencode": flag_text(self.url_encode_partitioning),
            "hoodie.table.timeline.timezone": self.timezone,
        }
        if self.record_key_fields:
            values["hoodie.table.recordkey.fields"] = ",".join(self.record_key_fields)
        if self.partition_fields:
            kinds = [f":{kind}" for kind in self.partition_kinds] or [""] * len(self.partition_fields)
            named = [f"{field}{kind}" for field, kind in zip(self.partition_fields, kinds, strict=True)]
            values["hoodie.table.partition.fields"] = ",".join(named)
        values.update(self.time_options)
        if self.ordering_field:
            values[_ORDERING[self.version]] = self.ordering_field
        if self.version == LATEST_VERSION:
            values["hoodie.table.format"] = "native"
        if self.key_encoding is not None:
            values[KEY_ENCODING] = self.key_encoding
        if self.cdc_enabled:
            values[CDC_ENABLED], values[CDC_MODE] = "true", self.cdc_mode
        if self.column_groups:
            values[COLUMN_GROUPS] = show_column_groups(self.column_groups)
        values.update(self._merging())
        if self.create_schema:
            values["hoodie.table.create.schema"] = self.create_schema
        if self.bucket_count is not None:
            values["hoodie.index.type"] = "BUCKET"
            values["hoodie.index.bucket.engine"] = "SIMPLE"
            values["hoodie.bucket.index.num.buckets"] = str(self.bucket_count)
            values["hoodie.bucket.index.hash.field"] = ",".join(self.hash_fields or self.record_key_fields)
            # Java's procedures that are given a path take the properties for a writer's options: there the hash field
            # has to be one of the record key's.
            values["hoodie.datasource.write.recordkey.field"] = ",".join(self.record_key_fields)
        values.update(lock_properties(self.locks) | log_property(self.log_version))
        if self.table_id:
            values[_TABLE_ID] = self.table_id
        values[_OWN_CHECKSUM] = self.own_checksum()
        return javaproperties.dumps(values, sort_keys=True, timestamp=False).encode("utf-8")

    def _merging(self) -> dict[str, str]:
        """How other engines are to merge rows. Version 8 says it thrice: by a mode, a merger and a payload class."""
        mode = self.merge_mode
        merger, payload = _MERGERS.get(mode, ("", ""))
        values = {}
        if self.column_groups:
            values[_OWN_MERGE_MODE] = mode
            mode, merger, payload = COLUMN_GROUPS_MODE, COLUMN_GROUPS_MERGER, COLUMN_GROUPS_PAYLOAD
        values[_MERGE_MODE] = mode
        if merger and (self.column_groups or self.version < LATEST_VERSION):
            values[_MERGER] = merger
        if payload and self.version < LATEST_VERSION:
            values["hoodie.compaction.payload.class"] = payload
        return values

    def own_checksum(self) -> str:
        """The checksum of all values that decide which rows a reader sees; Hudi's tools may rewrite the file itself."""
        groups = show_column_groups(self.column_groups)
        hash_fields = None if self.bucket_count is None else self.hash_fields or self.record_key_fields
        decisive: tuple[object, ...] = (
            *(self.record_key_fields, self.partition_fields, self.ordering_field, self.merge_mode, groups),
            *(self.hive_style_partitioning, self.url_encode_partitioning, self.bucket_count, hash_fields),
            *(self.create_schema, self.table_type, self.timezone),
        )
        if self.key_encoding:  # older tables have none, and keep their checksum
            decisive = (*decisive, self.key_encoding)
        if self.key_generator:
            decisive = (*decisive, self.key_generator, self.partition_kinds, self.time_options)
        return f"{zlib.crc32(json.dumps(decisive).encode()):08x}"

    @property
    def appends_only(self) -> bool:
        """Whether rows have no key of their own: what is written is added, and no later write finds a row again."""
        return not self.record_key_fields

    @property
    def copies_on_write(self) -> bool:
        """Whether each write makes new base files, and there are no log files."""
        return self.table_type == COPY_ON_WRITE

    @property
    def lock_options(self) -> dict[str, str]:
        """The lock options for writers that name none, with the table's name, from which some locks take theirs.

        The version of the commit log comes with them, if the table names it.
        """
        return {NAME_PROPERTY: self.name, **log_property(self.log_version), **self.locks}

    @property
    def made_here(self) -> bool:
        """Whether the file says that lakelatch made the table."""
        return _OWN_CHECKSUM in self.raw

    def check_mergeable(self) -> None:
        """`InvalidRequest` if rows of log files cannot be merged here as the table's other writers and readers do."""
        found = unmergeable(self.raw, self.merge_mode, self.ordering_field)
        if found:
            raise InvalidRequest(
                f"the table {self.name!r} has {found}: its log files are merged in a way that lakelatch does not know. "
                "Read it with Hudi, or let Hudi compact it and read here what is in base files, with "
                "hoodie.datasource.query.type=read_optimized"
            )

    @property
    def plain_key_field(self) -> str | None:
        """The field whose text is the record key, if there is one."""
        return self.record_key_fields[0] if len(self.record_key_fields) == 1 and not self.prefixed_keys else None

    @property
    def prefixed_keys(self) -> bool | None:
        """Whether the key of one field is `field:value`, as complex key generators write it. None if unknown."""
        if len(self.record_key_fields) != 1 or not self.complex_keys:
            return False
        if self.key_encoding is not None:
            return self.key_encoding == FIELD_PREFIXED
        if not self.raw or _OWN_CHECKSUM in self.raw:
            return False
        return True if self.version >= LATEST_VERSION else None

    @property
    def commas_in_keys(self) -> bool:
        """Whether all writers of this table take a `,` in a value of a composite key for a part of that value."""
        return self.version >= LATEST_VERSION

    @property
    def complex_keys(self) -> bool:
        """Whether other writers make the keys of this table with a complex key generator."""
        return (self.raw.get("hoodie.table.keygenerator.type") or self._key_generator()).upper() in _COMPLEX

    @property
    def time_fields(self) -> tuple[str, ...]:
        """The partition fields whose folders are made of times."""
        if self.key_generator == TIMESTAMP_KEYS:
            return self.partition_fields
        kinds = zip(self.partition_fields, self.partition_kinds, strict=False)
        return tuple(field for field, kind in kinds if kind == TIMESTAMP_FIELD)

    def _key_generator(self) -> str:
        if self.key_generator:
            return self.key_generator
        if not self.partition_fields:
            return "NON_PARTITION"
        return "SIMPLE" if len(self.partition_fields) == 1 >= len(self.record_key_fields) else "COMPLEX"


def checksum(database: str, name: str) -> int:
    """CRC-32 of `<database>.<name>`, as Hudi's readers verify it; an absent database is empty."""
    return zlib.crc32(f"{database}.{name}".encode("utf-8", "replace"))


def recorded_lock_options(storage: Storage) -> dict[str, str] | None:
    """`TableConfig.lock_options` without the rest; empty for a damaged table, None where there is no table."""
    damaged = False
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        values, wrong = properties_at(storage, path)
        if values is not None:
            said = {key: values[key] for key in (NAME_PROPERTY, LOG_VERSION) if key in values}
            return {**said, **locks_in(values)}
        damaged = damaged or bool(wrong)
    return {} if damaged else None


def load_table_config(storage: Storage) -> TableConfig:
    """The table's configuration, for reading it.

    Errors: `InvalidRequest` where there is no table or one that this version cannot read, `CorruptTable` where the
    file is not what its writer wrote.
    """
    values = read_properties(storage)
    own = values.get(_OWN_CHECKSUM)
    version = integer_in(values, VERSION_PROPERTY, 0)
    if version not in READABLE_VERSIONS:
        way_out = f"upgrade {'lakelatch' if version > max(READABLE_VERSIONS) else 'the table with Hudi'}"
        raise InvalidRequest(
            f"{PROPERTIES_PATH} of {storage.uri} has hoodie.table.version={version}, and this version of lakelatch "
            f"knows {', '.join(map(str, READABLE_VERSIONS))}: {way_out}"
        )
    if values.get("hoodie.timeline.layout.version") != "2":
        raise CorruptTable(f"{PROPERTIES_PATH} has no hoodie.timeline.layout.version=2, as its table version demands")
    check_readable(values, storage.uri)
    check_log_version(values, storage.uri)
    if own is None:  # tables made here are never upgraded to a version that is known here
        check_upgraded(storage, values, properties_at(storage, BACKUP_PATH)[0], BACKUP_PATH)
    config = _parse(values, version)
    stored = values.get("hoodie.table.checksum")
    if stored is not None and stored != str(checksum(values.get("hoodie.database.name", ""), config.name)):
        raise CorruptTable(
            f"{PROPERTIES_PATH} has hoodie.table.checksum={stored}, which is not that of "
            f"{config.database}.{config.name}: restore the file from {BACKUP_PATH} or a copy"
        )
    if own is not None and own != config.own_checksum():
        raise CorruptTable(
            f"{PROPERTIES_PATH} has {_OWN_CHECKSUM}={own}, which is not that of its other values: restore the file "
            f"from a copy, or write {config.own_checksum()} there if they were changed on purpose"
        )
    return config


def _parse(values: dict[str, str], version: int) -> TableConfig:
    ordering = values.get("hoodie.table.ordering.fields") or values.get("hoodie.table.precombine.field") or None
    buckets = values.get("hoodie.bucket.index.num.buckets")
    hash_fields = fields_in(values, "hoodie.bucket.index.hash.field")
    merge_mode = values.get(_MERGE_MODE) or (EVENT_TIME if ordering else COMMIT_TIME)
    groups = _column_groups(values)
    if groups and values.get(_MERGER) == COLUMN_GROUPS_MERGER:
        merge_mode = values.get(_OWN_MERGE_MODE, merge_mode)
    partitions = [name.partition(":") for name in fields_in(values, "hoodie.table.partition.fields")]
    kinds = tuple(kind.upper() for _, _, kind in partitions)
    return TableConfig(
        name=values[NAME_PROPERTY],
        record_key_fields=fields_in(values, "hoodie.table.recordkey.fields"),
        partition_fields=tuple(name for name, _, _ in partitions),
        ordering_field=ordering,
        merge_mode=merge_mode,
        table_type=values.get("hoodie.table.type", "COPY_ON_WRITE"),
        database=values.get("hoodie.database.name", ""),
        version=version,
        hive_style_partitioning=flag_in(values, "hoodie.datasource.write.hive_style_partitioning"),
        url_encode_partitioning=flag_in(values, "hoodie.datasource.write.partitionpath.urlencode"),
        bucket_count=int(buckets) if buckets and is_number(buckets) else None,
        hash_fields=hash_fields or None,
        column_groups=groups,
        key_encoding=values.get(KEY_ENCODING, "").upper() or None,
        key_generator=_key_generator(values),
        partition_kinds=kinds if all(kinds) else (),
        time_options=tuple(sorted((key, value) for key, value in values.items() if key.startswith(TIME_OPTIONS))),
        cdc_enabled=flag_in(values, CDC_ENABLED),
        cdc_mode=values.get(CDC_MODE, DATA_BEFORE_AFTER).upper(),
        create_schema=values.get("hoodie.table.create.schema"),
        timezone=values.get("hoodie.table.timeline.timezone", "LOCAL"),
        metadata_partitions=values.get("hoodie.table.metadata.partitions", ""),
        locks=locks_in(values),
        log_version=integer_in(values, LOG_VERSION, 1),
        table_id=values.get(_TABLE_ID, ""),
        raw=values,
    )


def _key_generator(values: Mapping[str, str]) -> str | None:
    """`TIMESTAMP_KEYS` or `CUSTOM_KEYS`, as a type or a class; None for all others."""
    named = values.get("hoodie.table.keygenerator.class", "").rpartition(".")[2].upper()
    named = values.get(KEY_GENERATOR, "").upper() or named.removesuffix("KEYGENERATOR")
    found = named.removesuffix("AVRO").rstrip("_").removesuffix("BASED")
    return found if found in (TIMESTAMP_KEYS, CUSTOM_KEYS) else None


def _column_groups(values: dict[str, str]) -> tuple[ColumnGroup, ...]:
    try:
        return parse_column_groups(values.get(COLUMN_GROUPS, ""))
    except InvalidRequest as error:
        raise CorruptTable(f"{PROPERTIES_PATH}: {error.message}") from error
