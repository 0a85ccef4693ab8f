"""Opening a table, and making one on the first write."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.failpoints import failpoint
from lakelatch.format.avro import META_COLUMNS, arrow_to_avro, avro_to_arrow, without_meta_columns
from lakelatch.spark.options import (
    DEFAULT_BUCKET_COUNT,
    HASH_FIELD,
    MERGE_MODE,
    ORDERING_FIELD,
    PARTITION_FIELD,
    RECORD_KEY,
    TABLE_NAME,
    WriteOptions,
)
from lakelatch.spark.table import OpenedTable, check_agreement, check_mode, check_writable
from lakelatch.spark.write.columns import check_groups
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.table_config import (
    COMMIT_TIME,
    EVENT_TIME,
    FIELD_PREFIXED,
    LATEST_VERSION,
    PROPERTIES_PATH,
    VALUE_ONLY,
    TableConfig,
    is_table,
    load_table_config,
)
from lakelatch.timeline.timeline import Timeline

_UNFIT_IN_NAMES = re.compile(r"[=:#!\\\s]")  # properties files would need escapes, which other readers do not know


def open_table(storage: Storage) -> OpenedTable:
    """The table for reading; `InvalidRequest` where there is none."""
    return table_of(storage, load_table_config(storage))


def table_of(storage: Storage, config: TableConfig, timeline: Timeline | None = None) -> OpenedTable:
    """The table of this configuration; `timeline` is for a caller who has listed it. Errors: those of `open_table`."""
    own = (config.create_schema, PROPERTIES_PATH)
    if config.bucket_count is not None and config.create_schema:
        schema, path = own
    else:
        schema, path = _latest_schema(storage, timeline or Timeline.load(storage)) or own
    if schema is None:
        raise CorruptTable(f"the table at {storage.uri} names its columns nowhere: no commit and no create schema")
    try:
        columns = without_meta_columns(avro_to_arrow(schema))
    except (CorruptTable, InvalidRequest) as error:
        raise type(error)(f"in {path}: {error.message}", path=path) from error
    return OpenedTable(storage, config, columns)


def open_for_write(storage: Storage, options: WriteOptions, schema: pa.Schema) -> OpenedTable:
    """The table for writing, made on the first write. Of several first writers one makes it; the others must agree.

    `schema` is that of the data, without meta columns. Errors: `InvalidRequest`, and the table is as it was.
    """
    if not is_table(storage):
        config = _new_config(storage, options, schema)
        check_mode(options, config)
        failpoint("create.before_properties")
        try:
            storage.put_if_absent(PROPERTIES_PATH, config.to_properties())
        except PutUnknown:
            if not is_table(storage):
                raise
        failpoint("create.after_properties")
    table = open_table(storage)
    check_writable(table.config)
    check_agreement(options, table.config)
    check_mode(options, table.config)
    return table


def require_writable(storage: Storage) -> OpenedTable:
    """An existing table for a table service; `InvalidRequest` if it may only be read."""
    table = open_table(storage)
    check_writable(table.config)
    return table


def open_existing(storage: Storage, options: WriteOptions) -> OpenedTable:
    """An existing table for a write without rows; `InvalidRequest` as for one with rows."""
    table = require_writable(storage)
    check_agreement(options, table.config)
    check_mode(options, table.config)
    return table


def _latest_schema(storage: Storage, timeline: Timeline) -> tuple[str, str] | None:
    """The schema of the write that completed last, and the file that says so."""
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
    name = _table_name(storage, options.table_name)
    merge_mode = options.merge_mode or (EVENT_TIME if options.ordering_field else COMMIT_TIME)
    if merge_mode == EVENT_TIME and not options.ordering_field:
        raise InvalidRequest(f"{MERGE_MODE}={EVENT_TIME} needs {ORDERING_FIELD}: the column whose greater value wins")
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
        version=options.table_version or LATEST_VERSION,
        create_schema=arrow_to_avro(schema, name),
    )
    if len(config.record_key_fields) == 1 and config.complex_keys:
        config = replace(config, key_encoding=FIELD_PREFIXED if config.version >= LATEST_VERSION else VALUE_ONLY)
    check_groups(config, schema)
    return config


def _table_name(storage: Storage, given: str | None) -> str:
    """The name that was asked for, or one made of the folder's, which may hold what a table's name must not."""
    if given is None:
        return _UNFIT_IN_NAMES.sub("_", storage.uri.rstrip("/").rpartition("/")[2])
    if not given or _UNFIT_IN_NAMES.search(given):
        raise InvalidRequest(f"{TABLE_NAME}={given!r}: use letters, digits, '_' and '-'", option=TABLE_NAME)
    return given


def _check_fields(schema: pa.Schema, options: WriteOptions, hash_fields: tuple[str, ...]) -> None:
    named = {
        RECORD_KEY: options.record_key_fields or (),
        PARTITION_FIELD: options.partition_fields or (),
        ORDERING_FIELD: (options.ordering_field,) if options.ordering_field else (),
    }
    for option, fields in named.items():
        for field in fields:
            if field not in schema.names:
                raise InvalidRequest(f"{option}={field!r} is no column of the data ({', '.join(schema.names)})")
    strangers = set(hash_fields) - set(options.record_key_fields or ())
    if strangers:
        raise InvalidRequest(f"{HASH_FIELD}={','.join(hash_fields)} must be among the record key fields")
    if any(name in META_COLUMNS for name in schema.names):
        raise InvalidRequest("columns that start with _hoodie_ are the table's own: drop them from the data")
