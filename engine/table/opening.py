"""Opening a table, and making one on the first write."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from lakelatch.engine.options.write import (
    DEFAULT_BUCKET_COUNT,
    HASH_FIELD,
    KEY_GENERATOR,
    MERGE_MODE,
    ORDERING_FIELD,
    PARTITION_FIELD,
    RECORD_KEY,
    TABLE_NAME,
    WriteOptions,
)
from lakelatch.engine.table.columns import check_groups, check_unique
from lakelatch.engine.table.schema import parsed_schema, schema_at
from lakelatch.engine.table.table import OpenedTable, check_agreement, check_mode, check_writable
from lakelatch.errors import CorruptTable, InvalidRequest, LakelatchError, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.format.avro import META_COLUMNS, arrow_to_avro
from lakelatch.format.evolution import Comparison
from lakelatch.format.keygen.time_partitions import TimePartitions
from lakelatch.format.merge.ordering import sortable_type
from lakelatch.format.record_keys import check_text
from lakelatch.format.slices.partitions import PARTITION_METADATA
from lakelatch.locks.open import record_of
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.log.events import LOCKS
from lakelatch.timeline.log.log_reader import LogReader
from lakelatch.timeline.table_config import (
    COMMIT_TIME,
    CUSTOM_KEYS,
    DATA_BEFORE_AFTER,
    EVENT_TIME,
    FIELD_PREFIXED,
    LATEST_VERSION,
    MERGE_ON_READ,
    PROPERTIES_PATH,
    TIMESTAMP_KEYS,
    VALUE_ONLY,
    TableConfig,
    is_table,
    load_table_config,
)
from lakelatch.timeline.timeline import TIMELINE_FOLDER, Timeline, TimelineFolder
from lakelatch.transactions.base.context import MemoryCheck
from lakelatch.transactions.base.outcome import Displaced
from lakelatch.transactions.commit import Resolve, Resolved
from lakelatch.transactions.conflicts.contract import OtherWrite

_DATA_FILES = (".parquet", ".orc", ".avro", ".csv", ".json")
_UNFIT_IN_NAMES = re.compile(r"[=:#!\\\s]")  # properties files would need escapes, which other readers do not know


def open_table(storage: Storage, beside: MemoryCheck | None = None) -> OpenedTable:
    """The table for reading, as it is now; `InvalidRequest` where there is none. `beside` is asked at the same time."""
    return table_at(storage, *look_at(storage, beside))


def look_at(storage: Storage, beside: MemoryCheck | None = None) -> tuple[TableConfig, Timeline]:
    """The table's configuration, and its timeline as one listing shows it; `beside` has made that listing if given.

    Errors: those of `load_config`; `CorruptTable` for a timeline that is gone.
    """
    with _telling(storage):
        return _looked_at(storage, beside)


def load_config(storage: Storage) -> TableConfig:
    """As `load_table_config`; where there is no table, the error says what lies there."""
    with _telling(storage):
        return load_table_config(storage)


@contextmanager
def _telling(storage: Storage) -> Iterator[None]:
    try:
        yield
    except InvalidRequest as error:
        if not error.details.get("no_table"):
            raise
        what, way_out = what_is_there(storage)
        raise InvalidRequest(
            f"there is no table at {storage.uri} (no {PROPERTIES_PATH}): {what}; {way_out}", **error.details
        ) from None


def what_is_there(storage: Storage) -> tuple[str, str]:
    """What lies at a place that is no table, and what to do, as parts of an error's text."""
    if isinstance(storage, LocalStorage) and os.path.isfile(storage.root):
        return "it is a file", "name the table's folder"
    try:
        found = storage.list("")
    except LakelatchError:  # what the caller has to say is more
        return "it cannot be listed", "check the path"
    elsewhere = "and write that to another path with lakelatch.write(frame, path, options)"
    if "_delta_log" in found.folders:
        return "it is a table of Delta Lake", f"read it with spark.read.format('delta'), {elsewhere}"
    if "metadata" in found.folders and "data" in found.folders:
        return "it looks like a table of Iceberg", f"read it with spark.read.format('iceberg'), {elsewhere}"
    if PARTITION_METADATA in found.files:
        return "it is a partition of a table", "name the table's own folder, and the partition in a condition"
    if ".hoodie" in found.folders:
        way_out = "restore that file from a copy, or write to it if nothing was committed"
        return "it has a folder .hoodie without that file, as before a first write has committed", way_out
    plain = [name for name in found.files if name.endswith(_DATA_FILES)]
    parts = [name for name in found.folders if "=" in name]
    if plain or parts:
        kind = plain[0].rpartition(".")[2] if plain else "parquet"
        shown = (
            f"it has plain {kind} files ({plain[0]!r})" if plain else f"it has plain folders of partitions ({parts[0]})"
        )
        return shown, f"read them with spark.read.format({kind!r}), {elsewhere}"
    names = [*found.files, *found.folders]
    if names:
        return f"it holds {names[0]!r}", "check the path"
    return "nothing is there", "check the path, write to it, or make the table with lakelatch.Table.create"


def _looked_at(storage: Storage, beside: MemoryCheck | None) -> tuple[TableConfig, Timeline]:
    configs: list[TableConfig] = []
    looks: list[Timeline] = []

    def configure() -> None:
        configs.append(load_table_config(storage))

    if beside is not None:
        storage.together(configure, *beside.requests)
        looks.append(Timeline.of_names(sorted(beside.names)))
    else:
        storage.together(configure, lambda: looks.append(Timeline.look(storage)))
    if not looks[0].instants and not looks[0].has_history:
        _ensure_never_written(storage)
    return configs[0], looks[0]


def _ensure_never_written(storage: Storage) -> None:
    """`CorruptTable` for a table without a timeline whose commit log says that there was one: it would read as empty.

    Whoever has put a slot had its instant on the timeline before, but for those that say which locks the table has.
    Costs a request for a table that nobody has written, and one for each slot that there is.
    """
    log = LogReader(storage)
    slots = [event.number for event in log.standing(log.tail()) if event.kind != LOCKS]
    if slots and not Timeline.look(storage).instants:
        raise CorruptTable(
            f"{storage.uri} has no files in {TIMELINE_FOLDER}, and its commit log has slots up to {max(slots)}: "
            "restore that folder from a copy",
            path=TIMELINE_FOLDER,
        )


def table_at(storage: Storage, config: TableConfig, timeline: Timeline, moment: str | None = None) -> OpenedTable:
    """The table of this configuration with its columns at a completion time, or as of the timeline.

    Errors: those of `open_table`.
    """
    schema = schema_at(storage, config, timeline, moment)
    return OpenedTable(storage, config, schema.columns, schema.path)


def as_of_now(table: OpenedTable) -> OpenedTable:
    """A table with the columns that it has now: what rewrites files must know all that is in them."""
    found = table_at(table.storage, table.config, Timeline.look(table.storage))
    return replace(found, base_files=table.base_files)


def open_for_write(storage: Storage, options: WriteOptions, schema: pa.Schema) -> OpenedTable:
    """The table for writing, made if there is none. Of several first writers one makes it; the others must agree.

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
    storage: Storage, options: WriteOptions, schema: pa.Schema, beside: MemoryCheck | None = None
) -> OpenedTable:
    """The table for writing; if there is none, one that is made with its first commit: a write that fails leaves none.

    `schema` is that of the data, without meta columns; `beside` is asked at the same time. Errors: `InvalidRequest`,
    and the table is as it was.
    """
    try:
        return _agreeing(table_at(storage, *_looked_at(storage, beside)), options)
    except InvalidRequest:
        if beside is not None:  # it was asked of what was there then
            beside.forget()
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


def making_table(table: OpenedTable, resolve: Resolve) -> Resolve:
    """`resolve`, which makes a new table first: at its place in the log the first commit cannot fail any more."""

    def resolve_made(folder: TimelineFolder, completed: list[OtherWrite]) -> Resolved | Displaced:
        resolved = resolve(folder, completed)
        if isinstance(resolved, Resolved) and resolved.conflict is None:
            make_table(table)
        return resolved

    return resolve_made if table.is_new else resolve


def make_table(table: OpenedTable) -> None:
    """Makes a new table. Errors: `WriteConflict` if another writer has made one that is not the same."""
    storage, properties = table.storage, table.config.to_properties()
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
    """That another writer has made a new table meanwhile, which is not the same; None if nobody has."""
    if not table.is_new or not is_table(table.storage) or _is_same(table, load_table_config(table.storage)):
        return None
    return WriteConflict(
        f"another writer has made the table at {table.storage.uri} meanwhile, with other columns or options: nothing "
        "of this write is visible, so write again to see whether it fits that table"
    )


def _is_same(table: OpenedTable, found: TableConfig) -> bool:
    """Whether a table that is there is the new one but for the order of its columns."""
    if replace(found, create_schema=None) != replace(table.config, create_schema=None):
        return False
    compared = Comparison.of(parsed_schema(found.create_schema or "", PROPERTIES_PATH).columns, table.schema)
    return not (compared.added or compared.missing or compared.widened or compared.unfit)


def require_writable(storage: Storage, beside: MemoryCheck | None = None) -> OpenedTable:
    """An existing table for a table service; `InvalidRequest` if it may only be read."""
    table = open_table(storage, beside)
    check_writable(table.config)
    return table


def open_existing(storage: Storage, options: WriteOptions, beside: MemoryCheck | None = None) -> OpenedTable:
    """An existing table for a write without rows; `InvalidRequest` as for one with rows."""
    return _agreeing(table_at(storage, *look_at(storage, beside)), options)


def _agreeing(table: OpenedTable, options: WriteOptions) -> OpenedTable:
    check_writable(table.config)
    check_agreement(options, table.config)
    check_mode(options, table.config)
    return table


def _new_config(storage: Storage, options: WriteOptions, schema: pa.Schema) -> TableConfig:
    _check_place(storage)
    if not options.record_key_fields:
        raise InvalidRequest(
            f"a new table needs {RECORD_KEY}: the column (or columns, with commas) that identify a row"
        )
    name = _table_name(storage, options.table_name)
    merge_mode = options.merge_mode or (EVENT_TIME if options.ordering_field else COMMIT_TIME)
    if merge_mode == EVENT_TIME and not options.ordering_field:
        raise InvalidRequest(f"{MERGE_MODE}={EVENT_TIME} needs {ORDERING_FIELD}: the column whose greater value wins")
    hash_fields = options.hash_fields or options.record_key_fields
    check_unique(schema)
    _check_fields(schema, options, hash_fields)
    config = TableConfig(
        name=name,
        database=options.database,
        record_key_fields=options.record_key_fields,
        partition_fields=options.partition_fields or (),
        key_generator=options.key_generator,
        partition_kinds=options.partition_kinds,
        time_options=options.time_options,
        ordering_field=options.ordering_field,
        merge_mode=merge_mode,
        table_type=options.table_type or MERGE_ON_READ,
        hive_style_partitioning=bool(options.hive_style),
        url_encode_partitioning=bool(options.url_encode),
        bucket_count=options.bucket_count or DEFAULT_BUCKET_COUNT,
        hash_fields=hash_fields,
        column_groups=options.column_groups or (),
        cdc_enabled=bool(options.cdc_enabled),
        cdc_mode=options.cdc_mode or DATA_BEFORE_AFTER,
        version=options.table_version or LATEST_VERSION,
        locks=record_of(storage.uri, options.manager.scope),
        create_schema=arrow_to_avro(schema, name),
    )
    _check_times(config, schema)
    if len(config.record_key_fields) == 1 and config.complex_keys:
        config = replace(config, key_encoding=FIELD_PREFIXED if config.version >= LATEST_VERSION else VALUE_ONLY)
    check_groups(config, schema)
    return config


def _check_times(config: TableConfig, schema: pa.Schema) -> None:
    """`InvalidRequest` unless each partition field is of a type of which its key generator makes folders."""
    fields = config.partition_fields
    if config.key_generator == TIMESTAMP_KEYS and (len(fields), len(config.record_key_fields)) != (1, 1):
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
    """`InvalidRequest` where a new table would take files for its own. Those of a first write that failed are."""
    timeline = Timeline.look(storage)
    if timeline.has_history or any(one.action in WRITE_ACTIONS for one in timeline.completed):
        raise InvalidRequest(
            f"{storage.uri} has commits and no {PROPERTIES_PATH}: restore that file from a copy, or choose another path"
        )
    found = storage.list("")
    others = [*found.files, *(name for name in found.folders if name != ".hoodie")]
    if others and not timeline.instants:
        what, _ = what_is_there(storage)
        raise InvalidRequest(
            f"{storage.uri} is not empty and is no table: {what}, and readers would take its files for data. Choose "
            "another path"
        )


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
    for field in options.record_key_fields or ():
        check_text(field, schema.field(field).type)
    if options.ordering_field:
        sortable_type(schema.field(options.ordering_field).type)
    strangers = set(hash_fields) - set(options.record_key_fields or ())
    if strangers:
        raise InvalidRequest(f"{HASH_FIELD}={','.join(hash_fields)} must be among the record key fields")
    if any(name in META_COLUMNS for name in schema.names):
        raise InvalidRequest("columns that start with _hoodie_ are the table's own: drop them from the data")
