"""The one entry to merging: what readers, compaction and log compaction call, whatever kind of table it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import LogEntries
from lakelatch.format.merge.changed import changed_rows, superseded_rows
from lakelatch.format.merge.column_groups import GroupMerging
from lakelatch.format.merge.conditions import Condition, fulfilling, understood
from lakelatch.format.merge.outcome import CompactedLogs, Merged
from lakelatch.format.merge.rows import RowMerging
from lakelatch.format.merge.stream import Merging, compacted_logs, in_any_order, in_order, in_order_of_base, whole
from lakelatch.storage.contract import Storage
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig


def merge_slice(
    storage: Storage,
    file_slice: FileSlice,
    schema: pa.Schema,
    config: TableConfig,
    completions: Mapping[str, str],
    columns: Sequence[str] | None = None,
) -> Merged:
    """The rows of a slice, one for each key, sorted by record key. `columns` names those wanted, or None for all.

    `schema` is the table's, with meta columns; those are the winning row's own. A column that a file does not have is
    null there, and one that is neither wanted nor decides who wins is not read. `completions` are needed for tables
    with column groups: a joined row has the meta columns of that of its winners which completed last, so that an
    incremental read finds it by any of them. Errors: `CorruptTable`, `InvalidRequest` for logs of a table whose writers
    merge in an unknown way, and `NotFound` for a file that was cleaned meanwhile.
    """
    merged = whole(_merging(storage, file_slice, schema, config, completions, columns))
    return replace(merged, rows=merged.rows.select(schema.names if columns is None else list(columns)))


def read_slice(
    storage: Storage,
    file_slice: FileSlice,
    schema: pa.Schema,
    config: TableConfig,
    completions: Mapping[str, str],
    columns: Sequence[str],
    conditions: Sequence[Condition] = (),
    keys: pa.Array | None = None,
    share: tuple[int, int] = (0, 1),
) -> Iterator[pa.Table]:
    """The same rows, unordered and in parts; only the slice's logs are held in memory, if they fit.

    Rows that do not fulfil all conditions are left out, and so are those of other record keys than `keys`, if these are
    given. A condition on an unknown column, or with values of another type, is passed over. Several callers can read a
    `share` each of a slice without logs: a number, and their count.
    """
    conditions = understood(conditions, schema)
    names = list(dict.fromkeys([*columns, *(one.column for one in conditions)]))
    merging = _merging(storage, file_slice, schema, config, completions, names)
    for part in in_any_order(merging, conditions, keys, share):
        rows = fulfilling(part.rows, conditions)
        if rows.num_rows:
            yield rows.select(list(columns))


def read_changed(
    storage: Storage,
    file_slice: FileSlice,
    schema: pa.Schema,
    config: TableConfig,
    columns: Sequence[str],
    conditions: Sequence[Condition] = (),
) -> Iterator[pa.Table]:
    """The rows of `read_slice` with keys in the slice's logs; all others are in the base file as they are.

    Not for tables with column groups, in which a row is made of several. Errors: as `merge_slice`.
    """
    conditions = understood(conditions, schema)
    names = list(dict.fromkeys([*columns, *(one.column for one in conditions)]))
    merging = RowMerging.of(storage, file_slice, schema, _ordering_field(config), names)
    for rows in changed_rows(merging):
        yield fulfilling(rows, conditions).select(list(columns))


def superseded_of(storage: Storage, file_slice: FileSlice, schema: pa.Schema) -> npt.NDArray[np.bool_]:
    """For each row of a slice's base file, in its order, whether its key is in the slice's logs.

    The file's other rows and those of `read_changed` are the rows of the slice.
    """
    return superseded_rows(RowMerging.of(storage, file_slice, schema, None, [RECORD_KEY_COLUMN]))


def merge_in_order(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema, config: TableConfig, completions: Mapping[str, str]
) -> Iterator[Merged]:
    """As `merge_slice`, part by part, each of other keys than those before it; deletes come with their part."""
    return in_order(_merging(storage, file_slice, schema, config, completions, None))


def merge_in_base_order(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema, config: TableConfig, completions: Mapping[str, str]
) -> Iterator[Merged]:
    """As `merge_in_order`, but if the base file is not sorted by record key, what comes is in no order either."""
    return in_order_of_base(_merging(storage, file_slice, schema, config, completions, None))


def merge_onto(
    storage: Storage,
    file_slice: FileSlice,
    entries: Sequence[LogEntries],
    schema: pa.Schema,
    config: TableConfig,
    completions: Mapping[str, str],
) -> Iterator[Merged]:
    """As `merge_in_order`, of a slice and entries that lie in no log file, which count as those of its next one.

    If the base file is not sorted by record key, what comes is not either. No file of the table is held in memory.
    """
    merging = _merging(storage, file_slice, schema, config, completions, None)
    return in_order_of_base(merging.above(entries))


def compact_logs(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema, config: TableConfig, completions: Mapping[str, str]
) -> Iterator[CompactedLogs]:
    """The logs of a slice as one that says the same, also if it is merged twice. Arguments as for `merge_slice`.

    If they are too many for memory, it comes in parts, each of other keys than those before it.
    """
    return compacted_logs(_merging(storage, file_slice, schema, config, completions, None))


def _merging(
    storage: Storage,
    file_slice: FileSlice,
    schema: pa.Schema,
    config: TableConfig,
    completions: Mapping[str, str],
    columns: Sequence[str] | None,
) -> Merging:
    if file_slice.log_files:
        config.check_mergeable()
    if config.column_groups:
        return GroupMerging.of(storage, file_slice, schema, config, completions, columns)
    names = schema.names if columns is None else columns
    ordering = _ordering_field(config)
    if not file_slice.log_files and ordering not in schema.names:  # as where several fields order the table
        ordering = None
    return RowMerging.of(storage, file_slice, schema, ordering, names)


def _ordering_field(config: TableConfig) -> str | None:
    return config.ordering_field if config.merge_mode == EVENT_TIME else None
