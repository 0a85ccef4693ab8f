"""Pruning: leaves out partitions and buckets in which no row fulfils the conditions of a read.

Conditions only save work, as the reader filters the rows as well. So everything that is not understood is kept.

The name of a partition's folder is compared only if each of its levels is known to be the value of one partition field.
Java puts a text with slashes, or a day, into several levels of one field. A folder as deep as there are fields has one
level for each. A folder above others is compared level by level, as long as each level is a whole value of the wanted
rows: a number, a day, or one of some named texts without slashes.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import pyarrow as pa

from lakelatch.engine.table.table import OpenedTable, check_key_generator
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.bucket_index import bucket_ids, bucket_ids_of_texts, bucket_of_file_id
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.index.statistics import Statistics
from lakelatch.format.keygen.paths import partition_paths
from lakelatch.format.merge.conditions import Bound as Bound
from lakelatch.format.merge.conditions import Condition as Condition
from lakelatch.format.merge.conditions import OneOf as OneOf
from lakelatch.format.merge.conditions import Present as Present
from lakelatch.format.merge.conditions import kind_of, understood
from lakelatch.format.record_keys import DEFAULT_PARTITION, record_keys

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_TRUTHS = {"true": True, "false": False}
_PATHS_MAX = 64
_KEYS_MAX = 4096


@dataclass(frozen=True)
class Pruning:
    """The conditions of a read, all of which its rows must fulfil, and the table whose folders and files are pruned."""

    table: OpenedTable
    conditions: tuple[Condition, ...] = ()

    @cached_property
    def paths(self) -> list[str] | None:
        """The only partitions that can have such rows, whether they exist or not; None if that is not known.

        Only for tables made by Lakelatch: others may have other folder names for null, or for a number.
        """
        fields = self.table.config.partition_fields
        choices = [self._choice(field, (str, int)) for field in fields]
        found = [choice for choice in choices if choice is not None]
        if not fields or len(found) < len(fields) or not self.table.config.made_here or not self._folders_are_known:
            return None
        if prod(map(len, found)) > _PATHS_MAX:
            return None
        config = self.table.config
        try:
            wanted = self._rows_of(fields, found)
            paths = partition_paths(wanted, config)
        except InvalidRequest:  # a value that is no folder's name here
            return None
        return sorted(set(paths.to_pylist()))

    def holds(self, folder: str) -> bool:
        """Whether a partition may have such rows."""
        levels = folder.split("/")
        if not self._folders_are_known:
            return True
        if len(levels) != len(self._fields):
            return self.leads_on(folder)
        return all(self._allows(field, level) for field, level in zip(self._fields, levels, strict=True))

    def leads_on(self, folder: str) -> bool:
        """Whether a partition with such rows may lie in a folder, or below it."""
        if not self._folders_are_known:
            return True
        for field, level in zip(self._fields, folder.split("/"), strict=False):
            if self._values_of(field, level) is None:
                return True
            if self._kind(field) is str and self._choice(field, (str,)) is None:
                return True
            if not self._allows(field, level):
                return False
        return True

    def holds_group(self, file_id: str) -> bool:
        """Whether a file group may have such rows."""
        if self._buckets is None:
            return True
        bucket = bucket_of_file_id(file_id)
        return bucket is None or bucket >= (self.table.config.bucket_count or 0) or bucket in self._buckets

    def held(self, slices: Iterable[FileSlice], statistics: Statistics) -> list[FileSlice]:
        """The slices that may have such rows, by the ranges of their columns.

        Slices with logs always may: logs can hold any value, and change rows of the base file.
        """
        out = statistics.ruled_out(understood(self.conditions, self.table.full_schema), self.table.full_schema)
        return [
            found
            for found in slices
            if found.base_file is None or found.fresh_logs or (found.partition, found.base_file) not in out
        ]

    @property
    def _fields(self) -> tuple[str, ...]:
        return self.table.config.partition_fields

    @cached_property
    def _folders_are_known(self) -> bool:
        """Whether folders are named by the columns' values, and a condition names any of these columns."""
        config = self.table.config
        if config.time_fields:
            return False
        if not any(self._by_column.get(field) for field in config.partition_fields):
            return False
        if not config.made_here and not any(key.startswith("hoodie.table.keygenerator.") for key in config.raw):
            return False
        try:
            check_key_generator(config)
        except InvalidRequest:
            return False
        return True

    @cached_property
    def _by_column(self) -> dict[str, list[Condition]]:
        """Conditions on columns whose values are known as texts, if they only name values of the column's type."""
        found: dict[str, list[Condition]] = {}
        for one in self.conditions:
            kind = self._kind(one.column)
            if kind is not None and all(value is None or type(value) is kind for value in one.values):
                found.setdefault(one.column, []).append(one)
        return found

    def _kind(self, column: str) -> type | None:
        """The Python type of a column's values; None if folders and buckets are not made from it here."""
        if column not in self.table.schema.names:
            return None
        kind = kind_of(self.table.schema.field(column).type)
        return kind if kind in (str, int) or self.table.config.made_here else None

    def _choice(self, column: str, kinds: Sequence[type]) -> tuple[object, ...] | None:
        """The values that a column of these types may have; None if they are not named, or one has a slash."""
        named = [one for one in self._by_column.get(column, ()) if isinstance(one, OneOf)]
        if not named or self._kind(column) not in kinds:
            return None
        least = min((one.values for one in named), key=len)
        return None if any(isinstance(value, str) and "/" in value for value in least) else least

    def _allows(self, field: str, level: str) -> bool:
        values = self._values_of(field, level)
        conditions = self._by_column.get(field, ())
        return values is None or any(all(one.allows(value) for one in conditions) for value in values)

    def _values_of(self, field: str, level: str) -> tuple[object, ...] | None:
        """The values of a field whose rows lie in a folder of this name; None if they are unknown."""
        config, kind = self.table.config, self._kind(field)
        prefix = f"{field}="
        if kind is None or level.startswith(prefix) != config.hive_style_partitioning:
            return None
        text = level.removeprefix(prefix)
        if text == DEFAULT_PARTITION:
            return (None, "", text) if kind is str else (None,)
        if "%" in text:
            if not config.url_encode_partitioning:
                return None
            text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
        if kind is str:
            return (text,)
        if kind is bool:
            return (_TRUTHS[text],) if text in _TRUTHS else None
        if kind is int:
            return (int(text),) if _WHOLE_NUMBER.fullmatch(text) else None
        try:
            return (datetime.date.fromisoformat(text),) if _DAY.fullmatch(text) else None
        except ValueError:
            return None

    @cached_property
    def record_keys(self) -> pa.Array | None:
        """The only record keys of such rows, whether they exist or not; None if that is not known.

        Only for tables made by Lakelatch, unless a condition names the keys themselves.
        """
        named = [
            pa.array(one.values, pa.string())
            for one in self.conditions
            if isinstance(one, OneOf) and one.column == RECORD_KEY_COLUMN
            if all(isinstance(value, str) for value in one.values)
        ]
        config = self.table.config
        if config.prefixed_keys is not None:
            fields, prefixed = config.record_key_fields, config.prefixed_keys
            named += self._of_wanted(fields, lambda rows: record_keys(rows, fields, prefixed, config.commas_in_keys))
        return min(named, key=len, default=None)

    @cached_property
    def _buckets(self) -> frozenset[int] | None:
        """The buckets that may have such rows; None if they are not known. Only for tables made by Lakelatch."""
        config = self.table.config
        count = config.bucket_count
        if not count:
            return None
        if config.prefixed_keys:
            fields = config.record_key_fields
            found = self._of_wanted(fields, lambda rows: bucket_ids_of_texts([record_keys(rows, fields, True)], count))
        else:
            hashed = config.hash_fields or config.record_key_fields
            found = self._of_wanted(hashed, lambda rows: bucket_ids(rows, hashed, count))
        return frozenset(found[0].to_pylist()) if found else None

    def _of_wanted(self, fields: Sequence[str], make: Callable[[pa.Table], pa.Array]) -> list[pa.Array]:
        """`make` of the only values that such rows can have in these columns; empty if they are not known."""
        choices = [self._choice_of_key(field) for field in fields]
        found = [choice for choice in choices if choice is not None]
        if (
            not fields
            or len(found) < len(fields)
            or not self.table.config.made_here
            or prod(map(len, found)) > _KEYS_MAX
        ):
            return []
        try:
            wanted = self._rows_of(fields, found)
            return [make(wanted) if wanted.num_rows else pa.array([], pa.string())]
        except InvalidRequest:  # values that can be no key: the reader's filter finds no row for them
            return []

    def _choice_of_key(self, field: str) -> tuple[object, ...] | None:
        named = [one.values for one in self._by_column.get(field, ()) if isinstance(one, OneOf)]
        return min(named, key=len) if named else None

    def _rows_of(self, fields: Sequence[str], choices: Iterable[Sequence[object]]) -> pa.Table:
        """A row for each combination of values. Errors: `InvalidRequest` for values that no column can hold."""
        schema = pa.schema([self.table.schema.field(field) for field in fields])
        rows = [dict(zip(fields, values, strict=True)) for values in product(*choices)]
        try:
            return pa.Table.from_pylist(rows, schema=schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InvalidRequest(f"the values of a condition are none of {', '.join(fields)}: {error}") from error


class CountedSelection:
    """A pruning as a selection of partitions, which counts the partitions that it is asked about."""

    def __init__(self, pruning: Pruning) -> None:
        self._pruning = pruning
        self._folders: dict[str, bool] = {}
        self._sees_all = True

    @property
    def paths(self) -> list[str] | None:
        """See `Pruning`."""
        found = self._pruning.paths
        self._sees_all &= found is None
        return found

    def holds(self, folder: str) -> bool:
        """See `Pruning`."""
        return self._folders.setdefault(folder, self._pruning.holds(folder))

    def leads_on(self, folder: str) -> bool:
        """See `Pruning`. A folder that is not opened counts as a partition if it is as deep as there are fields."""
        leads = self._pruning.leads_on(folder)
        if not leads and folder.count("/") + 1 == len(self._pruning.table.config.partition_fields):
            self._folders[folder] = False
        else:
            self._sees_all &= leads
        return leads

    @property
    def there(self) -> int | None:
        """The number of partitions; None if not all were listed."""
        if not self._pruning.table.config.partition_fields:
            return 1
        return len(self._folders) if self._sees_all else None


@dataclass(frozen=True)
class PlanCounts:
    """Counts of a plan, and of what it leaves out.

    `partitions` are those whose file groups were considered, of `partitions_there`, or None if not all were listed.
    `groups_there` are their file groups, of which some were left out `by_buckets`, and others `by_statistics` of the
    file index as of the moment `index`, which is empty if folders were listed.
    """

    partitions: int = 0
    partitions_there: int | None = None
    groups_there: int = 0
    by_buckets: int = 0
    by_statistics: int = 0
    index: str = ""

    def summary(self, slices: int) -> str:
        """A short text, with the number of slices that are left."""
        there = "unknown" if self.partitions_there is None else self.partitions_there
        return f"{self.partitions} of {there} partitions, {slices} of their {self.groups_there} file groups"
