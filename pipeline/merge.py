"""Merging one file slice into its current rows, in columns.

The entries of a slice have an order: the base file's, then each log's in turn. By commit time the last entry of a key
wins. By event time the entry with the greatest ordering value wins, the later one of equals; a delete without an
ordering value wins over everything before it and loses to everything after it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable
from lakelatch.pipeline.file_slices import FileSlice
from lakelatch.pipeline.log_blocks import Deletes, Entries, decode_log_file
from lakelatch.pipeline.schemas import IS_DELETED_COLUMN, RECORD_KEY_COLUMN, conform
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.table_config import EVENT_TIME


def merge_slice(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema, merge_mode: str, ordering_field: str | None
) -> pa.Table:
    """The rows of a slice, one for each key, sorted by key, with the meta columns of the winning entry.

    `schema` has the meta columns. Errors: `CorruptTable`, naming the file.
    """
    merger = _Merger(schema, ordering_field if merge_mode == EVENT_TIME else None)
    for entries in _entries(storage, file_slice):
        merger.add(entries)
    return merger.result()


def _entries(storage: Storage, file_slice: FileSlice) -> Iterator[Entries]:
    if file_slice.base_path is not None:
        data = _read(storage, file_slice.base_path)
        try:
            yield Entries(records=pq.read_table(io.BytesIO(data)))
        except (pa.ArrowException, OSError) as error:
            raise CorruptTable(
                f"the base file {file_slice.base_path!r} is damaged ({error}): restore it from a copy"
            ) from error
    for path in file_slice.log_paths:
        yield from decode_log_file(_read(storage, path), path)


def _read(storage: Storage, path: str) -> bytes:
    try:
        return storage.read(path)
    except NotFound:
        raise CorruptTable(f"the data file {path!r} belongs to the table and is gone: restore it from a copy") from None


class _Merger:
    """Collects entries in order; `result` picks the winners."""

    def __init__(self, schema: pa.Schema, ordering_field: str | None) -> None:
        self._schema = schema
        self._ordering_field = ordering_field
        self._ordering_type = schema.field(ordering_field).type if ordering_field else None
        self._records: list[pa.Table] = []
        self._record_count = 0
        self._keys: list[pa.Array] = []
        self._ordering: list[pa.Array] = []
        self._rows: list[npt.NDArray[np.int64]] = []
        self._unordered: list[npt.NDArray[np.bool_]] = []  # deletes that win over all before them

    def add(self, entries: Entries) -> None:
        if entries.records is not None:
            self._add_records(conform(entries.records, self._schema))
        if entries.deletes is not None:
            self._add_deletes(entries.deletes)

    def _add_records(self, records: pa.Table) -> None:
        rows = np.arange(self._record_count, self._record_count + records.num_rows, dtype=np.int64)
        if IS_DELETED_COLUMN in records.column_names:
            deleted = pc.fill_null(records[IS_DELETED_COLUMN].cast(pa.bool_()), False).to_numpy()
            rows[deleted.astype(bool)] = -1
        self._records.append(records)
        self._record_count += records.num_rows
        ordering = None
        if self._ordering_field is not None:
            ordering = records[self._ordering_field].combine_chunks()
        self._append(records[RECORD_KEY_COLUMN].combine_chunks(), ordering, rows, unordered=False)

    def _add_deletes(self, deletes: Deletes) -> None:
        rows = np.full(len(deletes.keys), -1, dtype=np.int64)
        ordering = deletes.ordering if self._ordering_type is not None else None
        if ordering is not None:
            ordering = ordering.cast(self._ordering_type)
        self._append(deletes.keys, ordering, rows, unordered=ordering is None)

    def _append(self, keys: pa.Array, ordering: pa.Array | None, rows: npt.NDArray[np.int64], unordered: bool) -> None:
        self._keys.append(keys)
        self._rows.append(rows)
        self._unordered.append(np.full(len(keys), unordered, dtype=np.bool_))
        if self._ordering_type is not None:
            self._ordering.append(pa.nulls(len(keys), self._ordering_type) if ordering is None else ordering)

    def result(self) -> pa.Table:
        if not self._records:
            return self._schema.empty_table()
        keys = pa.chunked_array(self._keys, pa.string()).combine_chunks().dictionary_encode()
        codes = keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        rows = np.concatenate(self._rows)
        sequence = np.arange(len(rows), dtype=np.int64)
        ranks = np.zeros(len(rows), dtype=np.int64)
        if self._ordering_type is not None:
            ordering = pa.chunked_array(self._ordering, self._ordering_type)
            ranks = pc.rank(ordering, sort_keys="ascending", null_placement="at_start", tiebreaker="dense").to_numpy()
            ranks = ranks.astype(np.int64)
            kept = self._after_last_unordered_delete(codes, sequence)
            codes, rows, sequence, ranks = codes[kept], rows[kept], sequence[kept], ranks[kept]
        order = np.lexsort((sequence, ranks, codes))
        last = np.r_[codes[order][1:] != codes[order][:-1], True] if len(order) else np.zeros(0, dtype=bool)
        winners = rows[order[last]]
        winners = winners[winners >= 0]
        merged = pa.concat_tables(self._records).take(pa.array(winners))
        return merged.sort_by(RECORD_KEY_COLUMN)

    def _after_last_unordered_delete(
        self, codes: npt.NDArray[np.int64], sequence: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        unordered = np.concatenate(self._unordered)
        if not unordered.any():
            return np.ones(len(codes), dtype=np.bool_)
        barrier = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
        np.maximum.at(barrier, codes[unordered], sequence[unordered])
        return sequence > barrier[codes]
