"""Opening a table: its properties, its columns at a moment, and helpful errors where there is no table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.table.schema import schema_at
from lakelatch.engine.table.table import OpenedTable, check_agreement, check_mode, check_writable
from lakelatch.errors import CorruptTable, InvalidRequest, LakelatchError
from lakelatch.format.slices.partitions import PARTITION_METADATA
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.events import LOCKS, WITHDRAW
from lakelatch.timeline.log.log_reader import LogReader
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig, load_table_config
from lakelatch.transactions.base.context import MemoryCheck

_DATA_FILES = (".parquet", ".orc", ".avro", ".csv", ".json")


def open_table(storage: Storage, memory_check: MemoryCheck | None = None) -> OpenedTable:
    """Opens a table for reading; `memory_check` makes its requests meanwhile. `InvalidRequest` if there is none."""
    return table_at(storage, *look_at(storage, memory_check))


def look_at(storage: Storage, memory_check: MemoryCheck | None = None) -> tuple[TableConfig, Snapshot]:
    """The table's configuration, and its timeline by one listing, which is that of `memory_check` if given.

    Errors: those of `load_config`; `CorruptTable` for a timeline that is gone.
    """
    with _describing(storage):
        return looked_at(storage, memory_check)


def load_config(storage: Storage) -> TableConfig:
    """As `load_table_config`; where there is no table, the error describes what is there."""
    with _describing(storage):
        return load_table_config(storage)


@contextmanager
def _describing(storage: Storage) -> Iterator[None]:
    """Adds to the error for a missing table what is there instead."""
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
    """A description of a place that is no table, and what to do, as parts of an error's text."""
    if isinstance(storage, LocalStorage) and os.path.isfile(storage.root):
        return "it is a file", "name the table's folder"
    try:
        found = storage.list("")
    except LakelatchError:  # the caller's own error says more
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
        return "it has a folder .hoodie without that file, as before the first commit", way_out
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


def looked_at(storage: Storage, memory_check: MemoryCheck | None) -> tuple[TableConfig, Snapshot]:
    """Reads the properties and the timeline in one round of requests. Errors: `InvalidRequest` if there is no table."""
    configs: list[TableConfig] = []
    looks: list[Snapshot] = []

    def configure() -> None:
        configs.append(load_table_config(storage))

    if memory_check is not None:
        storage.together(configure, *memory_check.requests)
        looks.append(memory_check.listing)
    else:
        storage.together(configure, lambda: looks.append(Snapshot.look(storage)))
    if not looks[0].by_requested and not looks[0].has_history:
        _ensure_never_written(storage)
    return configs[0], looks[0]


def _ensure_never_written(storage: Storage) -> None:
    """`CorruptTable` for a table without a timeline whose commit log says that it had one: it would read as empty.

    The instant of a slot is on the timeline before the slot is put, except for slots that record the table's locks, and
    for those that change nothing: a transaction over several tables has read this one, or was aborted.
    Costs a request for a table that was never written, and one for each slot.
    """
    log = LogReader(storage)
    slots = [event.number for event in log.standing(log.tail()) if event.kind not in (LOCKS, WITHDRAW)]
    if slots and not Snapshot.look(storage).by_requested:
        raise CorruptTable(
            f"{storage.uri} has no files in {TIMELINE_FOLDER}, and its commit log has slots up to {max(slots)}: "
            "restore that folder from a copy",
            path=TIMELINE_FOLDER,
        )


def table_at(storage: Storage, config: TableConfig, timeline: Snapshot, moment: str | None = None) -> OpenedTable:
    """The table of this configuration, with its columns as of a completion time, or of the timeline.

    Errors: those of `open_table`.
    """
    schema = schema_at(storage, config, timeline, moment)
    return OpenedTable(storage, config, schema.columns, schema.path)


def with_columns_at(table: OpenedTable, snapshot: Snapshot) -> OpenedTable:
    """The table with its columns of then: services that rewrite files must know all columns in them."""
    found = table_at(table.storage, table.config, snapshot)
    return replace(found, base_files=table.base_files)


def require_writable(storage: Storage, memory_check: MemoryCheck | None = None) -> OpenedTable:
    """Opens an existing table for a table service; `InvalidRequest` if it is read-only."""
    table = open_table(storage, memory_check)
    check_writable(table.config)
    return table


def open_existing(storage: Storage, options: WriteOptions, memory_check: MemoryCheck | None = None) -> OpenedTable:
    """Opens an existing table for a write; `InvalidRequest` if there is none, or the options do not agree with it."""
    return agreeing(table_at(storage, *look_at(storage, memory_check)), options)


def agreeing(table: OpenedTable, options: WriteOptions) -> OpenedTable:
    """The table, after checking that the options of a write agree with it. Errors: `InvalidRequest`."""
    check_writable(table.config)
    check_agreement(options, table.config)
    check_mode(options, table.config)
    return table


def open_existing_storage(path: str, options: Mapping[str, object] | None) -> Storage:
    """As `open_place`; `InvalidRequest` also where there is no table."""
    storage = open_place(path, options)
    load_config(storage)
    return storage


def open_place(path: str, options: Mapping[str, object] | None) -> Storage:
    """The storage of a path, with or without a table, by the storage options. Errors: `InvalidRequest` for options."""
    return open_storage(path, Call(options).services().manager.storage)
