"""Statistics of base files in the file index: the least and the greatest value of a column, and its number of nulls.

They only save work: files whose statistics are missing, of another type, or not understood are never ruled out.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.format.avro import META_COLUMNS
from lakelatch.format.base_files import open_base_file
from lakelatch.format.merge.conditions import Condition, OneOf, kind_of
from lakelatch.storage.contract import NotFound, Storage

#: Only the first columns of a wider file have statistics, as in Hudi and Delta Lake.
_COLUMNS_MAX = 32
_TEXT_MAX = 32
#: The bytes at the end of a file that are read at first; a smaller file is read whole.
_END_BYTES = 64 * 1024
_DAY = str(pa.date32())
#: A partition, and the name of a file in it.
FileKey: TypeAlias = tuple[str, str]
_Lists: TypeAlias = tuple[list[Any], list[Any], list[Any]]


@dataclass(frozen=True)
class ColumnRange:
    """Bounds of a column's values in one file, which need not be values themselves; None if there are no values."""

    column: str
    kind: str
    least: Any
    greatest: Any
    nulls: int


@dataclass(frozen=True)
class Statistics:
    """The ranges of columns in base files, as stored in the index: those of columns that a plan does not use stay text.

    `files` are the names of the files, by partition. `columns` are a name, a type, and a JSON text of three lists: the
    least and the greatest value and the number of nulls in each file, in order; null if unknown.
    """

    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: Sequence[tuple[str, str, str]] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Statistics:
        """Errors: `KeyError`, `TypeError`, `ValueError` for values that are not of `to_json`."""
        return cls(values["files"], [(str(name), str(kind), str(text)) for name, kind, text in values["columns"]])

    def to_json(self) -> dict[str, Any]:
        return {"files": self.files, "columns": self.columns}

    @classmethod
    def of(cls, found: Mapping[FileKey, Iterable[ColumnRange]]) -> Statistics:
        """The statistics of these files."""
        files: dict[str, list[str]] = {}
        for partition, name in found:
            files.setdefault(partition, []).append(name)
        places = {key: place for place, key in enumerate(_keys(files))}
        columns: dict[tuple[str, str], _Lists] = {}
        count = len(places)
        for key, ranges in found.items():
            for one in ranges:
                lists = columns.setdefault((one.column, one.kind), ([None] * count, [None] * count, [None] * count))
                for values, value in zip(lists, (one.least, one.greatest, one.nulls), strict=True):
                    values[places[key]] = value.isoformat() if isinstance(value, datetime.date) else value
        return cls(files, [(*column, json.dumps(lists)) for column, lists in columns.items()])

    def by_file(self) -> dict[FileKey, list[ColumnRange]]:
        """The ranges by file, as given to `of`."""
        found: dict[FileKey, list[ColumnRange]] = {key: [] for key in _keys(self.files)}
        for column, kind, text in self.columns:
            for ranges, values in zip(found.values(), zip(*self._lists(text, kind), strict=True), strict=False):
                if values[2] is not None:
                    ranges.append(ColumnRange(column, kind, *values))
        return found

    def ruled_out(self, conditions: Iterable[Condition], schema: pa.Schema) -> frozenset[FileKey]:
        """The files in which no row fulfils all conditions, which are `understood` by this schema."""
        out: set[int] = set()
        for one in conditions:
            kind = schema.field(one.column).type
            for column, stored, text in self.columns:
                if column == one.column and stored == str(kind):
                    values = zip(*self._lists(text, stored), strict=True)
                    out.update(place for place, known in enumerate(values) if not _may_hold(one, kind_of(kind), *known))
        return frozenset(key for place, key in enumerate(_keys(self.files)) if place in out) if out else frozenset()

    def _lists(self, text: str, kind: str) -> _Lists:
        """The lists of a column; empty ones if they are not understood."""
        try:
            least, greatest, nulls = json.loads(text)
            if not len(least) == len(greatest) == len(nulls) == sum(map(len, self.files.values())):
                return [], [], []
            return (_days(least), _days(greatest), nulls) if kind == _DAY else (least, greatest, nulls)
        except (TypeError, ValueError):
            return [], [], []


def ranges_of(storage: Storage, path: str) -> tuple[ColumnRange, ...] | None:
    """The ranges in a base file's footer; empty if the footer is not verified by a checksum.

    None if the file could not be read: it does not exist any more, or the storage did not answer.
    """
    try:
        file = open_base_file(storage, path, (), end_bytes=_END_BYTES)
    except (NotFound, Unavailable):
        return None
    except CorruptTable:  # reading its rows raises the error
        return ()
    if not file.checksummed:
        return ()
    columns = [one for one in file.file.schema_arrow if one.name not in META_COLUMNS][:_COLUMNS_MAX]
    # A column with a dot in its name looks like a part of another column.
    wanted = {one.name: str(one.type) for one in columns if kind_of(one.type) is not None and "." not in one.name}
    metadata = file.file.metadata
    leaves = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    found = (_range_in(metadata, leaves[name], name, kind) for name, kind in wanted.items() if name in leaves)
    return tuple(one for one in found if one is not None)


def _range_in(metadata: Any, leaf: int, column: str, kind: str) -> ColumnRange | None:
    """The range of a column over all row groups; None if one of them does not have it."""
    parts: list[tuple[Any, Any]] = []
    nulls = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        said = group.column(leaf).statistics
        if not group.num_rows:
            continue
        if said is None or not said.has_null_count:
            return None
        nulls += said.null_count
        if said.has_min_max:
            try:
                parts.append((said.min, said.max))
            except (ValueError, OverflowError):  # a day that Python has not
                return None
        elif said.null_count != group.num_rows:  # its values are too long for a footer
            return None
    if not parts:
        return ColumnRange(column, kind, None, None, nulls)
    least, greatest = reduce(lambda one, other: (min(one[0], other[0]), max(one[1], other[1])), parts)
    if isinstance(least, str):
        least, greatest = least[:_TEXT_MAX], _not_less(greatest)
    return None if greatest is None else ColumnRange(column, kind, least, greatest, nulls)


def _not_less(text: str) -> str | None:
    """A short text that is not less than this one; None if there is none."""
    if len(text) <= _TEXT_MAX:
        return text
    for end in range(_TEXT_MAX, 0, -1):
        following = ord(text[end - 1]) + 1
        if following <= sys.maxunicode:
            return text[: end - 1] + ("\ue000" if 0xD800 <= following <= 0xDFFF else chr(following))
    return None


def _may_hold(condition: Condition, own: type | None, least: Any, greatest: Any, nulls: Any) -> bool:
    """Whether a file may have a row that fulfils it, by what is known of its column."""
    if type(nulls) is not int:
        return True
    if least is None and greatest is None:
        return isinstance(condition, OneOf) and None in condition.values
    if type(least) is not own or type(greatest) is not own:
        return True
    return condition.may_hold(least, greatest, nulls)


def _days(values: Iterable[Any]) -> list[Any]:
    return [None if value is None else datetime.date.fromisoformat(value) for value in values]


def _keys(files: Mapping[str, Sequence[str]]) -> Iterator[FileKey]:
    return ((partition, name) for partition, names in files.items() for name in names)
