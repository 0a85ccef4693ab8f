"""Merging a slice of a table with column groups: each group as if it were a table of its own, then all of them joined.

An entry speaks for a group if it has a value in the group's ordering column. Of the entries that speak for a group of
a row, the one with the greatest (ordering value, position) wins, and gives all columns of the group or deletes them. A
row exists as long as one of its groups does. So the winner depends on values in the rows, and a compaction keeps all of
them; those of deletes are in a separate file, which the base file's footer names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import CorruptTable
from lakelatch.format.avro import COMMIT_TIME_COLUMN, META_COLUMNS, RECORD_KEY_COLUMN, avro_to_arrow
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import Deletes, LogEntries
from lakelatch.format.merge.ordering import chunked, comparable, flags, ranks
from lakelatch.format.merge.outcome import CompactedLogs, Merged
from lakelatch.format.merge.reader import Base, SliceReader, needed_columns
from lakelatch.format.merge.stream import Merging
from lakelatch.format.parquet import encode_parquet, read_parquet
from lakelatch.storage.contract import Storage
from lakelatch.timeline.column_groups import COLUMN_GROUPS, ColumnGroup
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig

KEPT_DELETES_FOOTER = "lakelatch.kept.deletes"
_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GroupMerging(Merging):
    """Merging in a table with column groups. With `keeps_deletes`, as for a compaction, it also finds the group deletes
    that won; see `merge_slice` for `completions`."""

    groups: tuple[ColumnGroup, ...]
    completions: Mapping[str, str]
    keeps_deletes: bool

    @classmethod
    def of(
        cls,
        storage: Storage,
        file_slice: FileSlice,
        schema: pa.Schema,
        config: TableConfig,
        completions: Mapping[str, str],
        columns: Sequence[str] | None,
    ) -> GroupMerging:
        groups = groups_of(config, schema.names)
        names = schema.names if columns is None else columns
        reader = SliceReader(storage, file_slice, needed_columns(schema, names, _deciding(groups)))
        return cls(reader, groups, completions, columns is None)

    def prepared(self, block: LogEntries) -> LogEntries:
        """See `Merging`. Blocks are `partial` then if they lack the columns outside of every group, which have no
        ordering column that shows it."""
        ordering = None if block.deletes is None else block.deletes.ordering
        if ordering is not None and ordering.null_count < len(ordering):
            raise CorruptTable(
                f"a log block of {block.path} orders deletes of whole rows, and "
                f"the table has {COLUMN_GROUPS}: another writer must have made it. Let lakelatch alone write here"
            )
        rest = {name for group in self.groups if group.ordering is None for name in group.columns}
        partial = block.records is not None and not rest <= set(block.records.column_names)
        return replace(self.reader.conformed(block), partial=partial)

    def below(self, base: Base) -> Sequence[LogEntries]:
        """The deletes that were applied to the base file."""
        return self._kept_deletes(base)

    def merge(self, rows: pa.Table, blocks: Sequence[LogEntries]) -> Merged:
        found = self.found(rows, blocks)
        deletes = found.deletes() if self.keeps_deletes else None
        return Merged(found.rows(self.reader.schema.names), group_deletes=deletes)

    def unmerged(self, base: Base) -> Merged:
        kept = next((block.records for block in self._kept_deletes(base)), None) if self.keeps_deletes else None
        return Merged(self.reader.schema.empty_table(), group_deletes=kept)

    def compacted(self, blocks: Sequence[LogEntries]) -> CompactedLogs:
        names = self.reader.schema.names
        found = self.found(self.reader.schema.empty_table(), blocks)
        # A placeholder's block of deletes has none.
        wiped = [
            chunked([block.deletes.keys]) for block in blocks if block.deletes is not None and len(block.deletes.keys)
        ]
        return CompactedLogs(
            wiped=Deletes(chunked(wiped).unique(), self.reader.file_slice.partition) if wiped else None,
            rows=tuple(found.split(found.taken, names)),
            group_deletes=tuple(found.split(found.deleted, names)),
        )

    def found(self, rows: pa.Table, blocks: Sequence[LogEntries]) -> _Found:
        """The winners among these rows and all blocks above them."""
        parts = [_Part(rows, False, True)]
        barriers: list[tuple[int, pa.ChunkedArray]] = []
        count = rows.num_rows
        for block in blocks:
            if block.records is not None:
                parts.append(_Part(block.records, block.group_deletes, not block.partial))
                count += block.records.num_rows
            elif block.deletes is not None:
                barriers.append((count, chunked([block.deletes.keys])))
        return _Found.among(_Entries.of(parts, barriers), self.groups, self.completions)

    def _kept_deletes(self, base: Base) -> list[LogEntries]:
        name = base.footer.get(KEPT_DELETES_FOOTER.encode())
        if name is None:
            return []
        path = self.reader.file_slice.path_of(name.decode())
        rows, _ = read_parquet(self.reader.storage.read(path), path)
        return [LogEntries("", self.reader.conform(rows, path), partial=True, group_deletes=True, path=path)]


def groups_of(config: TableConfig, names: Collection[str]) -> tuple[ColumnGroup, ...]:
    """The table's groups, and as the last one the columns outside of every group, if there are any."""
    grouped = {name for group in config.column_groups for name in group.names}
    apart = {*grouped, *META_COLUMNS, *config.record_key_fields, *config.partition_fields}
    ordering = config.ordering_field if config.merge_mode == EVENT_TIME else None
    rest = ColumnGroup(ordering, tuple(name for name in names if name not in apart and name != ordering))
    return (*config.column_groups, rest) if rest.names else config.column_groups


def each_column_has_an_order(config: TableConfig) -> bool:
    """Whether an ordering value decides for each column that two writers may both write."""
    if not config.column_groups:
        return config.ordering_field is not None and config.merge_mode == EVENT_TIME
    names = avro_to_arrow(config.create_schema or "").names
    return all(group.ordering is not None for group in groups_of(config, names))


def kept_deletes_name(file_id: str, instant: str) -> str:
    """The name of the file with the group deletes that were applied to a base file; Hudi's readers ignore it."""
    return f".{file_id}_{instant}.kept"


def encode_kept_deletes(rows: pa.Table) -> bytes:
    """The content of that file."""
    return encode_parquet(rows, {})


@dataclass(frozen=True)
class _Part:
    """Rows of one block or file. `deleting` ones delete their groups; `has_rest` says whether they have the columns
    outside of every group, which have no ordering column that shows it."""

    rows: pa.Table
    deleting: bool
    has_rest: bool


@dataclass(frozen=True)
class _Entries:
    """All rows of touched keys in the order in which they were written; `codes` number their keys from 0.

    Entries below the barrier of their key were deleted by a delete without an ordering value, which wins in any case.
    """

    rows: pa.Table
    codes: _Numbers
    key_count: int
    deleting: _Flags
    has_rest: _Flags
    alive: _Flags

    @classmethod
    def of(cls, parts: Sequence[_Part], barriers: Sequence[tuple[int, pa.ChunkedArray]]) -> _Entries:
        rows = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        keys = chunked([rows[RECORD_KEY_COLUMN], *(deleted for _, deleted in barriers)])
        encoded = keys.combine_chunks().dictionary_encode()
        codes = np.asarray(encoded.indices).astype(np.int64)
        key_count = len(encoded.dictionary)
        barrier = np.zeros(key_count, np.int64)
        start = rows.num_rows
        for position, deleted in barriers:  # positions rise
            barrier[codes[start : start + len(deleted)]] = position
            start += len(deleted)
        codes = codes[: rows.num_rows]
        sizes = [part.rows.num_rows for part in parts]
        return cls(
            rows=rows,
            codes=codes,
            key_count=key_count,
            deleting=np.repeat([part.deleting for part in parts], sizes),
            has_rest=np.repeat([part.has_rest for part in parts], sizes),
            alive=np.arange(rows.num_rows) >= barrier[codes],
        )

    def winners(self, group: ColumnGroup) -> _Numbers:
        """For each key the entry that wins this group, or -1."""
        if group.ordering is None:
            places = np.flatnonzero(self.alive & self.has_rest & ~self.deleting)
            order = places[np.argsort(self.codes[places], kind="stable")]
        else:
            values = self.rows[group.ordering]
            places = np.flatnonzero(self.alive & flags(pc.is_valid(values)))
            spoken = comparable(values.take(pa.array(places)), values.type)
            order = places[np.lexsort((places, ranks(chunked([spoken])), self.codes[places]))]
        found = np.full(self.key_count, -1, np.int64)
        codes = self.codes[order]
        last = np.r_[codes[1:] != codes[:-1], np.ones(min(len(codes), 1), np.bool_)]
        found[codes[last]] = order[last]
        return found

    def latest(self, winners: Sequence[_Numbers], completions: Mapping[str, str]) -> _Numbers:
        """Of several winners for each key the one that completed last, or -1."""
        instants = sorted(completions, key=lambda instant: completions[instant])
        known = pc.index_in(self.rows[COMMIT_TIME_COLUMN], value_set=pa.array(instants, pa.string()))
        recency = np.asarray(pc.fill_null(known, -1)).astype(np.int64) + 1
        count = len(recency)
        scores = recency * (count + 1) + np.arange(count)
        found = np.full(self.key_count, -1, np.int64)
        best = np.full(self.key_count, -1, np.int64)
        for places in winners:
            score = np.where(places >= 0, scores[places] if count else -1, -1)
            found = np.where(score > best, places, found)
            best = np.maximum(score, best)
        return found


@dataclass(frozen=True)
class _Found:
    """The winner of each group, for all keys: whether values were taken from it, or it deleted them.

    A group is `present` where it has something to show. That differs from `taken` only for columns ordered by commit.
    """

    entries: _Entries
    groups: tuple[ColumnGroup, ...]
    winners: tuple[_Numbers, ...]
    taken: tuple[_Flags, ...]
    deleted: tuple[_Flags, ...]
    present: tuple[_Flags, ...]
    completions: Mapping[str, str]

    @classmethod
    def among(cls, entries: _Entries, groups: tuple[ColumnGroup, ...], completions: Mapping[str, str]) -> _Found:
        winners = tuple(entries.winners(group) for group in groups)
        taken = []
        present = []
        for group, places in zip(groups, winners, strict=True):
            wins = places >= 0
            wins[wins] &= ~entries.deleting[places[wins]]
            taken.append(wins.copy())
            if group.ordering is None:  # nothing but its values shows that it is there, before a compaction and after
                filled = np.zeros(entries.rows.num_rows, np.bool_)
                for name in group.columns:
                    filled |= flags(pc.is_valid(entries.rows[name]))
                wins[wins] &= filled[places[wins]]
            present.append(wins)
        deleted = [(places >= 0) & ~wins for places, wins in zip(winners, taken, strict=True)]
        return cls(entries, groups, winners, tuple(taken), tuple(deleted), tuple(present), completions)

    @property
    def there(self) -> _Flags:
        """Which keys have a row."""
        found: _Flags = np.logical_or.reduce(self.present)
        return found

    def rows(self, names: Sequence[str]) -> pa.Table:
        """The joined rows."""
        return self._joined(np.flatnonzero(self.there), self.present, self.winners, names)

    def deletes(self) -> pa.Table | None:
        """The group deletes that won, as rows with ordering values and no others; None if there are none."""
        keys = np.flatnonzero(np.logical_or.reduce(self.deleted))
        return self._joined_deletes(keys, self.entries.rows.column_names) if len(keys) else None

    def split(self, speaking: tuple[_Flags, ...], names: Sequence[str]) -> Iterator[pa.Table]:
        """The rows that were taken, or deleted, by the groups that speak in them: a table for each set of groups.

        Only what came in one entry stays in one row, so that a group keeps the commit time of its winner.
        """
        count = len(self.groups)
        sets = np.zeros((count, self.entries.key_count), np.int64)  # by the first group of an entry
        for number in range(count):
            free = speaking[number].copy()
            for first in range(number + 1):
                here = free & speaking[first] & (self.winners[first] == self.winners[number])
                sets[first] |= here.astype(np.int64) << number
                free &= ~here
        for own in sets:
            for found in np.unique(own[own > 0]).tolist():
                yield self._part(np.flatnonzero(own == found), found, speaking, names)

    def _part(self, keys: _Numbers, wanted: int, speaking: tuple[_Flags, ...], names: Sequence[str]) -> pa.Table:
        """Rows of these keys with the groups whose bits are set in `wanted`, and no others."""
        silent = [not wanted >> number & 1 for number in range(len(self.groups))]
        cleared = {name for group, quiet in zip(self.groups, silent, strict=True) if quiet for name in group.names}
        winners = [np.where(quiet, -1, one) for one, quiet in zip(self.winners, silent, strict=True)]
        part = replace(self, winners=tuple(winners))
        left = [name for name in names if name not in cleared]
        if speaking is self.deleted:
            return part._joined_deletes(keys, left)
        return part._joined(keys, self.taken, winners, left).sort_by(RECORD_KEY_COLUMN)

    def _joined_deletes(self, keys: _Numbers, names: Sequence[str]) -> pa.Table:
        orderings = {group.ordering for group in self.groups}
        cleared = {name for group in self.groups for name in group.names} - orderings
        of_deletes = [np.where(gone, places, -1) for gone, places in zip(self.deleted, self.winners, strict=True)]
        return self._joined(keys, self.deleted, of_deletes, names, cleared).sort_by(RECORD_KEY_COLUMN)

    def _joined(
        self,
        keys: _Numbers,
        shown: Sequence[_Flags],
        winners: Sequence[_Numbers],
        names: Sequence[str],
        cleared: Collection[str | None] = (),
    ) -> pa.Table:
        """For each key the columns of each group from its winner, null where it is not shown or is to be cleared."""
        latest = self.entries.latest(winners, self.completions)[keys]
        sources = {name: (latest, np.zeros(len(keys), np.bool_)) for name in names}
        for group, places, visible in zip(self.groups, winners, shown, strict=True):
            for name in group.names:
                if name in sources:
                    sources[name] = places[keys], ~visible[keys] | (name in cleared)
        return self._values(sources)

    def _values(self, sources: Mapping[str, tuple[_Numbers, _Flags]]) -> pa.Table:
        """For each column the places to take values from, and where it is null."""
        rows = self.entries.rows
        columns = [rows[name].take(pa.array(places, mask=missing)) for name, (places, missing) in sources.items()]
        return pa.table(columns, schema=pa.schema([rows.schema.field(name) for name in sources]))


def _deciding(groups: tuple[ColumnGroup, ...]) -> list[str]:
    """The columns that decide who wins."""
    columns = [RECORD_KEY_COLUMN, COMMIT_TIME_COLUMN]
    for group in groups:
        columns += group.columns if group.ordering is None else [group.ordering]
    return columns
