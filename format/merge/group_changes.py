"""Changes of file groups by commits: the slice before and the slice after, and the rows in which these differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.format.avro import COMMIT_SEQUENCE_COLUMN, COMMIT_TIME_COLUMN, RECORD_KEY_COLUMN
from lakelatch.format.bucket_index import bucket_of_file_id
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.logs import keys_of
from lakelatch.format.merge.reader import SliceReader
from lakelatch.format.merge.slice import read_slice
from lakelatch.storage.contract import Storage
from lakelatch.timeline.table_config import TableConfig

INSERTED, UPDATED, DELETED = "i", "u", "d"
_VERSION = (COMMIT_TIME_COLUMN, COMMIT_SEQUENCE_COLUMN)  # two versions of a row differ in these


@dataclass(frozen=True)
class GroupChange:
    """One commit's change of the rows of one bucket: its slice before the commit and after it, or none.

    `instant` is the requested time of the commit.
    """

    instant: str
    completion: str
    before: FileSlice | None
    after: FileSlice | None

    @property
    def slices(self) -> tuple[FileSlice, ...]:
        """The slices before and after, where they exist."""
        return tuple(found for found in (self.before, self.after) if found is not None)

    @property
    def added_logs(self) -> tuple[str, ...] | None:
        """The logs that were added, if nothing else was done to the slice; None if more was."""
        before, after = self.before, self.after
        if before is None or after is None or (before.base_file, before.file_id) != (after.base_file, after.file_id):
            return None
        if not set(before.fresh_logs) <= set(after.fresh_logs):
            return None
        return tuple(name for name in after.fresh_logs if name not in before.fresh_logs)


@dataclass(frozen=True)
class Images:
    """Rows that one commit changed in one way, before and after it, in the same order; None where there are none."""

    operation: str
    before: pa.Table | None
    after: pa.Table | None

    @property
    def row_count(self) -> int:
        rows = self.after if self.before is None else self.before
        return 0 if rows is None else int(rows.num_rows)


def changes_between(
    instant: str, completion: str, before: Sequence[FileSlice], after: Sequence[FileSlice], by_bucket: bool
) -> Iterator[GroupChange]:
    """The file groups that differ between two moments, of which the later one is a commit's.

    In a table with a bucket index a group and the one that takes its place hold the same keys, and are one bucket.
    """
    old, new = ({_place(found, by_bucket): found for found in slices} for slices in (before, after))
    for place in sorted(old.keys() | new.keys()):
        change = GroupChange(instant, completion, old.get(place), new.get(place))
        if change.before != change.after and not all(found.is_empty for found in change.slices):
            yield change


def images_of(
    change: GroupChange,
    storage: Storage,
    schema: pa.Schema,
    config: TableConfig,
    completions: Mapping[str, str],
    columns: Sequence[str],
) -> Iterator[Images]:
    """The rows that a commit has changed, each key once. The tables have the named columns. Arguments as `read_slice`.

    A row is changed if its version differs, whatever its values; a row that lost to an existing one is not. If only
    logs were added, only rows of their keys are read. Otherwise both slices are held in memory.
    """
    names = list(dict.fromkeys([*columns, RECORD_KEY_COLUMN, *_VERSION]))

    def read(file_slice: FileSlice | None, keys: pa.Array | None = None) -> Iterator[pa.Table]:
        if file_slice is not None:
            found = file_slice if file_slice.fresh_logs else file_slice.without_logs()
            yield from read_slice(storage, found, schema, config, completions, names, keys=keys)

    if change.before is None:
        yield from (Images(INSERTED, None, rows.select(columns)) for rows in read(change.after))
    elif change.after is None:
        yield from (Images(DELETED, rows.select(columns), None) for rows in read(change.before))
    else:
        keys = _keys_in(change.after, change.added_logs, storage, schema)
        old, new = (_whole(read(found, keys), schema, names) for found in (change.before, change.after))
        yield from _differences(old, new, columns)


def _differences(old: pa.Table, new: pa.Table, columns: Sequence[str]) -> Iterator[Images]:
    places = pc.index_in(new[RECORD_KEY_COLUMN], value_set=old[RECORD_KEY_COLUMN].combine_chunks())
    yield Images(INSERTED, None, new.filter(pc.is_null(places)).select(columns))
    kept, was = new.filter(pc.is_valid(places)), old.take(places.drop_null())
    same = [pc.equal(kept[name], was[name]) for name in _VERSION]
    differ = pc.invert(pc.fill_null(pc.and_(*same), False))
    yield Images(UPDATED, was.filter(differ).select(columns), kept.filter(differ).select(columns))
    gone = pc.invert(pc.is_in(old[RECORD_KEY_COLUMN], value_set=new[RECORD_KEY_COLUMN].combine_chunks()))
    yield Images(DELETED, old.filter(gone).select(columns), None)


def _keys_in(
    file_slice: FileSlice, logs: tuple[str, ...] | None, storage: Storage, schema: pa.Schema
) -> pa.Array | None:
    """The keys in some logs of a slice; None if no logs are given."""
    if logs is None:
        return None
    alone = pa.schema([schema.field(RECORD_KEY_COLUMN)])
    return keys_of(SliceReader(storage, replace(file_slice, base_file=None, log_files=logs), alone).log_entries())


def _whole(parts: Iterator[pa.Table], schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    empty = pa.schema([schema.field(name) for name in names]).empty_table()
    return pa.concat_tables([empty, *parts])


def _place(found: FileSlice, by_bucket: bool) -> tuple[str, str]:
    bucket = bucket_of_file_id(found.file_id) if by_bucket else None
    return found.partition, found.file_id if bucket is None else f"{bucket:08d}"
