"""What small logs change, found by the process that plans a read: without a task of Python for each query.

A slice's files never change, so the answer for some slices stays right, and this process keeps the last ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.engine.read.rows.batches import for_spark
from lakelatch.engine.read.superseded import Superseded
from lakelatch.errors import LakelatchError
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.slice import read_changed, superseded_of

if TYPE_CHECKING:
    from lakelatch.engine.read.plan import ReadPlan

#: The most rows, which Spark is handed with each query.
SMALL_ROWS_MAX = 2000
_ROWS_MAX_BYTES = 4 * 1024 * 1024  # in memory
_KEPT_MAX = 8


@dataclass(frozen=True, eq=False)
class SmallChanges:
    """The rows of some slices with keys in the logs, in one batch as Spark takes it, and which rows of the base files
    have these keys, by the files' paths."""

    rows: pa.Table
    superseded: Mapping[str, Superseded]


def small_changes(plan: ReadPlan, slices: Sequence[FileSlice]) -> SmallChanges | None:
    """What the logs of these slices change, which have base files.

    None if that is too much, or a file cannot be read: then the tasks that read it say so.
    """
    table = plan.table
    ordering = (table.config.merge_mode, table.config.ordering_field)
    key = (table.storage.uri, tuple(slices), table.full_schema, tuple(plan.schema.names), ordering)
    found, is_known = _kept.get(key)
    if not is_known:
        try:
            found = _found(plan, slices)
        except LakelatchError:
            return None
        _kept.put(key, found)
    return found


def _found(plan: ReadPlan, slices: Sequence[FileSlice]) -> SmallChanges | None:
    table, names = plan.table, plan.schema.names

    def rows_of(one: FileSlice) -> list[pa.Table]:
        return list(read_changed(table.storage, one, table.full_schema, table.config, names))

    # The logs first, which say soon whether they are too many.
    parts = [part for found in table.storage.together(*(partial(rows_of, one) for one in slices)) for part in found]
    rows = pa.concat_tables([table.full_schema.empty_table().select(names), *parts])
    if rows.num_rows > SMALL_ROWS_MAX or rows.nbytes > _ROWS_MAX_BYTES:
        return None

    def superseded_by(one: FileSlice) -> Superseded:
        size = table.storage.stat(one.base_path or "").size_bytes
        return Superseded.of(size, superseded_of(table.storage, one, table.full_schema))

    found = table.storage.together(*(partial(superseded_by, one) for one in slices))
    batches = for_spark(rows, plan.schema)
    schema = batches[0].schema if batches else plan.schema
    by_path = {one.base_path or "": superseded for one, superseded in zip(slices, found, strict=True)}
    return SmallChanges(pa.Table.from_batches(batches, schema), by_path)


class _Kept:
    """The last answers of this process, for any table. Threads share them."""

    def __init__(self) -> None:
        self._found: OrderedDict[Hashable, SmallChanges | None] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Hashable) -> tuple[SmallChanges | None, bool]:
        """The answer, and whether there is one."""
        with self._guard:
            if key not in self._found:
                return None, False
            self._found.move_to_end(key)
            return self._found[key], True

    def put(self, key: Hashable, found: SmallChanges | None) -> None:
        with self._guard:
            self._found[key] = found
            while len(self._found) > _KEPT_MAX:
                self._found.popitem(last=False)


_kept = _Kept()
