"""The logs of one slice, block by block in order: in memory, or in a temporary file if they do not fit.

Blocks in memory are merged as they are. Those in a file are read by record key, so that the merge goes through the keys
in order, and holds a part of them at a time (`spilled_logs.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import LakelatchError
from lakelatch.format.log.blocks import LogEntries
from lakelatch.format.merge.ordering import chunked
from lakelatch.format.merge.reader import SliceReader
from lakelatch.format.merge.spilled_logs import LogBounds, SpilledLogs, keys_in, size_of

#: What the merge of one slice may hold of its logs: of the columns that are wanted, as they are in memory.
BOUNDS = LogBounds()


class LogsByKey(Protocol):
    """Entries from the least key to the greatest, those of one key in the order in which they were written.

    `part_bytes` of rows are worth asking for at once: each time costs something for each block.
    """

    @property
    def part_bytes(self) -> int: ...

    def until(self, key: str | None) -> Iterator[tuple[str | None, list[LogEntries]]]:
        """The entries left up to this key, or all for None, in parts: the last key a part may have, and its entries."""


@dataclass
class Logs:
    """The entries of a slice's logs: `blocks` in order, or where these are too many, `spilled`."""

    blocks: list[LogEntries]
    spilled: SpilledLogs | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no blocks at all."""
        return not self.blocks and self.spilled is None

    def by_key(self) -> LogsByKey:
        """The same by record key, instead of the blocks, which are given up."""
        if self.spilled is not None:
            return self.spilled
        blocks, self.blocks = self.blocks, []
        found = _SortedBlocks.of(blocks)
        blocks.clear()  # of which there is a copy now
        pa.default_memory_pool().release_unused()  # else they are held twice
        return found

    def in_parts(self) -> Iterator[list[LogEntries]]:
        """All blocks at once, or in parts of other keys each where they are too many."""
        if self.spilled is None:
            yield self.blocks
        else:
            yield from (blocks for _, blocks in self.spilled.until(None))


@contextmanager
def logs_of(
    reader: SliceReader,
    prepared: Callable[[LogEntries], LogEntries],
    below: Callable[[], Sequence[LogEntries]] = tuple,
    keys: pa.Array | None = None,
) -> Iterator[Logs]:
    """The logs of a slice, as `prepared` makes their blocks, above those `below`, which count where there are any.

    With `keys`, entries for others are left out. What lies in a temporary file is gone when the context ends.
    Errors: those of `SliceReader.blocks` and of `prepared`; `Unavailable` where temporary files lie and nothing can be
    written.
    """
    with ExitStack() as opened:
        found = _Gathered(opened, keys)
        for block in reader.blocks():
            if block.rolled_back is not None:
                found.forget_instant(block.rolled_back)
            else:
                found.begin(below)
                found.add_prepared(block, prepared)
            del block  # else it stays while the next one is decoded
        for block in reader.more:
            found.begin(below)
            found.add_prepared(block, prepared, is_held_anyway=True)
        yield found.logs()


class _Gathered:
    """Blocks as they come; they are held as long as they are few."""

    def __init__(self, opened: ExitStack, keys: pa.Array | None) -> None:
        self._opened, self._keys = opened, keys
        self._held: list[LogEntries] = []
        self._size_bytes = 0
        self._spilled: SpilledLogs | None = None
        self._has_begun = False
        self._instants: list[str] = []
        self._failed: list[tuple[str, LakelatchError]] = []

    def begin(self, below: Callable[[], Sequence[LogEntries]]) -> None:
        """Adds what lies below the first block."""
        if not self._has_begun:
            self._has_begun = True
            for block in below():
                self._add(block)

    def add_prepared(
        self, block: LogEntries, prepared: Callable[[LogEntries], LogEntries], is_held_anyway: bool = False
    ) -> None:
        """Adds a block of the logs. An error in one that is rolled back further on does not matter.

        A block that the caller holds is no reason for a temporary file, which would save no memory.
        """
        self._instants.append(block.instant)
        try:
            found = prepared(block)
        except LakelatchError as error:
            self._failed.append((block.instant, error))
        else:
            self._add(found, is_held_anyway)

    def forget_instant(self, instant: str) -> None:
        """Forgets the blocks of an instant that have come so far."""
        self._instants = [one for one in self._instants if one != instant]
        self._failed = [one for one in self._failed if one[0] != instant]
        self._held = [block for block in self._held if block.instant != instant]
        self._size_bytes = sum(map(size_of, self._held))
        if self._spilled is not None:
            self._spilled.forget_instant(instant)

    def logs(self) -> Logs:
        """All that have come."""
        for _, error in self._failed:
            raise error
        if not self._instants:
            return Logs([])
        if self._spilled is None:
            return Logs(self._held)
        self._spill(self._spilled)
        self._spilled.begin()
        return Logs([], self._spilled)

    def _add(self, block: LogEntries, is_held_anyway: bool = False) -> None:
        block = of_keys(block, self._keys)
        self._held.append(block)
        self._size_bytes += size_of(block)
        if self._spilled is None and not is_held_anyway and self._size_bytes > BOUNDS.held:
            self._spilled = SpilledLogs.opened_in(self._opened, BOUNDS)
        if self._spilled is not None and self._size_bytes >= BOUNDS.run:
            self._spill(self._spilled)

    def _spill(self, spilled: SpilledLogs) -> None:
        spilled.add(self._held)
        self._size_bytes = 0
        pa.default_memory_pool().release_unused()  # else the pool keeps as much as was ever needed at once


@dataclass
class _SortedBlocks:
    """Blocks whose entries are in the order of their keys, and those of one key in their own."""

    blocks: Sequence[LogEntries]
    starts: list[int]
    part_bytes: int = 0

    @classmethod
    def of(cls, blocks: Sequence[LogEntries]) -> _SortedBlocks:
        ordered = [_taken(block, pc.sort_indices(keys_in(block))) for block in blocks]  # which is stable
        return cls(ordered, [0] * len(ordered))

    def until(self, key: str | None) -> Iterator[tuple[str | None, list[LogEntries]]]:
        """See `LogsByKey`; in one part."""
        found = []
        for number, block in enumerate(self.blocks):
            keys = keys_in(block)
            start, end = self.starts[number], len(keys) if key is None else place_in(keys, key, bisect_right)
            self.starts[number] = end
            if end > start:
                found.append(_sliced(block, start, end - start))
        yield key, found


def keys_of(blocks: Sequence[LogEntries]) -> pa.Array:
    """The keys in these blocks, each once, sorted."""
    keys = chunked([keys_in(block) for block in blocks]).unique()
    return keys.take(pc.sort_indices(keys))


def place_in(keys: pa.Array | pa.ChunkedArray, key: str, bisect: Any = bisect_left) -> int:
    """Where a key has its place among sorted ones."""
    return int(bisect(range(len(keys)), key, key=lambda number: keys[number].as_py()))


def of_keys(block: LogEntries, keys: pa.Array | None) -> LogEntries:
    """The block's entries for these keys; all of them for None."""
    if keys is None:
        return block
    mask = pc.is_in(keys_in(block), value_set=keys)
    return _changed(block, lambda values: values.filter(mask))


def _taken(block: LogEntries, places: pa.Array) -> LogEntries:
    return _changed(block, lambda values: values.take(places))


def _sliced(block: LogEntries, start: int, count: int) -> LogEntries:
    return _changed(block, lambda values: values.slice(start, count))


def _changed(block: LogEntries, change: Any) -> LogEntries:
    """The same block with other entries."""
    if block.records is not None:
        return replace(block, records=change(block.records))
    if block.deletes is None:
        return block
    ordering = None if block.deletes.ordering is None else change(chunked([block.deletes.ordering]))
    return replace(block, deletes=replace(block.deletes, keys=change(chunked([block.deletes.keys])), ordering=ordering))
