"""Making a table: checks the properties that are fixed for good, and puts them unless another writer was faster."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa

from lakelatch.engine.options.write import (
    BUCKET_COUNT,
    DEFAULT_BUCKET_COUNT,
    DROP,
    HASH_FIELD,
    KEY_GENERATOR,
    KNOWN_KEYS_POLICY,
    MERGE_MODE,
    OPERATION,
    ORDERING_FIELD,
    PARTITION_FIELD,
    RECORD_KEY,
    TABLE_NAME,
    TABLE_TYPE,
    WriteOptions,
)
from lakelatch.engine.table.opening import agreeing, looked_at, open_existing, table_at, what_is_there
from lakelatch.engine.table.schema import learn_slot, parsed_schema
from lakelatch.engine.table.table import OpenedTable, check_mode
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.format.avro import IS_DELETED_COLUMN, META_COLUMNS, arrow_to_avro
from lakelatch.format.evolution import Comparison
from lakelatch.format.keygen.time_partitions import TimePartitions
from lakelatch.format.merge.ordering import sortable_type
from lakelatch.format.record_keys import check_text
from lakelatch.locks.open import record_of
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.actions import DELETE, UPSERT
from lakelatch.timeline.column_groups import COLUMN_GROUPS
from lakelatch.timeline.properties_file import PROPERTIES_PATH, is_table
from lakelatch.timeline.recorded_options import NEW_LOG_VERSION
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import (
    COMMIT_TIME,
    COPY_ON_WRITE,
    CUSTOM_KEYS,
    DATA_BEFORE_AFTER,
    EVENT_TIME,
    FIELD_PREFIXED,
    LATEST_VERSION,
    MERGE_ON_READ,
    TIMESTAMP_KEYS,
    VALUE_ONLY,
    TableConfig,
    load_table_config,
)
from lakelatch.transactions.attempts.checks import At, Check
from lakelatch.transactions.base.context import MemoryCheck

_UNFIT_IN_NAMES = re.compile(r"[=:#!\\\s]")  # would be escaped in properties files, which other readers do not know


def open_for_write(storage: Storage, options: WriteOptions, schema: pa.Schema) -> OpenedTable:
    """Opens a table for writing, or makes it. If there are several first writers, one does, and the others must agree.

    `schema` is that of the data, without meta columns. Errors: `InvalidRequest`, and the table is as it was.
    """
    table = prepare_table(storage, options, schema)
    if not table.is_new:
        return table
    try:
        make_table(table)
    except WriteConflict:
        return open_existing(storage, options)
    return replace(table, is_new=False)


def prepare_table(
    storage: Storage, options: WriteOptions, schema: pa.Schema, memory_check: MemoryCheck | None = None
) -> OpenedTable:
    """Opens a table for writing; a new one is made with its first commit, so that a failed write leaves none.

    `schema` is that of the data, without meta columns; `memory_check` makes its requests at the same time. Errors:
    `InvalidRequest`, with nothing changed.
    """
    try:
        return prepare_existing(storage, options, memory_check)
    except InvalidRequest:
        if memory_check is not None:  # its answers are of before
            memory_check.forget()
        if is_table(storage):  # perhaps only by now
            return open_existing(storage, options)
    try:
        config = _new_config(storage, options, schema)
    except InvalidRequest:
        if is_table(storage):  # by now
            return open_existing(storage, options)
        raise
    check_mode(options, config)
    columns = parsed_schema(config.create_schema or "", PROPERTIES_PATH).columns
    return OpenedTable(storage, config, columns, is_new=True)


def prepare_existing(storage: Storage, options: WriteOptions, memory_check: MemoryCheck | None = None) -> OpenedTable:
    """The same of a table that is there. Errors: `InvalidRequest`, also if it is not."""
    config, look = looked_at(storage, memory_check)
    if memory_check is not None:
        learn_slot(storage, memory_check.last_events)
    return agreeing(table_at(storage, config, look), options)


def makes_table(table: OpenedTable) -> tuple[Check, ...]:
    """The last check of a new table's first commit, which makes the table: after it only the slot can be lost."""

    def check(snapshot: Snapshot, at: At) -> None:
        make_table(table)

    return (check,) if table.is_new else ()


def make_table(table: OpenedTable) -> None:
    """Makes a new table. Errors: `WriteConflict` if another writer has made a different one."""
    storage, properties = table.storage, replace(table.config, table_id=REAL_SYSTEM.new_id()).to_properties()
    failpoint("create.before_properties")
    try:
        made = storage.put_if_absent(PROPERTIES_PATH, properties)
    except PutUnknown:
        made = False
    failpoint("create.after_properties")
    conflict = None if made else made_by_others(table)
    if conflict is not None:
        raise conflict


def made_by_others(table: OpenedTable) -> WriteConflict | None:
    """The conflict with another writer who has made a different table meanwhile; None if there is none."""
    if not table.is_new or not is_table(table.storage) or _is_same(table, load_table_config(table.storage)):
        return None
    return WriteConflict(
        f"another writer has made the table at {table.storage.uri} meanwhile, with other columns or options: nothing "
        "of this write is visible, so write again to see whether it fits that table"
    )


def _is_same(table: OpenedTable, found: TableConfig) -> bool:
    """Whether an existing table is the same as the new one, except for the order of its columns."""
    if replace(found, create_schema=None) != replace(table.config, create_schema=None):
        return False
    compared = Comparison.of(parsed_schema(found.create_schema or "", PROPERTIES_PATH).columns, table.schema)
    return not (compared.added or compared.missing or compared.widened or compared.unfit)


def _new_config(storage: Storage, options: WriteOptions, schema: pa.Schema) -> TableConfig:
    _check_place(storage)
    if not options.record_key_fields:
        _check_without_key(options)
    name = _table_name(storage, options.table_name)
    merge_mode = options.merge_mode or (EVENT_TIME if options.ordering_field else COMMIT_TIME)
    if merge_mode == EVENT_TIME and not options.ordering_field:
        raise InvalidRequest(f"{MERGE_MODE}={EVENT_TIME} needs {ORDERING_FIELD}: the column whose greater value wins")
    hash_fields = options.hash_fields or options.record_key_fields or ()
    check_unique(schema)
    _check_fields(schema, options, hash_fields)
    config = TableConfig(
        name=name,
        database=options.database,
        record_key_fields=options.record_key_fields or (),
        partition_fields=options.partition_fields or (),
        key_generator=options.key_generator,
        partition_kinds=options.partition_kinds,
        time_options=options.time_options,
        ordering_field=options.ordering_field,
        merge_mode=merge_mode,
        table_type=options.table_type or (MERGE_ON_READ if options.record_key_fields else COPY_ON_WRITE),
        hive_style_partitioning=bool(options.hive_style),
        url_encode_partitioning=bool(options.url_encode),
        bucket_count=options.bucket_count or DEFAULT_BUCKET_COUNT if options.record_key_fields else None,
        hash_fields=hash_fields or None,
        column_groups=options.column_groups or (),
        cdc_enabled=bool(options.cdc_enabled),
        cdc_mode=options.cdc_mode or DATA_BEFORE_AFTER,
        version=options.table_version or LATEST_VERSION,
        locks=record_of(storage.uri, options.manager.scope),
        log_version=NEW_LOG_VERSION,
        create_schema=arrow_to_avro(schema, name),
    )
    _check_times(config, schema)
    if len(config.record_key_fields) == 1 and config.complex_keys:
        config = replace(config, key_encoding=FIELD_PREFIXED if config.version >= LATEST_VERSION else VALUE_ONLY)
    check_groups(config, schema)
    return config


def _check_without_key(options: WriteOptions) -> None:
    """`InvalidRequest` for options of a new table that have no meaning without a record key: one was forgotten."""
    needing = {
        ORDERING_FIELD: options.ordering_field,
        MERGE_MODE: options.merge_mode if options.merge_mode == EVENT_TIME else None,
        BUCKET_COUNT: options.bucket_count,
        HASH_FIELD: ",".join(options.hash_fields or ()),
        COLUMN_GROUPS: "..." if options.column_groups else None,
        TABLE_TYPE: options.table_type if options.table_type == MERGE_ON_READ else None,
        KNOWN_KEYS_POLICY: options.known_keys if options.known_keys == DROP else None,
        OPERATION: options.operation if options.names_operation and options.operation in (UPSERT, DELETE) else None,
    }
    for option, value in needing.items():
        if value:
            raise InvalidRequest(
                f"{option}={value} needs {RECORD_KEY}: the column (or columns, with commas) that identify a row. A new "
                "table without one takes rows as they come, and never finds one again",
                option=option,
            )


def _check_times(config: TableConfig, schema: pa.Schema) -> None:
    """`InvalidRequest` unless the key generator can make folders of each partition field's type."""
    fields = config.partition_fields
    if config.key_generator == TIMESTAMP_KEYS and not len(fields) == 1 >= len(config.record_key_fields):
        raise InvalidRequest(
            f"{KEY_GENERATOR}={TIMESTAMP_KEYS} is for one field each in {RECORD_KEY} and {PARTITION_FIELD}: use CUSTOM",
            option=KEY_GENERATOR,
        )
    if config.time_options and not config.time_fields:
        option, value = config.time_options[0]
        raise InvalidRequest(
            f"{option}={value} makes no folders without {KEY_GENERATOR}={TIMESTAMP_KEYS}, or {CUSTOM_KEYS} with a "
            "field of the kind timestamp: name one, or remove the option",
            option=option,
        )
    times = TimePartitions.of(dict(config.time_options)) if config.time_fields else None
    for field in fields:
        if times is not None and field in config.time_fields:
            times.check_type(field, schema.field(field).type)
        else:
            check_text(field, schema.field(field).type)


def _check_place(storage: Storage) -> None:
    """`InvalidRequest` where a new table would adopt files that are not of its own failed first writes."""
    timeline = Snapshot.look(storage)
    if timeline.has_history or timeline.writes:
        raise InvalidRequest(
            f"{storage.uri} has commits and no {PROPERTIES_PATH}: restore that file from a copy, or choose another path"
        )
    found = storage.list("")
    others = [*found.files, *(name for name in found.folders if name != ".hoodie")]
    if others and not timeline.by_requested:
        what, _ = what_is_there(storage)
        raise InvalidRequest(
            f"{storage.uri} is not empty and is no table: {what}, and readers would take its files for data. Choose "
            "another path"
        )


def _table_name(storage: Storage, given: str | None) -> str:
    """The given name, or one made from the folder's, without the characters that are not allowed in names."""
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
    for field in options.record_key_fields or ():
        check_text(field, schema.field(field).type)
    if options.ordering_field:
        sortable_type(schema.field(options.ordering_field).type)
    strangers = set(hash_fields) - set(options.record_key_fields or ())
    if strangers:
        raise InvalidRequest(f"{HASH_FIELD}={','.join(hash_fields)} must be among the record key fields")
    if any(name in META_COLUMNS for name in schema.names):
        raise InvalidRequest("columns that start with _hoodie_ are the table's own: drop them from the data")


def check_unique(schema: pa.Schema) -> None:
    """`InvalidRequest` for a name that occurs more than once."""
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"the column(s) {', '.join(twice)} occur more than once: drop or rename them")


def check_groups(config: TableConfig, schema: pa.Schema) -> None:
    """Checks the column groups of a new table. Errors: `InvalidRequest`, naming the group and the column."""
    keys = {*config.record_key_fields, *config.partition_fields}
    ordering = config.ordering_field if config.merge_mode == EVENT_TIME else None
    for group in config.column_groups:
        what = f"{COLUMN_GROUPS}: the group of {group.ordering!r}"
        for name in group.names:
            if name not in schema.names:
                raise InvalidRequest(
                    f"{what} names {name!r}, which is no column of the data ({', '.join(schema.names)}): make the "
                    "table with a frame that has all its columns; it may have no rows",
                    option=COLUMN_GROUPS,
                )
            if name in keys:
                raise InvalidRequest(f"{what} names {name!r}, which identifies the row: leave it out")
            if name == ordering:
                raise InvalidRequest(
                    f"{what} names {name!r}, which orders the columns outside of all groups: give the group an "
                    "ordering column of its own"
                )
        sortable_type(schema.field(group.ordering).type)
    if config.column_groups and ordering in keys:
        raise InvalidRequest(
            f"the ordering field {ordering!r} identifies the row, and with {COLUMN_GROUPS} it has to say which writes "
            "fill the columns outside of all groups: choose another one"
        )
    if config.column_groups and IS_DELETED_COLUMN in schema.names:
        raise InvalidRequest(
            f"the column {IS_DELETED_COLUMN} deletes whole rows, and with {COLUMN_GROUPS} each group is deleted by "
            "itself: drop it, and use hoodie.datasource.write.operation=delete"
        )
