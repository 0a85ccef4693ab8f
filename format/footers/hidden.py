"""Floating point values that a footer hides from readers: NaN, and zeros.

To Spark NaN is greater than every number, and both zeros are one value. The library's least and greatest values of a
column chunk leave NaN out; and a reader that searches a value by its bits, as in a Bloom filter, or as Java's library
does in a dictionary, finds one of the zeros and misses the other. So for such values a footer has to say less.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.format.footers.thrift import Path, without

_ROW_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3  # fields of a footer, of a row group and of a column, and of a chunk:
_STATISTICS, _ENCODING_STATS, _BLOOM_OFFSET, _BLOOM_SIZE = 12, 13, 14, 15
_BOUNDS = (
    1,
    2,
    5,
    6,
    7,
    8,
)  # the least and the greatest value, in the old way and in the new one, and if they are exact
_OF_NAN: tuple[Path, ...] = (*((_STATISTICS, one) for one in _BOUNDS), (_BLOOM_OFFSET,), (_BLOOM_SIZE,))
# Without the note that all pages of a chunk have a dictionary, readers do not take it for all values.
_OF_ZEROS: tuple[Path, ...] = ((_ENCODING_STATS,), (_BLOOM_OFFSET,), (_BLOOM_SIZE,))
_TAIL = 8  # how long the footer is, and the magic


@dataclass(frozen=True)
class FloatLeaves:
    """The leaves of a schema that have floating point numbers: columns that hold some, and each one's first leaf."""

    columns: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, schema: pa.Schema) -> FloatLeaves:
        columns, leaf = [], 0
        for number, field in enumerate(schema):
            kinds = [values.type for values in leaf_values(pa.array([], field.type))]
            if any(map(_is_float, kinds)):
                columns.append((number, leaf))
            leaf += len(kinds)
        return cls(tuple(columns))

    def misleading_in(self, rows: pa.Table, group: int) -> set[Path]:
        """The values that `take_out` has to remove from a footer, whose row group of this number has these rows."""
        found: set[Path] = set()
        for number, first in self.columns:
            for chunk in rows.column(number).chunks:
                for leaf, values in enumerate(leaf_values(chunk), first):
                    for path in _misleading(values):
                        found.add((_ROW_GROUPS, group, _COLUMNS, leaf, _CHUNK, *path))
        return found


def take_out(file: BinaryIO, paths: Collection[Path]) -> None:
    """Writes a parquet file's footer anew, without what is at these paths."""
    end = file.seek(0, io.SEEK_END)
    file.seek(end - _TAIL)
    tail = file.read(_TAIL)
    size_bytes = int.from_bytes(tail[:4], "little")
    start = file.seek(end - _TAIL - size_bytes)
    footer = without(file.read(size_bytes), paths)
    file.seek(start)
    file.truncate()
    file.write(footer + len(footer).to_bytes(4, "little") + tail[4:])


def leaf_values(values: Any) -> Iterator[pa.Array]:
    """The values of each leaf of a column, in the order of the leaves; perhaps with some that no row has."""
    kind = values.type
    if pa.types.is_struct(kind):
        for child in values.flatten():
            yield from leaf_values(child)
    elif pa.types.is_map(kind):
        yield from leaf_values(values.keys)
        yield from leaf_values(values.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from leaf_values(values.flatten())
    else:
        yield values


def _misleading(values: pa.Array) -> tuple[Path, ...]:
    if not _is_float(values.type):
        return ()
    of_nan = _OF_NAN if pc.any(pc.is_nan(values)).as_py() else ()
    of_zeros = _OF_ZEROS if pc.any(pc.equal(values, pa.scalar(0, values.type))).as_py() else ()
    return (*of_nan, *of_zeros)


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))
