"""Merging a slice part by part: its logs are held in memory, if they fit; its base file is not.

Rows of the base file with keys that are in no log pass unchanged, as Arrow's own columns. The others are taken out and
merged with the logs: at the end, or, if rows have to come in key order and the base file has it, or the logs do not fit
into memory, key range by key range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvariantBroken
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.log.blocks import Deletes, LogEntries
from lakelatch.format.merge.conditions import Condition, OneOf, row_group_may_hold
from lakelatch.format.merge.logs import Logs, LogsByKey, keys_of, logs_of, place_in
from lakelatch.format.merge.ordering import chunked
from lakelatch.format.merge.outcome import CompactedLogs, Merged
from lakelatch.format.merge.reader import Base, SliceReader, sort_rows
from lakelatch.format.sorting.spill import reordered

_LOOKED_AT_MAX = 4096  # to find their bounds takes as long as to look for so many


@dataclass(frozen=True)
class Merging(ABC):
    """How the logs of a slice are merged with rows of its base file, in one kind of table."""

    reader: SliceReader

    def above(self, entries: Sequence[LogEntries]) -> Merging:
        """The same for a slice with further entries; see `SliceReader.above`."""
        return replace(self, reader=self.reader.above(entries))

    def logs(self, base: Base, keys: pa.Array | None = None) -> AbstractContextManager[Logs]:
        """The entries to merge with the base file's rows, in order; none without logs. `keys` as for `logs_of`."""
        return logs_of(self.reader, self.prepared, lambda: self.below(base), keys)

    @abstractmethod
    def prepared(self, block: LogEntries) -> LogEntries:
        """A block as it is merged, with the reader's columns."""

    def below(self, base: Base) -> Sequence[LogEntries]:
        """The entries that are merged with the base file's rows before the logs, if there are any."""
        return ()

    @abstractmethod
    def merge(self, rows: pa.Table, blocks: Sequence[LogEntries]) -> Merged:
        """Some rows of the base file, and all blocks' entries for their keys and for others; in no order."""

    @abstractmethod
    def compacted(self, blocks: Sequence[LogEntries]) -> CompactedLogs:
        """All entries of the blocks as few entries that say the same."""

    @abstractmethod
    def unmerged(self, base: Base) -> Merged:
        """The outcome of a slice without logs, apart from its rows."""


def in_any_order(
    merging: Merging,
    conditions: Sequence[Condition] = (),
    keys: pa.Array | None = None,
    share: tuple[int, int] = (0, 1),
    low_memory: bool = False,
) -> Iterator[Merged]:
    """The rows of a slice. With `keys` those of other keys are left out, as early as possible.

    Of a slice without logs several callers can have a `share` each: a number, and their count. `low_memory` is that of
    `BaseFileRows.parts`.

    Row groups without rows that fulfil the conditions are skipped if there are no logs. With logs, a row that does not
    fulfil them may win over one that does.
    """
    if merging.reader.file_slice.log_files:
        conditions = ()
        if share != (0, 1):
            raise InvariantBroken(f"the slice {merging.reader.file_slice.file_id} has logs, and cannot be shared")
    if keys is not None:
        conditions = (*conditions, OneOf(RECORD_KEY_COLUMN, tuple(keys.to_pylist())))
    number, count = share
    base = merging.reader.base(lambda at, group: at % count == number and row_group_may_hold(group, conditions))
    with merging.logs(base, keys) as logs:
        if logs.spilled is not None:
            yield from _in_parts(merging, by_key(base, keys), logs.spilled)
            return
        parts = base.parts(low_memory) if keys is None else (_filtered(part, keys) for part in base.parts(low_memory))
        yield from _in_any_order(merging, base, parts, logs)


def _in_any_order(merging: Merging, base: Base, parts: Iterable[pa.Table], logs: Logs) -> Iterator[Merged]:
    """With logs that are in memory."""
    if logs.is_empty:
        yield merging.unmerged(base)
        yield from map(Merged, parts)
        return
    changed = keys_of(logs.blocks)
    touched = [merging.reader.schema.empty_table()]
    for part in parts:
        own, others = split(part, changed)
        touched += [own] if own.num_rows else []
        if others.num_rows:
            yield Merged(others)
    yield merging.merge(pa.concat_tables(touched), logs.blocks)


def compacted_logs(merging: Merging) -> Iterator[CompactedLogs]:
    """The logs of a slice as few entries; in parts of other keys each where they are too many for memory."""
    with logs_of(merging.reader, merging.prepared) as logs:
        yield from (merging.compacted(blocks) for blocks in logs.in_parts() if blocks)


def in_order(merging: Merging) -> Iterator[Merged]:
    """The rows of a slice by record key, in parts. If its base file has another order, they are sorted."""
    base = merging.reader.base()
    return _in_its_order(merging, base) if is_sorted(base) else _sorted_outside_memory(merging, base)


def in_another_order(
    parts: Iterable[Merged], columns: Sequence[str], order_of: Callable[[pa.Table], npt.NDArray[np.int64]]
) -> Iterator[Merged]:
    """The rows of all parts in the order that these columns decide, see `reordered`; the deletes come after them."""
    deleting: list[Merged] = []

    def rows() -> Iterator[pa.Table]:
        for part in parts:
            if part.deletes is not None or part.group_deletes is not None:
                deleting.append(part.without_rows())
            yield part.rows

    yield from map(Merged, reordered(rows(), columns, order_of))
    yield from deleting


def in_order_of_base(merging: Merging) -> Iterator[Merged]:
    """The rows of a slice by record key if its base file has that order, else in none; always in parts."""
    base = merging.reader.base()
    return _in_its_order(merging, base) if is_sorted(base) else in_any_order(merging, low_memory=True)


def _in_its_order(merging: Merging, base: Base) -> Iterator[Merged]:
    """For a base file that is sorted by record key."""
    with merging.logs(base) as logs:
        if logs.is_empty:
            yield merging.unmerged(base)
            yield from map(Merged, base.parts(low_memory=True))
        else:
            yield from _in_parts(merging, base.parts(low_memory=True), logs.by_key())


def _sorted_outside_memory(merging: Merging, base: Base) -> Iterator[Merged]:
    """For a base file that is not: after the merge, or before it where the logs are not in memory either."""
    parts = base.parts(low_memory=True)
    with merging.logs(base) as logs:
        if logs.spilled is None:
            merged = _in_any_order(merging, base, parts, logs)
            yield from in_another_order(merged, [RECORD_KEY_COLUMN], _by_record_key)
        else:
            yield from _in_parts(merging, _sorted(parts), logs.spilled)


def matched(
    reader: SliceReader, parts: Iterable[pa.Table], logs: LogsByKey
) -> Iterator[tuple[pa.Table, list[LogEntries]]]:
    """Rows of a base file that come by record key, each part with the logs' entries for keys in the same range."""
    held = reader.schema.empty_table()
    for part in _of_at_least(parts, logs.part_bytes):
        rows = pa.concat_tables([held, part]).combine_chunks()
        keys = rows[RECORD_KEY_COLUMN]
        cut = place_in(keys, keys[-1].as_py())  # further rows of the last key may be in the next part
        held = rows.slice(cut)
        if cut:
            yield from _with_logs(rows.slice(0, cut), logs.until(keys[cut - 1].as_py()))
    yield from _with_logs(held, logs.until(None))


def _of_at_least(parts: Iterable[pa.Table], size_bytes: int) -> Iterator[pa.Table]:
    """The same rows in fewer parts; none of them is empty."""
    gathered: list[pa.Table] = []
    gathered_bytes = 0
    for part in parts:
        if part.num_rows:
            gathered.append(part)
            gathered_bytes += part.nbytes
        if gathered and gathered_bytes >= size_bytes:
            yield pa.concat_tables(gathered)
            gathered, gathered_bytes = [], 0
    if gathered:
        yield pa.concat_tables(gathered)


def _with_logs(
    rows: pa.Table, parts: Iterable[tuple[str | None, list[LogEntries]]]
) -> Iterator[tuple[pa.Table, list[LogEntries]]]:
    for key, blocks in parts:
        count = rows.num_rows if key is None else place_in(rows[RECORD_KEY_COLUMN], key, bisect_right)
        yield rows.slice(0, count), blocks
        rows = rows.slice(count)


def _in_parts(merging: Merging, parts: Iterable[pa.Table], logs: LogsByKey) -> Iterator[Merged]:
    for rows, blocks in matched(merging.reader, parts, logs):
        yield _in_order(merging, rows, blocks)


def by_key(base: Base, keys: pa.Array | None = None) -> Iterator[pa.Table]:
    """The rows of a base file by record key, sorted unless it has that order; with `keys`, of these alone."""
    parts = base.parts(low_memory=True)
    if keys is not None:
        parts = (_filtered(part, keys) for part in parts)
    return parts if is_sorted(base) else _sorted(parts)


def _sorted(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    return reordered(parts, [RECORD_KEY_COLUMN], _by_record_key)


def is_sorted(base: Base) -> bool:
    """Whether a base file has its rows in the order of their keys, as compactions write them; true if there is none."""
    last = None
    for keys in base.record_keys():
        if last is not None and keys[0].as_py() < last:
            return False
        if not pc.all(pc.less_equal(keys.slice(0, len(keys) - 1), keys.slice(1)), min_count=0).as_py():
            return False
        last = keys[-1].as_py()
    return True


def whole(merging: Merging) -> Merged:
    """All of a slice at once, by record key."""
    parts = list(in_any_order(merging))
    rows = pa.concat_tables([merging.reader.schema.empty_table(), *(part.rows for part in parts)])
    return Merged(sort_rows(rows), joined_deletes(parts), joined_group_deletes(parts))


def joined_deletes(parts: Sequence[Merged]) -> Deletes | None:
    """The deletes of all parts."""
    found = [part.deletes for part in parts if part.deletes is not None]
    if len(found) < 2:
        return found[0] if found else None
    ordering = None if found[0].ordering is None else chunked([one.ordering for one in found])
    return Deletes(chunked([one.keys for one in found]), found[0].partition, ordering)


def joined_group_deletes(parts: Sequence[Merged]) -> pa.Table | None:
    """The group deletes of all parts."""
    found = [part.group_deletes for part in parts if part.group_deletes is not None]
    return pa.concat_tables(found) if found else None


def split(rows: pa.Table, keys: pa.Array) -> tuple[pa.Table, pa.Table]:
    """The rows of these keys, which are sorted, and the others; where these are all of them, they are not copied."""
    mask = among(rows[RECORD_KEY_COLUMN], keys)
    count = pc.sum(mask, min_count=0).as_py()
    if count in (0, rows.num_rows):
        return (rows, rows.slice(0, 0)) if count else (rows.slice(0, 0), rows)
    return rows.filter(mask), rows.filter(pc.invert(mask))


def among(values: pa.ChunkedArray, keys: pa.Array) -> pa.ChunkedArray:
    """Which of some record keys are among sorted others.

    If these are many, only those between the least and the greatest value are used, as Arrow makes a table of them.
    """
    if len(keys) > _LOOKED_AT_MAX and len(values):
        bounds = pc.min_max(values)
        start = place_in(keys, bounds["min"].as_py())
        keys = keys.slice(start, place_in(keys, bounds["max"].as_py(), bisect_right) - start)
    return pc.is_in(values, value_set=keys)


def _by_record_key(rows: pa.Table) -> npt.NDArray[np.int64]:
    return np.asarray(pc.sort_indices(rows[RECORD_KEY_COLUMN])).view(np.int64)


def _in_order(merging: Merging, rows: pa.Table, blocks: Sequence[LogEntries]) -> Merged:
    """One part by record key."""
    if not blocks:
        return Merged(rows)
    own, others = split(rows, keys_of(blocks))
    found = merging.merge(own, blocks)
    return replace(found, rows=sort_rows(pa.concat_tables([others, found.rows])))


def _filtered(rows: pa.Table, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows[RECORD_KEY_COLUMN], value_set=keys))
