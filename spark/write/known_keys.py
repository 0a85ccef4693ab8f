"""Inserts that look which keys are new: rows whose key is in the table, or in the frame before, are skipped or refused.

The table is read inside each try of the write, so that whatever others commit in between is a conflict. Rows that are
skipped stay in the frame, marked, until they are where the others are written: so they are counted where they are, from
the one evaluation of the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.changes.inserts import KNOWN, TWICE, refuse_times
from lakelatch.engine.options.read import COLUMNS
from lakelatch.engine.options.write import DROP, WriteOptions
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.write.attempt import part_of_thread
from lakelatch.spark.read.frames_out import read_staged
from lakelatch.spark.session.columns import analysed, checked, folder_value, same_rows
from lakelatch.spark.session.spark_types import renamings
from lakelatch.storage.options import KNOWN_STORAGE_KEYS
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.properties_file import is_table
from lakelatch.timeline.table_config import EVENT_TIME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

#: The column that says of each row whether it is skipped, apart from those of the data.
SKIPPED = "_lakelatch_skipped"
_KNOWN, _TIMES = "_lakelatch_known", "_lakelatch_times"


def with_new_keys(
    source: Callable[[], DataFrame], path: str, given: Mapping[str, object] | None, options: WriteOptions
) -> Callable[[], DataFrame]:
    """A frame of which rows are marked as `SKIPPED`, or refused, whose keys are not new, as the options say."""
    reading = {key: value for key, value in (given or {}).items() if key.lower() in KNOWN_STORAGE_KEYS}

    def rows() -> DataFrame:
        part = part_of_thread()
        staged = None if part is None else part.sees
        frame, storage = source(), staged or open_storage(path, options.manager.storage)
        there: DataFrame | None = None
        if is_table(storage):
            config = open_table(storage).config
            if config.appends_only:
                return frame
            refuse_times(options, config.name, config.time_fields)
            ordering = config.ordering_field if config.merge_mode == EVENT_TIME else None
            found = _Keys(config.record_key_fields, config.partition_fields, ordering)
            columns = {**reading, COLUMNS: ",".join(found.identity)}
            there = read_staged(frame.sparkSession, path, columns, staged=staged)
        else:
            if not options.record_key_fields:
                return frame
            refuse_times(options, options.table_name or path, options.partition_fields if options.time_options else ())
            found = _Keys(options.record_key_fields or (), options.partition_fields or (), options.ordering_field)
        names = [*found.identity, *([found.ordering] if found.ordering else [])]
        frame = frame.withColumnsRenamed(renamings(frame.columns, names, frame.sparkSession))
        if not found.keys or not {*found.identity} <= {*frame.columns}:  # the write says what is missing
            return frame
        make = found.marked if options.known_keys == DROP else found.checked
        return analysed(lambda: make(frame, there), "the insert")

    return rows


def without_skipped(batches: Iterable[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], int]:
    """The rows that are written, without the mark, and how many were skipped."""
    counted = Counted(batches)
    return list(counted), counted.skipped


class Counted:
    """The rows of batches that are not skipped, without the mark; `skipped` counts the others as they pass."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.skipped = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            kept = batch.filter(pc.invert(batch[SKIPPED])).drop_columns([SKIPPED])
            self.skipped += batch.num_rows - kept.num_rows
            if kept.num_rows:
                yield kept


@dataclass(frozen=True)
class _Keys:
    """The columns that identify rows of a table, and the one that says which of several is newer."""

    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    ordering: str | None

    @property
    def identity(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.keys, *self.partitions]))

    def marked(self, frame: DataFrame, there: DataFrame | None) -> DataFrame:
        """The rows; those of known keys are `SKIPPED`, and of each new key all but one.

        That is the row with the greatest ordering value, and of several such rows the one whose other columns, in the
        frame's order, are the greatest: where a row stands says nothing.
        """
        from pyspark.sql import Window, functions

        first = [self.ordering] if self.ordering in frame.columns else []
        others = [field for field in frame.schema if field.name not in (*self.identity, *first)]
        order = [functions.col(name) for name in first] + [_comparable(frame, field) for field in others]
        ordered = [one.desc_nulls_last() for one in order] or [functions.lit(0).asc()]
        each = Window.partitionBy(*self._identity_of(frame)).orderBy(*ordered)
        found = frame.withColumn(_TIMES, functions.row_number().over(each))
        skipped = functions.col(_TIMES) > 1
        if there is not None:
            known, same = self._known(found, there)
            found = found.join(known, same, "left")
            skipped = skipped | functions.col(_KNOWN).isNotNull()
        return found.select(*[found[name] for name in frame.columns], skipped.alias(SKIPPED))

    def checked(self, frame: DataFrame, there: DataFrame | None) -> DataFrame:
        """The rows; if a key is known, or there twice, their evaluation ends the job with `InvalidRequest`."""
        from pyspark.sql import Window, functions

        each = Window.partitionBy(*self._identity_of(frame))
        found = frame.withColumn(_TIMES, functions.count(functions.lit(1)).over(each))
        twice = functions.col(_TIMES) > 1
        if there is not None:
            known, same = self._known(found, there)
            found = found.join(known, same, "left")
        row = {name: found[name] for name in self.identity}
        first = checked(row[self.identity[0]], twice, TWICE, self.identity, row)
        if there is not None:
            first = checked(first, functions.col(_KNOWN), KNOWN, self.identity, row)
        names = [first.alias(name) if name == self.identity[0] else found[name] for name in frame.columns]
        return found.select(*names)

    def _identity_of(self, frame: DataFrame) -> list[Column]:
        kinds = {field.name: field.dataType for field in frame.schema}
        return [frame[name] if name in self.keys else folder_value(frame[name], kinds[name]) for name in self.identity]

    def _known(self, frame: DataFrame, there: DataFrame) -> tuple[DataFrame, Column]:
        """The table's rows, marked as known, and the condition that one is that of a row of the frame."""
        from pyspark.sql import functions

        named = [functions.col(name).alias(f"{_KNOWN}_{name}") for name in there.columns]
        known = there.select(*named, functions.lit(True).alias(_KNOWN))
        same = same_rows(there.schema, self.keys, lambda name: frame[name], lambda name: known[f"{_KNOWN}_{name}"])
        return known, same


def _comparable(frame: DataFrame, field: StructField) -> Column:
    """A column, as text where Spark has no order for its type."""
    from pyspark.sql import functions

    return functions.to_json(frame[field.name]) if "map<" in field.dataType.simpleString() else frame[field.name]
