"""Folders that say the values of partition columns: by their names, `day=2026-11-24`, or by their place, `2026-11-24`.

Spark applies conditions on what it takes from folders before it opens a file. Of named folders it takes the columns by
itself. Of others the column is made of the path that Spark says of each row's file, which is one for all of a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.engine.read.places import RESERVED
from lakelatch.timeline.table_config import TableConfig

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_DEFAULT = "__HIVE_DEFAULT_PARTITION__"  # of null and of an empty text, between which Spark cannot tell
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]+")  # as they are in every form of a path
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True)
class Folders:
    """The partition columns of a table, and whether its folders have their names, or their values alone.

    Where a folder says a value, the files in it have that one alone.
    """

    schema: pa.Schema
    named: bool
    encoded: bool

    @classmethod
    def of(cls, config: TableConfig, schema: pa.Schema) -> Folders | None:
        """None if folders do not say the values, or not of these columns, or of types that have several texts.

        Folders without names are those of our own writers: others make several of a day, and of a text with slashes.
        """
        fields, named = config.partition_fields, config.hive_style_partitioning
        if not fields or config.key_generator or config.time_fields:
            return None
        if not named and not (config.made_here and RESERVED.isdisjoint(name.lower() for name in schema.names)):
            return None
        if not all(name in schema.names and _has_one_text(schema.field(name).type) for name in fields):
            return None
        return cls(pa.schema([schema.field(name) for name in fields]), named, config.url_encode_partitioning)

    def said(self, partition: str) -> Said | None:
        """How the folders of a partition say its values, each as it was written; None if they do not."""
        levels = partition.split("/")
        if not (self._names_say(levels) if self.named else self._places_say(levels)):
            return None
        return Said(tuple(self.schema.names), self.named, len(levels))

    def _names_say(self, levels: list[str]) -> bool:
        parts = [part.partition("=") for part in levels]
        if [name for name, _, _ in parts] != self.schema.names:
            return False
        values = [value for _, _, value in parts]
        return all(value not in ("", _DEFAULT) and (self.encoded or "%" not in value) for value in values)

    def _places_say(self, levels: list[str]) -> bool:
        if len(levels) != len(self.schema) and not (len(self.schema) == 1 and _is_text(self.schema.field(0).type)):
            return False
        if not all(_UNRESERVED.fullmatch(level) and level != _DEFAULT for level in levels):
            return False
        kinds = zip(levels, self.schema.types, strict=False)
        return all(_is_text(kind) or _WHOLE_NUMBER.fullmatch(level) for level, kind in kinds)


@dataclass(frozen=True)
class Said:
    """How folders of so many levels say the values of partition columns: to Spark if they are `named`."""

    names: tuple[str, ...]
    named: bool
    levels: int

    def columns(self, kinds: Mapping[str, DataType]) -> dict[str, Column]:
        """The columns that are made of the path of each row's file, by their names."""
        from pyspark.sql import functions

        path, made = functions.col("_metadata.file_path"), {}
        for number, name in enumerate(() if self.named else self.names):
            end = functions.substring_index(path, "/", number - self.levels - 1)
            count = self.levels if len(self.names) == 1 else 1  # a single text may have slashes
            value = functions.substring_index(end, "/", count).cast(kinds[name])
            # The condition holds always, and makes a column that may be null by its type, as it is in every other scan.
            made[name] = functions.when(path.isNotNull(), value).alias(name)
        return made


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind))


def _has_one_text(kind: pa.DataType) -> bool:
    return bool(_is_text(kind) or pa.types.is_int32(kind) or pa.types.is_int64(kind))
