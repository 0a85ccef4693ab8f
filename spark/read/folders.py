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

_DEFAULT = "__HIVE_DEFAULT_PARTITION__"  # of null; and of an empty text, between which Spark cannot tell
_ANY = re.compile(r"[^/]+", re.DOTALL)
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]+")  # as they are in every form of a path
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TRUTH = re.compile(r"true|false")


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

        Folders without names, and those of times and decimals, are what our own writers make of them: others make
        several folders of a day, and of a text with slashes.
        """
        fields, named = config.partition_fields, config.hive_style_partitioning
        if not fields or config.key_generator or config.time_fields:
            return None
        if not all(name in schema.names and _form_of(schema.field(name).type) for name in fields):
            return None
        found = cls(pa.schema([schema.field(name) for name in fields]), named, config.url_encode_partitioning)
        of_others = named and all(_is_text(kind) or pa.types.is_integer(kind) for kind in found.schema.types)
        hidden = found.by_path and not RESERVED.isdisjoint(name.lower() for name in schema.names)
        return None if hidden or not (config.made_here or of_others) else found

    @property
    def by_path(self) -> bool:
        """Whether the columns are made of the path of each row's file, and not by Spark of the folders' names."""
        return not self.named or any(pa.types.is_timestamp(kind) for kind in self.schema.types)

    def said(self, partition: str) -> Said | None:
        """How the folders of a partition say its values, each as it was written; None if they do not."""
        levels = partition.split("/")
        values = self._values_of_names(levels) if self.named else levels
        single_text = not self.named and len(self.schema) == 1 and _is_text(self.schema.field(0).type)
        if values is None or (len(values) != len(self.schema) and not single_text):
            return None
        kinds = self.schema.types * (len(values) if single_text else 1)
        if not all(self._says(value, kind) for value, kind in zip(values, kinds, strict=True)):
            return None
        if not self.by_path:
            return Said(tuple(self.schema.names), len(levels))
        is_plain = all(_UNRESERVED.fullmatch(value) for value in values)
        is_escaped = self.encoded and any("%" in value for value in values)
        missing = frozenset(name for name, value in zip(self.schema.names, values, strict=False) if value == _DEFAULT)
        return Said(tuple(self.schema.names), len(levels), True, self.named, 0 if is_plain else 1 + is_escaped, missing)

    def _values_of_names(self, levels: list[str]) -> list[str] | None:
        parts = [part.partition("=") for part in levels]
        return [value for _, _, value in parts] if [name for name, _, _ in parts] == self.schema.names else None

    def _says(self, value: str, kind: pa.DataType) -> bool:
        if value == "" or (_is_text(kind) and value == _DEFAULT) or (self.named and "%" in value and not self.encoded):
            return False
        form = _form_of(kind)
        return form is not None and (form.fullmatch(value) is not None or value == _DEFAULT)


@dataclass(frozen=True)
class Said:
    """How folders of so many levels say the values of partition columns: to Spark, unless they are made `by_path`.

    Those may be `named` too. The path is that of a URI, so values of other than unreserved characters are `escaped`
    there, and twice where the folder's name has escapes of its own. The columns that are `missing` are null.
    """

    names: tuple[str, ...]
    levels: int
    by_path: bool = False
    named: bool = False
    escaped: int = 0
    missing: frozenset[str] = frozenset()

    def columns(self, kinds: Mapping[str, DataType]) -> dict[str, Column]:
        """The columns that are made of the path of each row's file, by their names."""
        from pyspark.sql import functions

        path, made = functions.col("_metadata.file_path"), {}
        for number, name in enumerate(self.names if self.by_path else ()):
            end = functions.substring_index(path, "/", number - self.levels - 1)
            count = self.levels if len(self.names) == 1 else 1  # a single text may have slashes
            text = functions.substring_index(end, "/", count)
            if self.named:
                text = functions.substring_index(text, "=", -1)
            for _ in range(self.escaped):
                text = functions.url_decode(functions.replace(text, functions.lit("+"), functions.lit("%2B")))
            # The condition holds always, and makes a column that may be null by its type, as it is in every other scan.
            value = functions.lit(None) if name in self.missing else _value_of(text, kinds[name])
            made[name] = functions.when(path.isNotNull(), value.cast(kinds[name])).alias(name)
        return made


def _value_of(text: Column, kind: DataType) -> Column:
    from pyspark.sql import functions
    from pyspark.sql.types import TimestampNTZType, TimestampType

    if isinstance(kind, TimestampType):
        return functions.timestamp_micros(text.cast("long"))
    if isinstance(kind, TimestampNTZType):
        seconds = (text.cast("decimal(18,0)") / functions.lit(1_000_000)).cast("decimal(18,6)")
        return functions.expr("TIMESTAMP_NTZ '1970-01-01'") + functions.make_dt_interval(secs=seconds)
    return text


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind))


def _form_of(kind: pa.DataType) -> re.Pattern[str] | None:
    """What a folder's name looks like that says a value of this type, in one way only; None if none does."""
    if _is_text(kind):
        return _ANY
    if pa.types.is_int32(kind) or pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return _WHOLE_NUMBER
    if pa.types.is_date32(kind):
        return _DAY
    if pa.types.is_decimal(kind):
        return _DECIMAL
    return _TRUTH if pa.types.is_boolean(kind) else None
