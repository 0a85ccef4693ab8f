"""The rows of a slice with keys in its logs, for readers that read the other rows from the base file by themselves.

Most of these rows are the logs' own. Of the base file, only record keys and ordering values are read, and not even
those if none of its rows can win; then only the rows that do win.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.format.avro import IS_DELETED_COLUMN, RECORD_KEY_COLUMN
from lakelatch.format.log.blocks import LogEntries
from lakelatch.format.merge.conditions import Bound, Condition, OneOf, kind_of, row_group_may_hold
from lakelatch.format.merge.logs import keys_of, logs_of
from lakelatch.format.merge.ordering import flags
from lakelatch.format.merge.rows import RowMerging
from lakelatch.format.merge.stream import among, by_key, matched, split


def changed_rows(merging: RowMerging) -> Iterator[pa.Table]:
    """One row for each key of the logs that has one, unordered; in parts if the logs do not fit into memory."""
    with logs_of(merging.reader, merging.prepared) as logs:
        if logs.spilled is not None:
            parts = by_key(merging.reader.base()) if merging.ordering_field is not None else ()
            for rows, blocks in matched(merging.reader, parts, logs.spilled):
                if blocks:
                    yield merging.merge(split(rows, keys_of(blocks))[0], blocks).rows
        elif not logs.is_empty:
            yield _rows_of_changed_keys(merging, logs.blocks)


def _rows_of_changed_keys(merging: RowMerging, blocks: Sequence[LogEntries]) -> pa.Table:
    """The merged rows; of the base file, only rows that may win are read."""
    rows = merging.reader.schema.empty_table()
    staying = _staying_keys(merging, blocks)
    if len(staying):
        staying = staying.take(pc.sort_indices(staying))
        wanted = (OneOf(RECORD_KEY_COLUMN, tuple(staying.to_pylist())),)
        rows = _rows_of(merging, staying, lambda _, group: row_group_may_hold(group, wanted))
    return merging.merge(rows, blocks).rows


def superseded_rows(merging: RowMerging) -> npt.NDArray[np.bool_]:
    """For each row of the base file, in its order, whether its key is in the logs.

    Of the base file only record keys are read; the logs' keys are held in memory.
    """
    blocks = [merging.prepared(block) for block in merging.reader.log_entries()]
    keys = keys_of(blocks) if blocks else pa.array([], pa.string())
    found = [flags(among(part, keys)) for part in merging.reader.base().record_keys()]
    return np.concatenate([np.zeros(0, np.bool_), *found])


def _staying_keys(merging: RowMerging, blocks: Sequence[LogEntries]) -> pa.ChunkedArray:
    """The keys of the logs at which a row of the base file wins, by its ordering value."""
    name = merging.ordering_field
    if name is None or merging.reader.file_slice.base_file is None:
        return pa.chunked_array([], pa.string())
    deciding = (RECORD_KEY_COLUMN, name, IS_DELETED_COLUMN)
    schema = pa.schema([field for field in merging.reader.schema if field.name in deciding])
    narrow = replace(merging, reader=replace(merging.reader, schema=schema))
    later = _later_than(blocks, name, schema.field(name).type)
    null = (OneOf(name, (None,)),)  # which counts as 0 among whole numbers
    rows = _rows_of(
        narrow,
        keys_of(blocks),
        lambda _, group: row_group_may_hold(group, later) or row_group_may_hold(group, null),
    )
    return narrow.staying(rows, [_narrowed(block, schema.names) for block in blocks])


def _rows_of(merging: RowMerging, keys: pa.Array, wanted: Callable[[int, Any], bool]) -> pa.Table:
    """The base file's rows of these keys, in the row groups that are wanted."""
    found = [split(part, keys)[0] for part in merging.reader.base(wanted).parts()]
    return pa.concat_tables([merging.reader.schema.empty_table(), *found])


def _later_than(blocks: Sequence[LogEntries], name: str, kind: pa.DataType) -> tuple[Condition, ...]:
    """The conditions for rows with a greater ordering value than some entry; none if there are no such conditions."""
    least = []
    for block in blocks:
        if block.deletes is not None:
            values = block.deletes.ordering
        else:
            values = None if block.records is None else block.records[name]
        if values is None or values.null_count or not len(values):
            return ()
        least.append(pc.min(values).as_py())
    own = kind_of(kind)
    if own is None or not all(type(value) is own for value in least):
        return ()
    return (Bound(name, ">", min(least)),)


def _narrowed(block: LogEntries, names: Sequence[str]) -> LogEntries:
    return block if block.records is None else replace(block, records=block.records.select(list(names)))
