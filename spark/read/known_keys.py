"""Inserts that look which keys are in the table: rows of those are left out, or refused.

The table is read inside each try of the write, so that whatever others commit in between is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from lakelatch.errors import InvalidRequest
from lakelatch.spark.api.arguments import analysed, checked, same_rows
from lakelatch.spark.open_table import open_table
from lakelatch.spark.options import COLUMNS, DROP, KNOWN_KEYS_POLICY, WriteOptions
from lakelatch.spark.read.reader import read
from lakelatch.spark.spark_types import renamings
from lakelatch.storage.options import KNOWN_STORAGE_KEYS
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.table_config import is_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KNOWN = "_lakelatch_known"
_WORDS = (
    "the table has a row with ",
    " already: leave it out, or use upsert, or leave out all such rows with if_exists='skip' of an insert or "
    "hoodie.datasource.insert.dup.policy=drop",
)


def with_new_keys(
    source: Callable[[], DataFrame], path: str, given: Mapping[str, object] | None, options: WriteOptions
) -> Callable[[], DataFrame]:
    """A frame of which rows are left out, or refused, whose keys are in the table, as the options say."""
    reading = {key: value for key, value in (given or {}).items() if key.lower() in KNOWN_STORAGE_KEYS}

    def rows() -> DataFrame:
        frame, storage = source(), open_storage(path, options.manager.storage)
        if not is_table(storage):
            return frame
        config = open_table(storage).config
        if config.time_fields:
            raise InvalidRequest(
                f"{KNOWN_KEYS_POLICY}={options.known_keys} compares columns, and the table {config.name!r} makes "
                f"folders of times ({', '.join(config.time_fields)}), each of which holds one row of a key for several "
                "times: leave the option out, and use upsert",
                option=KNOWN_KEYS_POLICY,
            )
        keys, partitions = config.record_key_fields, config.partition_fields
        there = read(frame.sparkSession, path, {**reading, COLUMNS: ",".join(dict.fromkeys([*keys, *partitions]))})
        make = only_new if options.known_keys == DROP else all_new
        return analysed(lambda: make(frame, there, keys), "the insert")

    return rows


def only_new(frame: DataFrame, there: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows that are not there, by the columns of `there`: those of the record key, and of the partition."""
    known, same = _marked(frame, there, keys)
    return frame.join(known, same, "left_anti")


def all_new(frame: DataFrame, there: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows; if one is there, its evaluation ends the job with `InvalidRequest`."""
    from pyspark.sql import functions

    identity = there.columns
    frame = frame.withColumnsRenamed(renamings(frame.columns, identity, frame.sparkSession))  # or none is checked
    known, same = _marked(frame, there, keys)
    joined = frame.join(known, same, "left")
    row = {name: joined[name] for name in identity}
    first = checked(row[identity[0]], functions.col(_KNOWN), _WORDS, identity, row)
    return joined.select(*[first.alias(name) if name == identity[0] else joined[name] for name in frame.columns])


def _marked(frame: DataFrame, there: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, Column]:
    """What is there, marked as known, and when one is that of a row of the frame."""
    from pyspark.sql import functions

    named = [functions.col(name).alias(f"{_KNOWN}_{name}") for name in there.columns]
    known = there.select(*named, functions.lit(True).alias(_KNOWN))
    return known, same_rows(there.schema, keys, lambda name: frame[name], lambda name: known[f"{_KNOWN}_{name}"])
