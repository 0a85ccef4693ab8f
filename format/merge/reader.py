"""The files of one slice, read as tables of one schema."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import CorruptTable, InvalidRequest, InvariantBroken
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.base_files import BaseFileRows, open_base_file
from lakelatch.format.evolution import conform
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import LogEntries, read_log_file
from lakelatch.format.log.native import read_native_log
from lakelatch.format.merge.reading_ahead import read_each
from lakelatch.format.names import LogFile, parse_data_file
from lakelatch.format.tombstones import ensure_tombstone
from lakelatch.storage.contract import Storage
from lakelatch.timeline.log.whole_timeline import WholeTimeline


@dataclass(frozen=True)
class SliceReader:
    """Reads the files of one slice. `schema` holds the columns that the caller wants and those that decide who wins.

    `ordering` is the field that decides between rows and deletes, if one does.
    """

    storage: Storage
    file_slice: FileSlice
    schema: pa.Schema
    more: tuple[LogEntries, ...] = ()
    ordering: str = ""

    def above(self, entries: Sequence[LogEntries]) -> SliceReader:
        """The same slice with entries that lie in no log file yet, above those of its log files."""
        return replace(self, more=tuple(entries))

    def base(self, wanted: Callable[[int, Any], bool] | None = None) -> Base:
        """The base file, of which nothing but the footer is read yet; see `open_base_file` for `wanted`."""
        path = self.file_slice.base_path
        if path is None:
            return Base(self, None)
        return Base(self, open_base_file(self.storage, path, self.schema.names, wanted=wanted))

    def log_entries(self) -> list[LogEntries]:
        """The blocks that count, in order: those of their file's own instant that were not rolled back."""
        found: list[LogEntries] = []
        for block in self.blocks():
            if block.rolled_back is not None:
                found = [earlier for earlier in found if earlier.instant != block.rolled_back]
            else:
                found.append(block)
        return [*found, *self.more]

    def blocks(self) -> Iterator[LogEntries]:
        """The blocks of the log files, in order: those of their file's own instant, and what rolls earlier ones back.

        One is in memory until the next one is asked for, with the bytes of its file and of small ones after it.
        """
        paths = self.file_slice.log_paths
        for path, data in zip(paths, read_each(self.storage, paths), strict=True):
            name = parse_data_file(path.rpartition("/")[2])
            if not isinstance(name, LogFile):
                raise InvariantBroken(f"the slice names {path!r}, which is no log file")
            if not data:
                ensure_tombstone(WholeTimeline.load(self.storage), path)
            columns = self.schema.names
            native = partial(read_native_log, data, name, ordering=self.ordering)
            for entries in (native if name.native else partial(read_log_file, data))(path, columns):
                if entries.rolled_back is not None or entries.instant == name.instant:
                    yield entries
                del entries  # else it stays while the next one is decoded

    def conformed(self, block: LogEntries) -> LogEntries:
        """The block, with its rows as `conform` makes them."""
        if block.records is None:
            return block
        return replace(block, records=self.conform(block.records, f"a log block of {block.path}"))

    def conform(self, table: pa.Table, what: str) -> pa.Table:
        """A file's rows with the columns and types of `schema`; those it lacks are null. Errors: `CorruptTable`."""
        conformed = with_schema(table, self.schema, what)
        if conformed[RECORD_KEY_COLUMN].null_count:
            raise CorruptTable(f"{what} has rows without a record key: restore it from a copy")
        return conformed


def with_schema(table: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Rows of an older schema as those of this one; columns that they lack are null. Errors: `CorruptTable`."""
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(conform(table[field.name], field.type))
        except pa.ArrowException as error:
            raise CorruptTable(f"the column {field.name!r} of {what} cannot become {field.type}: {error}") from error
    return pa.table(columns, schema=schema)


@dataclass(frozen=True)
class Base:
    """The base file of a slice, or none: the texts of its footer, and its rows, part by part."""

    reader: SliceReader
    file: BaseFileRows | None

    @property
    def footer(self) -> Mapping[bytes, bytes]:
        return {} if self.file is None else self.file.footer

    def parts(self, low_memory: bool = False) -> Iterator[pa.Table]:
        """Rows with the reader's columns; `low_memory` is that of `BaseFileRows.parts`. Errors: `CorruptTable`."""
        for part in () if self.file is None else self.file.parts(low_memory):
            yield self.reader.conform(part, self.reader.file_slice.base_path or "")

    def record_keys(self) -> Iterator[pa.ChunkedArray]:
        """The record keys alone, for which nothing else is read."""
        alone = pa.schema([self.reader.schema.field(RECORD_KEY_COLUMN)])
        file = None if self.file is None else replace(self.file, names=alone.names)
        for part in replace(self, reader=replace(self.reader, schema=alone), file=file).parts(low_memory=True):
            yield part[RECORD_KEY_COLUMN]


def needed_columns(schema: pa.Schema, names: Sequence[str], deciding: Collection[str]) -> pa.Schema:
    """The columns that are wanted and those that decide who wins. Errors: `InvalidRequest` if one is missing."""
    wanted = {*names, *deciding}
    missing = [name for name in dict.fromkeys((*names, *deciding)) if name not in schema.names]
    if missing:
        known = ", ".join(schema.names)
        raise InvalidRequest(f"the column(s) {', '.join(missing)} are not in the table's schema ({known})")
    return pa.schema([field for field in schema if field.name in wanted])


def sort_rows(rows: pa.Table) -> pa.Table:
    """The rows by record key."""
    return rows.take(pc.sort_indices(rows[RECORD_KEY_COLUMN]))
