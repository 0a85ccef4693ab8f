"""Opening a table, and making one on the first write."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.failpoints import failpoint
from lakelatch.pipeline.column_groups import each_column_has_an_order
from lakelatch.pipeline.options import BUCKET_COUNT, DEFAULT_BUCKET_COUNT, RECORD_KEY, WriteOptions
from lakelatch.pipeline.partial_writes import check_groups
from lakelatch.pipeline.schemas import META_COLUMNS, arrow_to_avro, avro_to_arrow
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.timeline.column_groups import COLUMN_GROUPS, ColumnGroup, show_column_groups
from lakelatch.timeline.instants import WRITE_ACTIONS, Timeline
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.table_config import (
    COMMIT_TIME,
    EVENT_TIME,
    MERGE_ON_READ,
    PROPERTIES_PATH,
    TableConfig,
    is_table,
    load_table_config,
)
from lakelatch.transactions.settings import MODE_OPTION, NON_BLOCKING


@dataclass(frozen=True)
class Table:
    """A table as this call sees it: where it lies, what its writers agreed on, its columns (without meta columns)."""

    storage: Storage
    config: TableConfig
    schema: pa.Schema

    @property
    def avro_schema(self) -> str:
        """The schema as commits carry it."""
        return arrow_to_avro(self.schema, self.config.name)


def open_table(storage: Storage) -> Table:
    """The table for reading; `InvalidRequest` where there is none."""
    config = load_table_config(storage)
    own = (config.create_schema, PROPERTIES_PATH)
    schema, path = own if config.bucket_count is not None and config.create_schema else _latest_schema(storage) or own
    if schema is None:
        raise CorruptTable(f"the table at {storage.uri} names its columns nowhere: no commit and no create schema")
    try:
        columns = [field for field in avro_to_arrow(schema) if field.name not in META_COLUMNS]
    except (CorruptTable, InvalidRequest) as error:
        raise type(error)(f"in {path}: {error.message}", path=path) from error
    return Table(storage, config, pa.schema(columns))


def open_for_write(storage: Storage, options: WriteOptions, schema: pa.Schema) -> Table:
    """The table for writing, made on the first write. Of several first writers one makes it; the others must agree.

    `schema` is that of the data, without meta columns. Errors: `InvalidRequest`, and the table is as it was.
    """
    if not is_table(storage):
        config = _new_config(storage, options, schema)
        _check_mode(options, config)
        failpoint("create.before_properties")
        try:
            storage.put_if_absent(PROPERTIES_PATH, config.to_properties())
        except PutUnknown:
            if not is_table(storage):
                raise
        failpoint("create.after_properties")
    table = open_table(storage)
    _check_writable(table.config)
    _check_agreement(options, table.config)
    _check_mode(options, table.config)
    return table


def require_writable(storage: Storage) -> Table:
    """An existing table for a table service; `InvalidRequest` if it may only be read."""
    table = open_table(storage)
    _check_writable(table.config)
    return table


def open_existing(storage: Storage, options: WriteOptions) -> Table:
    """An existing table for a write without rows; `InvalidRequest` as for one with rows."""
    table = require_writable(storage)
    _check_agreement(options, table.config)
    _check_mode(options, table.config)
    return table


def _latest_schema(storage: Storage) -> tuple[str, str] | None:
    """The schema of the write that completed last, and the file that says so."""
    timeline = Timeline.load(storage)
    for instant in sorted(timeline.completed, key=lambda instant: instant.completion or "", reverse=True):
        if instant.action in WRITE_ACTIONS:
            schema = CommitMetadata.read(storage, instant.path).schema
            if schema:
                return schema, instant.path
    return None


def _new_config(storage: Storage, options: WriteOptions, schema: pa.Schema) -> TableConfig:
    strangers = storage.list("")
    others = [*strangers.files, *(name for name in strangers.folders if name != ".hoodie")]
    if others and not is_table(storage):
        raise InvalidRequest(
            f"{storage.uri} is not empty and is no table (it holds {others[0]!r}): readers would take its files for "
            "data. Choose another path"
        )
    if not options.record_key_fields:
        raise InvalidRequest(
            f"a new table needs {RECORD_KEY}: the column (or columns, with commas) that identify a row"
        )
    name = options.table_name or storage.uri.rstrip("/").rpartition("/")[2]
    if not name or any(character in name for character in "=:#!\\ "):
        raise InvalidRequest(f"hoodie.table.name={name!r}: use letters, digits, '_' and '-'")
    merge_mode = options.merge_mode or (EVENT_TIME if options.ordering_field else COMMIT_TIME)
    if merge_mode == EVENT_TIME and not options.ordering_field:
        raise InvalidRequest(
            "hoodie.record.merge.mode=EVENT_TIME_ORDERING needs hoodie.datasource.write.precombine.field: the column "
            "whose greater value wins"
        )
    hash_fields = options.hash_fields or options.record_key_fields
    _check_fields(schema, options, hash_fields)
    config = TableConfig(
        name=name,
        database=options.database,
        record_key_fields=options.record_key_fields,
        partition_fields=options.partition_fields or (),
        ordering_field=options.ordering_field,
        merge_mode=merge_mode,
        hive_style_partitioning=bool(options.hive_style),
        url_encode_partitioning=bool(options.url_encode),
        bucket_count=options.bucket_count or DEFAULT_BUCKET_COUNT,
        hash_fields=hash_fields,
        column_groups=options.column_groups or (),
        create_schema=arrow_to_avro(schema, name),
    )
    check_groups(config, schema)
    return config


def _check_fields(schema: pa.Schema, options: WriteOptions, hash_fields: tuple[str, ...]) -> None:
    named = {
        RECORD_KEY: options.record_key_fields or (),
        "hoodie.datasource.write.partitionpath.field": options.partition_fields or (),
        "hoodie.datasource.write.precombine.field": (options.ordering_field,) if options.ordering_field else (),
    }
    for option, fields in named.items():
        for field in fields:
            if field not in schema.names:
                raise InvalidRequest(f"{option}={field!r} is no column of the data ({', '.join(schema.names)})")
    strangers = set(hash_fields) - set(options.record_key_fields or ())
    if strangers:
        raise InvalidRequest(
            f"hoodie.bucket.index.hash.field={','.join(hash_fields)} must be among the record key fields"
        )
    if any(name in META_COLUMNS for name in schema.names):
        raise InvalidRequest("columns that start with _hoodie_ are the table's own: drop them from the data")


def _check_writable(config: TableConfig) -> None:
    if config.metadata_partitions:
        raise InvalidRequest(
            f"the table {config.name!r} has a metadata table ({config.metadata_partitions}), which lakelatch does not "
            "keep: its readers would miss new files. Turn it off with Hudi (hoodie.metadata.enable=false) first"
        )
    if config.table_type != MERGE_ON_READ:
        raise InvalidRequest(f"the table {config.name!r} is {config.table_type}: only {MERGE_ON_READ} can be written")
    if config.bucket_count is None:
        raise InvalidRequest(
            f"the table {config.name!r} says nowhere how many buckets it has, so it was made by another writer: "
            f"if all its writers use a SIMPLE bucket index, add {BUCKET_COUNT}=<their number> to {PROPERTIES_PATH}"
        )
    if config.timezone != "UTC":
        raise InvalidRequest(
            f"the table {config.name!r} has hoodie.table.timeline.timezone={config.timezone}: times would not be in "
            "order with those of lakelatch, which are in UTC"
        )
    if config.merge_mode not in (EVENT_TIME, COMMIT_TIME):
        raise InvalidRequest(f"the table {config.name!r} merges by {config.merge_mode}, which lakelatch cannot")


def _check_agreement(options: WriteOptions, config: TableConfig) -> None:
    """What the caller names must be what the table has."""
    claims = (
        (BUCKET_COUNT, options.bucket_count, config.bucket_count),
        (RECORD_KEY, options.record_key_fields, config.record_key_fields),
        ("hoodie.datasource.write.partitionpath.field", options.partition_fields, config.partition_fields),
        ("hoodie.datasource.write.precombine.field", options.ordering_field, config.ordering_field),
        ("hoodie.record.merge.mode", options.merge_mode, config.merge_mode),
        ("hoodie.bucket.index.hash.field", options.hash_fields, config.hash_fields),
        (COLUMN_GROUPS, _groups(options.column_groups), _groups(config.column_groups)),
        ("hoodie.table.name", options.table_name, config.name),
        ("hoodie.datasource.write.hive_style_partitioning", options.hive_style, config.hive_style_partitioning),
        ("hoodie.datasource.write.partitionpath.urlencode", options.url_encode, config.url_encode_partitioning),
    )
    for option, wanted, stored in claims:
        if wanted is not None and wanted != stored:
            raise InvalidRequest(
                f"{option}={_shown(wanted)}, and the table {config.name!r} was made with {_shown(stored)}: it cannot "
                "change later. Leave the option out, or write to a new table",
                option=option,
            )


def _check_mode(options: WriteOptions, config: TableConfig) -> None:
    if not options.non_blocking:
        return
    if not each_column_has_an_order(config):
        raise InvalidRequest(
            f"{MODE_OPTION}={NON_BLOCKING} needs hoodie.record.merge.mode=EVENT_TIME_ORDERING and an ordering field "
            "(hoodie.datasource.write.precombine.field): without one, a compaction could change which writer's row "
            "wins. Name one when the table is made (columns in lakelatch.table.column.groups have their own), or use "
            "OPTIMISTIC_CONCURRENCY_CONTROL"
        )


def _groups(groups: tuple[ColumnGroup, ...] | None) -> str | None:
    return None if groups is None else show_column_groups(groups) or "no groups"


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
