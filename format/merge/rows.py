"""Merging the rows of a slice: the base file's, then each log's rows and deletes in order, one row for each key.

Read as a fold over that sequence. Under commit-time ordering the later entry wins. Under event-time ordering an entry
wins if its ordering value is at least the current one's; a delete with the default ordering value wins over all before
it, and whatever comes after it wins over it. Written as one pass over columns: drop what lies at or before a key's last
such delete, then take the greatest (ordering value, position).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import CorruptTable, InvalidRequest, InvariantBroken
from lakelatch.format.avro import IS_DELETED_COLUMN, RECORD_KEY_COLUMN
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import Deletes, LogEntries
from lakelatch.format.merge.ordering import chunked, comparable, flags, is_default, ranks, restored
from lakelatch.format.merge.outcome import CompactedLogs, Merged
from lakelatch.format.merge.reader import Base, SliceReader, needed_columns, sort_rows
from lakelatch.format.merge.stream import Merging
from lakelatch.storage.contract import Storage
from lakelatch.timeline.column_groups import COLUMN_GROUPS


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


@dataclass(frozen=True)
class RowMerging(Merging):
    """Merging in a table without column groups; `ordering_field` is None under commit-time ordering."""

    ordering_field: str | None

    @classmethod
    def of(
        cls,
        storage: Storage,
        file_slice: FileSlice,
        schema: pa.Schema,
        ordering_field: str | None,
        columns: Sequence[str],
    ) -> RowMerging:
        deciding = [RECORD_KEY_COLUMN, *([ordering_field] if ordering_field else [])]
        if IS_DELETED_COLUMN in schema.names:
            deciding.append(IS_DELETED_COLUMN)
        needed = needed_columns(schema, columns, deciding)
        return cls(SliceReader(storage, file_slice, needed, ordering=ordering_field or ""), ordering_field)

    def prepared(self, block: LogEntries) -> LogEntries:
        if block.partial:
            raise InvalidRequest(
                f"a log block of {block.path} is a partial update by Hudi, which can "
                f"be read only in a table with {COLUMN_GROUPS}: let Hudi compact the table first"
            )
        return self.reader.conformed(block)

    def merge(self, rows: pa.Table, blocks: Sequence[LogEntries]) -> Merged:
        both = _Entries.join([self.of_rows(rows, may_delete=False), *map(self.of_block, blocks)])
        outcomes = _outcomes(both)
        deleting = both.deletes[outcomes]
        winners = outcomes[~deleting]
        found = both.rows if len(winners) == both.rows.num_rows else both.rows.take(both.row_numbers(winners))
        return Merged(found, self.deletes(both, outcomes[deleting]))

    def compacted(self, blocks: Sequence[LogEntries]) -> CompactedLogs:
        log = _Entries.join([self.of_block(block) for block in blocks])
        outcomes = _outcomes(log)
        deleting = log.deletes[outcomes]
        rows = sort_rows(log.rows.take(log.row_numbers(outcomes[~deleting])))
        partition = self.reader.file_slice.partition
        if self.ordering_field is None:
            gone = log.keys.take(pa.array(outcomes[deleting]))
            return CompactedLogs(None, (rows,), Deletes(gone, partition) if len(gone) else None)
        wiped = log.keys.filter(pa.array(log.default_deletes)).unique()
        deletes = self.deletes(log, outcomes[deleting])
        return CompactedLogs(Deletes(wiped, partition) if len(wiped) else None, (rows,), deletes)

    def staying(self, rows: pa.Table, blocks: Sequence[LogEntries]) -> pa.ChunkedArray:
        """The keys at which one of these rows of the base file wins over all entries of the blocks."""
        both = _Entries.join([self.of_rows(rows, may_delete=False), *map(self.of_block, blocks)])
        outcomes = _outcomes(both)
        return both.keys.take(pa.array(outcomes[outcomes < rows.num_rows]))

    def unmerged(self, base: Base) -> Merged:
        return Merged(self.reader.schema.empty_table())

    def of_block(self, found: LogEntries) -> _Entries:
        """The rows or deletes of a log block."""
        if found.records is not None:
            return self.of_rows(found.records, may_delete=True)
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
            default_deletes=flags(is_default(values)),
            rows=self.reader.schema.empty_table(),
        )

    def of_rows(self, rows: pa.Table, may_delete: bool) -> _Entries:
        """Rows, of which some are deletes if `_hoodie_is_deleted` says so and they `may_delete`."""
        count = rows.num_rows
        deletes = default_deletes = np.zeros(count, np.bool_)
        values = rows[self.ordering_field] if self.ordering_field is not None else pa.nulls(count)
        if may_delete and IS_DELETED_COLUMN in rows.column_names:
            deletes = flags(pc.fill_null(rows[IS_DELETED_COLUMN], False))
            default_deletes = deletes & flags(is_default(values))
        return _Entries(
            keys=chunked([rows[RECORD_KEY_COLUMN]]),
            ordering=self._comparable(values, self.reader.file_slice.file_id),
            has_row=np.ones(count, np.bool_),
            deletes=deletes,
            default_deletes=default_deletes,
            rows=rows,
        )

    def deletes(self, entries: _Entries, winners: npt.NDArray[np.int64]) -> Deletes | None:
        """These entries as deletes with ordering values; None without such values, or without entries."""
        if entries.ordering is None or self.ordering_field is None or not len(winners):
            return None
        keys = entries.keys.take(winners)
        order = pc.sort_indices(keys)
        values = entries.ordering.take(winners).take(order)
        kind = self.reader.schema.field(self.ordering_field).type
        return Deletes(keys.take(order), self.reader.file_slice.partition, restored(values, kind))

    def _comparable(self, values: pa.Array | pa.ChunkedArray, what: str) -> pa.ChunkedArray | None:
        if self.ordering_field is None:
            return None
        kind = self.reader.schema.field(self.ordering_field).type
        try:
            return chunked([comparable(values, kind)])
        except pa.ArrowException as error:
            raise CorruptTable(
                f"{what!r} holds ordering values of type {values.type}, and the "
                f"ordering field {self.ordering_field!r} is {kind}: {error}"
            ) from error


def _outcomes(entries: _Entries) -> npt.NDArray[np.int64]:
    """The position of the entry that wins, for each key; none if nothing follows a delete that wins in any case."""
    encoded = entries.keys.combine_chunks().dictionary_encode()
    positions = np.arange(len(encoded))
    if len(encoded.dictionary) == len(encoded):  # each key once, as after most bulk loads
        return positions if entries.ordering is None else positions[~entries.default_deletes]
    codes = np.asarray(encoded.indices).astype(np.int64)
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
