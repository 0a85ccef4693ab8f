"""Merging a file slice: the base file's rows, then each log's rows and deletes in order, one row for each key.

Read as a fold over that sequence. Under commit-time ordering the later entry wins. Under event-time ordering an entry
wins if its ordering value is at least the current one's; a delete with the default ordering value wins over all before
it, and whatever comes after it wins over it. Written as one pass over columns: drop what lies at or before a key's last
such delete, then take the greatest (ordering value, position).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import CorruptTable, InvalidRequest, InvariantBroken
from lakelatch.pipeline.barred import ensure_barred
from lakelatch.pipeline.file_names import LogFile, parse_data_file
from lakelatch.pipeline.file_slices import FileSlice
from lakelatch.pipeline.log_blocks import Deletes, LogEntries, read_log_file
from lakelatch.pipeline.parquet_files import read_parquet
from lakelatch.pipeline.schemas import IS_DELETED_COLUMN, RECORD_KEY_COLUMN
from lakelatch.storage.contract import Storage
from lakelatch.timeline.column_groups import COLUMN_GROUPS
from lakelatch.timeline.instants import Timeline
from lakelatch.timeline.table_config import EVENT_TIME


@dataclass(frozen=True)
class Merged:
    """A merged slice, sorted by record key. Counts are of rows or keys; `log_records` counts deletes too.

    `deletes` are those that won, with their ordering values: a row that comes later may still be older than they are.
    `group_deletes` are the same for tables with column groups, as rows.
    """

    rows: pa.Table
    base_records: int
    log_records: int
    updated: int
    deleted: int
    inserted: int
    deletes: Deletes | None = None
    group_deletes: pa.Table | None = None


def merge_slice(
    storage: Storage,
    file_slice: FileSlice,
    schema: pa.Schema,
    merge_mode: str,
    ordering_field: str | None,
    columns: Sequence[str] | None = None,
    completed_instants: Collection[str] = (),
) -> pa.Table:
    """The rows of a slice, one for each key, sorted by record key. `columns` names those wanted, or None for all.

    `schema` is the table's, with meta columns; those are the winning row's own. A column that a file does not have is
    null there. A log block counts if its instant is its file's own or one of `completed_instants` (for logs that
    older Hudi versions appended to). Errors: `CorruptTable`, and `NotFound` for a file that was cleaned meanwhile.
    """
    return merge_with_counts(storage, file_slice, schema, merge_mode, ordering_field, columns, completed_instants).rows


def merge_with_counts(
    storage: Storage,
    file_slice: FileSlice,
    schema: pa.Schema,
    merge_mode: str,
    ordering_field: str | None,
    columns: Sequence[str] | None = None,
    completed_instants: Collection[str] = (),
) -> Merged:
    """The same, with what a compaction reports about it."""
    names = schema.names if columns is None else list(columns)
    ordering_field = ordering_field if merge_mode == EVENT_TIME else None
    reader = SliceReader(storage, file_slice, _needed(schema, names, ordering_field), ordering_field)
    base = reader.base()
    entries = list(reader.log_entries(completed_instants))
    if not entries:
        return Merged(sort_rows(base, names), base.num_rows, 0, 0, 0, 0)
    log = _Entries.join([reader.to_entries(found) for found in entries])
    changed_keys = log.keys.unique()
    touched = pc.is_in(base[RECORD_KEY_COLUMN], value_set=changed_keys)
    touched_base = base.filter(touched)
    untouched = base.filter(pc.invert(touched))
    both = _Entries.join([reader.rows_to_entries(touched_base, may_delete=False), log])
    outcomes = _outcomes(both)
    winners = outcomes[~both.deletes[outcomes]]
    rows = sort_rows(pa.concat_tables([untouched, both.rows.take(both.row_numbers(winners))]), names)
    kept = rows.num_rows - untouched.num_rows
    base_keys = len(touched_base[RECORD_KEY_COLUMN].unique())
    in_base = pc.is_in(both.keys.take(winners), value_set=touched_base[RECORD_KEY_COLUMN])
    updated = pc.sum(in_base).as_py() or 0
    return Merged(
        rows=rows,
        base_records=base.num_rows,
        log_records=len(log.keys),
        updated=updated,
        deleted=base_keys - updated,
        inserted=kept - updated,
        deletes=reader.winning_deletes(both, outcomes[both.deletes[outcomes]]),
    )


@dataclass(frozen=True)
class Folded:
    """What a run of logs comes to without what lies below them: first `wiped`, then rows and other deletes.

    `wiped` are the keys of which a delete in the run took away all that came before it, whatever its ordering value.
    """

    wiped: Deletes | None
    rows: pa.Table
    deletes: Deletes | None


def fold_logs(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema, merge_mode: str, ordering_field: str | None
) -> Folded:
    """The logs of a slice as one that says the same, also if what it says is merged twice. Errors: as `merge_slice`."""
    ordering_field = ordering_field if merge_mode == EVENT_TIME else None
    reader = SliceReader(storage, file_slice, _needed(schema, schema.names, ordering_field), ordering_field)
    entries = list(reader.log_entries(()))
    if not entries:
        return Folded(None, reader.schema.empty_table(), None)
    log = _Entries.join([reader.to_entries(found) for found in entries])
    outcomes = _outcomes(log)
    deleting = log.deletes[outcomes]
    rows = sort_rows(log.rows.take(log.row_numbers(outcomes[~deleting])), schema.names)
    partition = file_slice.partition
    if ordering_field is None:
        gone = log.keys.take(pa.array(outcomes[deleting]))
        return Folded(None, rows, Deletes(gone, partition) if len(gone) else None)
    wiped = log.keys.filter(pa.array(log.default_deletes)).unique()
    deletes = reader.winning_deletes(log, outcomes[deleting])
    return Folded(Deletes(wiped, partition) if len(wiped) else None, rows, deletes)


@dataclass(frozen=True)
class _Entries:
    """Rows and deletes in the order in which they were written. `rows` holds a row for each entry that is no delete."""

    keys: pa.ChunkedArray
    ordering: pa.ChunkedArray | None
    has_row: npt.NDArray[np.bool_]
    deletes: npt.NDArray[np.bool_]
    default_deletes: npt.NDArray[np.bool_]
    rows: pa.Table

    @classmethod
    def join(cls, parts: list[_Entries]) -> _Entries:
        ordering = None
        if parts[0].ordering is not None:
            ordering = chunked([part.ordering for part in parts if part.ordering is not None])
        return cls(
            keys=chunked([part.keys for part in parts]),
            ordering=ordering,
            has_row=np.concatenate([part.has_row for part in parts]),
            deletes=np.concatenate([part.deletes for part in parts]),
            default_deletes=np.concatenate([part.default_deletes for part in parts]),
            rows=pa.concat_tables([part.rows for part in parts]),
        )

    def row_numbers(self, entries: npt.NDArray[np.int64]) -> pa.Array:
        """Where the rows of these entries stand in `rows`."""
        numbers = np.cumsum(self.has_row) - 1
        return pa.array(numbers[entries])


def _outcomes(entries: _Entries) -> npt.NDArray[np.int64]:
    """The position of the entry that wins, for each key; none if nothing follows a delete that wins in any case."""
    codes = np.asarray(entries.keys.combine_chunks().dictionary_encode().indices).astype(np.int64)
    positions = np.arange(len(codes))
    if entries.ordering is None:
        order = np.argsort(codes, kind="stable")
    else:
        barrier = np.full(int(codes.max(initial=-1)) + 1, -1)
        defaults = positions[entries.default_deletes]
        barrier[codes[defaults]] = defaults  # positions rise, so the last one of a key stays
        alive = positions[positions > barrier[codes]]
        ranked = ranks(entries.ordering.take(pa.array(alive)))
        order = alive[np.lexsort((alive, ranked, codes[alive]))]
    codes = codes[order]
    last: npt.NDArray[np.int64] = order[np.r_[codes[1:] != codes[:-1], np.ones(min(len(codes), 1), np.bool_)]]
    return last


def ranks(values: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Equal values share a rank; a null ranks below every value, not-a-number above them as in Java."""
    found = np.asarray(pc.rank(values, sort_keys="ascending", tiebreaker="dense")).astype(np.uint64)
    found[flags(pc.is_null(values))] = 0
    return found


@dataclass(frozen=True)
class SliceReader:
    """Loads the files of one slice. `schema` holds the columns that the caller wants and those that decide who wins."""

    storage: Storage
    file_slice: FileSlice
    schema: pa.Schema
    ordering_field: str | None

    def base(self) -> pa.Table:
        return self.base_with_footer()[0]

    def base_with_footer(self) -> tuple[pa.Table, Mapping[bytes, bytes]]:
        path = self.file_slice.base_path
        if path is None:
            return self.schema.empty_table(), {}
        table, footer = read_parquet(self.storage.read(path), path, self.schema.names, "base file")
        return self.conform(table, path), footer

    def log_entries(self, completed_instants: Collection[str]) -> Iterator[LogEntries]:
        """The blocks that count, in order; those that were rolled back are left out."""
        found: list[LogEntries] = []
        for path in self.file_slice.log_paths:
            name = parse_data_file(path.rpartition("/")[2])
            if not isinstance(name, LogFile):
                raise InvariantBroken(f"the slice names {path!r}, which is no log file")
            data = self.storage.read(path)
            if not data:
                ensure_barred(self.storage, Timeline.load(self.storage), path)
            for entries in read_log_file(data, path):
                if entries.rolled_back is not None:
                    found = [earlier for earlier in found if earlier.instant != entries.rolled_back]
                elif entries.instant == name.instant or entries.instant in completed_instants:
                    found.append(entries)
        yield from found

    def to_entries(self, found: LogEntries) -> _Entries:
        if found.partial:
            raise InvalidRequest(
                f"a log block of {found.path} is a partial update by Hudi, which can "
                f"be read only in a table with {COLUMN_GROUPS}: let Hudi compact the table first"
            )
        if found.records is not None:
            rows = self.conform(found.records, f"a log block of {found.path}")
            return self.rows_to_entries(rows, may_delete=True)
        deletes = found.deletes
        if deletes is None:
            raise InvariantBroken(f"a log block of {found.instant} holds neither rows nor deletes")
        count = len(deletes.keys)
        values = pa.nulls(count) if deletes.ordering is None else deletes.ordering
        return _Entries(
            keys=chunked([deletes.keys]),
            ordering=self._comparable(values, found.path),
            has_row=np.zeros(count, np.bool_),
            deletes=np.ones(count, np.bool_),
            default_deletes=flags(pc.is_null(values)),
            rows=self.schema.empty_table(),
        )

    def rows_to_entries(self, rows: pa.Table, may_delete: bool) -> _Entries:
        count = rows.num_rows
        deletes = default_deletes = np.zeros(count, np.bool_)
        values = rows[self.ordering_field] if self.ordering_field is not None else pa.nulls(count)
        if may_delete and IS_DELETED_COLUMN in rows.column_names:
            deletes = flags(pc.fill_null(rows[IS_DELETED_COLUMN], False))
            default_deletes = deletes & flags(_is_default(values))
        return _Entries(
            keys=chunked([rows[RECORD_KEY_COLUMN]]),
            ordering=self._comparable(values, self.file_slice.file_id),
            has_row=np.ones(count, np.bool_),
            deletes=deletes,
            default_deletes=default_deletes,
            rows=rows,
        )

    def winning_deletes(self, entries: _Entries, winners: npt.NDArray[np.int64]) -> Deletes | None:
        """These entries as deletes with ordering values; None without such values, or without entries."""
        if entries.ordering is None or self.ordering_field is None or not len(winners):
            return None
        keys = entries.keys.take(winners)
        order = pc.sort_indices(keys)
        values = entries.ordering.take(winners).take(order)
        kind = self.schema.field(self.ordering_field).type
        return Deletes(keys.take(order), self.file_slice.partition, _restored(values, kind))

    def _comparable(self, values: pa.Array | pa.ChunkedArray, what: str) -> pa.ChunkedArray | None:
        if self.ordering_field is None:
            return None
        kind = self.schema.field(self.ordering_field).type
        try:
            return chunked([comparable(values, kind)])
        except pa.ArrowException as error:
            raise CorruptTable(
                f"{what!r} holds ordering values of type {values.type}, and the "
                f"ordering field {self.ordering_field!r} is {kind}: {error}"
            ) from error

    def conform(self, table: pa.Table, what: str) -> pa.Table:
        columns = []
        for field in self.schema:
            if field.name not in table.column_names:
                columns.append(pa.nulls(table.num_rows, field.type))
                continue
            try:
                columns.append(table[field.name].cast(field.type))
            except pa.ArrowException as error:
                raise CorruptTable(
                    f"the column {field.name!r} of {what} cannot become {field.type}: {error}"
                ) from error
        conformed = pa.table(columns, schema=self.schema)
        if conformed[RECORD_KEY_COLUMN].null_count:
            raise CorruptTable(f"{what} has rows without a record key: restore it from a copy")
        return conformed


def _needed(schema: pa.Schema, names: Sequence[str], ordering_field: str | None) -> pa.Schema:
    known = schema.names
    deciding = [RECORD_KEY_COLUMN, *([ordering_field] if ordering_field else [])]
    missing = [name for name in (*names, *deciding) if name not in known]
    if missing:
        raise InvalidRequest(f"the column(s) {', '.join(missing)} are not in the table's schema ({', '.join(known)})")
    if IS_DELETED_COLUMN in known:
        deciding.append(IS_DELETED_COLUMN)
    return pa.schema([schema.field(name) for name in dict.fromkeys((*names, *deciding))])


def comparable(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Ordering values of type `kind`, which may come in a wider type of the same family, as one sortable type."""
    types = pa.types
    if types.is_null(values.type):
        values = pa.nulls(len(values), kind)
    if types.is_timestamp(values.type) and types.is_timestamp(kind):
        values = values.cast(pa.timestamp(kind.unit, values.type.tz), safe=False)
    if types.is_temporal(values.type):
        values = values.cast(pa.int32() if types.is_date32(values.type) else pa.int64())
    values = values.cast(sortable_type(kind))
    return pc.fill_null(values, 0) if types.is_integer(values.type) else values  # Hudi's default is an int of 0


def _restored(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Comparable values as the type that they came from."""
    return (values.cast(pa.int32()) if pa.types.is_date32(kind) else values).cast(kind)


def sortable_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_decimal(kind):
        return pa.decimal256(76, max(kind.scale, 15))
    if types.is_floating(kind):
        return pa.float64()
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_temporal(kind):
        return pa.int64()
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    raise InvalidRequest(f"an ordering field of type {kind} cannot be compared: use a number, text, date or timestamp")


def _is_default(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A deleting row without an ordering value, or with Hudi's default one, an int of 0, deletes in any case."""
    missing = pc.is_null(values)
    if not pa.types.is_int32(values.type):
        return missing
    return pc.or_(missing, pc.fill_null(pc.equal(values, 0), False))


def flags(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(values).astype(np.bool_)


def chunked(arrays: list[pa.Array | pa.ChunkedArray]) -> pa.ChunkedArray:
    chunks = [chunk for array in arrays for chunk in (array.chunks if isinstance(array, pa.ChunkedArray) else [array])]
    return pa.chunked_array(chunks, arrays[0].type)


def sort_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    order = pc.sort_indices(rows[RECORD_KEY_COLUMN])
    return rows.select(names).take(order)
