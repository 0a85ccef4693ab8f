"""The one entry to merging: what readers, compaction and log compaction call, whatever kind of table it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.column_groups import compact_groups, merge_groups
from lakelatch.format.merge.outcome import CompactedLogs, Merged
from lakelatch.format.merge.rows import compact_rows, merge_rows
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
    merge in a way that is not known here, and `NotFound` for a file that was cleaned meanwhile.
    """
    if file_slice.log_files:
        config.check_mergeable()
    names = schema.names if columns is None else list(columns)
    if config.column_groups:
        return merge_groups(storage, file_slice, schema, config, completions, names, columns is None)
    return merge_rows(storage, file_slice, schema, _ordering_field(config), names)


def compact_logs(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema, config: TableConfig, completions: Mapping[str, str]
) -> CompactedLogs:
    """The logs of a slice as one that says the same, also if it is merged twice. Arguments as for `merge_slice`."""
    config.check_mergeable()
    if config.column_groups:
        return compact_groups(storage, file_slice, schema, config, completions)
    return compact_rows(storage, file_slice, schema, _ordering_field(config))


def _ordering_field(config: TableConfig) -> str | None:
    return config.ordering_field if config.merge_mode == EVENT_TIME else None
