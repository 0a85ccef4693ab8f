"""Logs that are too many for memory: sorted runs in a temporary file, which come back by record key.

Blocks go to the file some at a time, sorted by record key as one run, with the number of its block in each entry.
Sorting leaves the entries of one key as they were, and later runs have later blocks: so what comes back for a key are
its entries in the order in which they were written, and who wins among them is left to the merge.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvariantBroken
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.log.blocks import Deletes, LogEntries
from lakelatch.format.merge.ordering import chunked
from lakelatch.format.sorting.spill import SpilledRuns, temporary_file, writing_temporary_file

_WHAT = "the logs of a slice"
_NUMBER_COLUMN = "_lakelatch_block_number"
_ORDERING_COLUMN = "ordering"


@dataclass(frozen=True)
class LogBounds:
    """How many bytes of logs are in memory at once, by what is done with them.

    `held` are never written to a file; `run` are sorted at once, and are a run then; `batch` are read at once of each
    run; `part` come back at once, or a few more, unless one key alone has more.
    """

    held: int = 128 * 1024 * 1024
    run: int = 32 * 1024 * 1024
    batch: int = 256 * 1024
    part: int = 16 * 1024 * 1024


class SpilledLogs:
    """Blocks of logs in a temporary file: first all of them are added, and after `begin` they come back by key."""

    def __init__(self, file: IO[bytes], bounds: LogBounds) -> None:
        self._runs = SpilledRuns(file)
        self._bounds = bounds
        self._instants: list[str] = []  # by the number of the block, as what follows
        self._stretches: list[int] = []  # neighbours of one kind, which may come back as one block
        self._stretch_of = np.zeros(0, np.int64)  # the same, once they come back
        self._kinds: list[LogEntries] = []  # by stretch: a block without entries
        self._forgotten: set[int] = set()
        self._ends: list[tuple[str, int]] = []  # the last key of each batch, and how many bytes it has
        self._cuts: deque[str] = deque()
        self._left: list[_Run] = []

    @classmethod
    def opened_in(cls, opened: ExitStack, bounds: LogBounds) -> SpilledLogs:
        """None yet; their file is gone when the context ends."""
        with writing_temporary_file(_WHAT):
            return cls(opened.enter_context(temporary_file()), bounds)

    @property
    def part_bytes(self) -> int:
        """See `LogsByKey`."""
        return self._bounds.part

    def add(self, blocks: list[LogEntries]) -> None:
        """Takes further blocks out of a list. Errors: `Unavailable` if the file cannot be written."""
        gathered: list[pa.Table] = []
        size_bytes = 0
        while blocks:
            for part in _of_at_most(self._numbered(blocks.pop(0)), self._bounds.run):
                if gathered and size_bytes + part.nbytes > self._bounds.run:
                    self._write(gathered)
                    size_bytes = 0
                gathered.append(part)
                size_bytes += part.nbytes
        self._write(gathered)

    def forget_instant(self, instant: str) -> None:
        """Forgets the blocks of an instant that were added so far."""
        self._forgotten.update(number for number, own in enumerate(self._instants) if own == instant)

    def begin(self) -> None:
        """From now on they come back, and none is added any more."""
        size_bytes = 0
        for key, own in sorted(self._ends):
            size_bytes += own
            if size_bytes >= self._bounds.part and (not self._cuts or self._cuts[-1] < key):
                self._cuts.append(key)
                size_bytes = 0
        self._ends.clear()
        self._stretch_of = np.asarray(self._stretches, np.int64)
        self._left = [_Run(batches) for batches in self._runs.batches()]

    def until(self, key: str | None) -> Iterator[tuple[str | None, list[LogEntries]]]:
        """The entries left up to this key, or all for None, in parts: the last key a part may have, and its entries."""
        while self._cuts and (key is None or self._cuts[0] <= key):
            cut = self._cuts.popleft()
            if cut != key:
                yield cut, self._blocks_until(cut)
        yield key, self._blocks_until(key)

    def _numbered(self, block: LogEntries) -> pa.Table:
        number = len(self._instants)
        if not self._kinds or _kind_of(self._kinds[-1]) != _kind_of(block):
            self._kinds.append(_emptied(block))
        self._instants.append(block.instant)
        self._stretches.append(len(self._kinds) - 1)
        rows = _rows_of(block)
        return rows.append_column(_NUMBER_COLUMN, pa.array(np.full(rows.num_rows, number, np.int32)))

    def _write(self, gathered: list[pa.Table]) -> None:
        """Writes these as runs: one, unless their columns differ, as those of rows and deletes do."""
        by_schema: dict[pa.Schema, list[pa.Table]] = {}
        for part in gathered:
            by_schema.setdefault(part.schema, []).append(part)
        gathered.clear()
        for parts in by_schema.values():
            rows = pa.concat_tables(parts).combine_chunks()
            parts.clear()
            rows = rows.take(pc.sort_indices(rows[RECORD_KEY_COLUMN]))  # which is stable
            row_bytes = max(rows.nbytes / rows.num_rows, 1)
            batch_rows = max(int(self._bounds.batch / row_bytes), 1)
            with writing_temporary_file(_WHAT):
                self._runs.add(rows, batch_rows)
            for start in range(0, rows.num_rows, batch_rows):
                last = min(start + batch_rows, rows.num_rows) - 1
                size_bytes = int((last + 1 - start) * row_bytes)
                self._ends.append((rows[RECORD_KEY_COLUMN][last].as_py(), size_bytes))

    def _blocks_until(self, key: str | None) -> list[LogEntries]:
        found = [block for run in self._left for block in self._blocks_in(run.until(key))]
        found.sort(key=lambda one: one[0])  # which leaves the runs of one stretch in their order
        return [block for _, block in found]

    def _blocks_in(self, batches: Sequence[pa.RecordBatch]) -> Iterator[tuple[int, LogEntries]]:
        """The entries of one run's next rows, by stretch."""
        if not batches:
            return
        rows = pa.Table.from_batches(batches)
        numbers = np.asarray(rows[_NUMBER_COLUMN])
        if self._forgotten:
            stays = ~np.isin(numbers, list(self._forgotten))
            rows, numbers = rows.filter(pa.array(stays)), numbers[stays]
        rows = rows.drop_columns([_NUMBER_COLUMN])
        stretches = self._stretch_of[numbers]
        present, counts = np.unique(stretches, return_counts=True)
        if len(present) > 1:  # one after the other, each by key
            rows = rows.take(pa.array(np.argsort(stretches, kind="stable")))
        start = 0
        for stretch, count in zip(present.tolist(), counts.tolist(), strict=True):
            yield stretch, _with_rows(self._kinds[stretch], rows.slice(start, count))
            start += count


class _Run:
    """The rest of a run."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = next(batches, None)

    def until(self, key: str | None) -> list[pa.RecordBatch]:
        """The next rows, up to this key or all for None, which are left no more."""
        found = []
        while self._rest is not None:
            keys = self._rest.column(RECORD_KEY_COLUMN)
            end = len(keys) if key is None else bisect_right(keys, key, key=pa.StringScalar.as_py)
            if end:
                found.append(self._rest.slice(0, end))
            if end < len(keys):
                self._rest = self._rest.slice(end)
                break
            self._rest = next(self._batches, None)
        return found


def keys_in(block: LogEntries) -> pa.ChunkedArray:
    """The key of each entry."""
    if block.deletes is not None:
        return chunked([block.deletes.keys])
    return pa.chunked_array([], pa.string()) if block.records is None else block.records[RECORD_KEY_COLUMN]


def size_of(block: LogEntries) -> int:
    """How many bytes of memory a block's entries keep. (To find nearly that, `nbytes` takes Arrow 40 times as long.)"""
    if block.records is not None:
        return int(block.records.get_total_buffer_size())
    if block.deletes is None:
        return 0
    found = (block.deletes.keys, block.deletes.ordering)
    return sum(int(own.get_total_buffer_size()) for own in found if own is not None)


def _of_at_most(rows: pa.Table, size_bytes: int) -> Iterator[pa.Table]:
    """The rows, if there are any; a large table in several parts."""
    count = max(int(rows.num_rows / max(rows.nbytes / size_bytes, 1)), 1)
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


def _kind_of(block: LogEntries) -> Hashable:
    """The common kind of blocks that may be one."""
    ordering = None if block.deletes is None or block.deletes.ordering is None else block.deletes.ordering.type
    return block.records is None, ordering, block.partial, block.group_deletes


def _emptied(block: LogEntries) -> LogEntries:
    """The same block without its entries, and without a hold on their memory."""
    if block.records is not None:
        return replace(block, records=block.records.schema.empty_table())
    if block.deletes is None:
        raise InvariantBroken(f"a log block of {block.instant} holds neither rows nor deletes")
    ordering = None if block.deletes.ordering is None else pa.array([], block.deletes.ordering.type)
    return replace(block, deletes=Deletes(pa.array([], pa.string()), block.deletes.partition, ordering))


def _rows_of(block: LogEntries) -> pa.Table:
    if block.records is not None:
        return block.records
    columns = {RECORD_KEY_COLUMN: keys_in(block)}
    if block.deletes is not None and block.deletes.ordering is not None:
        columns[_ORDERING_COLUMN] = chunked([block.deletes.ordering])
    return pa.table(columns)


def _with_rows(kind: LogEntries, rows: pa.Table) -> LogEntries:
    """A block of this kind with the entries that `_rows_of` has made rows."""
    if kind.deletes is None:
        return replace(kind, records=rows)
    ordering = None if kind.deletes.ordering is None else rows[_ORDERING_COLUMN]
    return replace(kind, deletes=replace(kind.deletes, keys=rows[RECORD_KEY_COLUMN], ordering=ordering))
