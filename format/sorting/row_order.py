"""The order of rows in a file: by columns, or along a curve that keeps rows together which are near in all of them.

A reader that looks for some values of a column skips the row groups whose least and greatest value exclude them. One
order makes these narrow for its first column alone; a curve makes them narrower for each of its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest

LINEAR, Z_ORDER, HILBERT = "linear", "z-order", "hilbert"
_INDEX_BITS = 62
_BITS_MAX = 16
_Points = list[npt.NDArray[np.uint64]]  # one array for each column


def order_of(rows: pa.Table, columns: Sequence[str], layout: str) -> npt.NDArray[np.int64]:
    """The numbers of the rows in this order; equal rows keep their order, and nulls come last."""
    if layout == LINEAR:
        return np.asarray(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns])).view(np.int64)
    bits = min(_INDEX_BITS // len(columns), _BITS_MAX)
    points = [_coordinates(rows[name], bits) for name in columns]
    place = interleaved(points, bits) if layout == Z_ORDER else hilbert_index(points, bits)
    return np.argsort(place, kind="stable")


def check_columns(schema: pa.Schema, columns: Collection[str], option: str) -> None:
    """`InvalidRequest` for columns that rows of a table cannot be sorted by; `option` names them."""
    for name in columns:
        if name not in schema.names:
            raise InvalidRequest(
                f"{option} names {name!r}, and the table's columns are {', '.join(schema.names)}", option=option
            )
        if pa.types.is_nested(schema.field(name).type):
            raise InvalidRequest(
                f"{option} names {name!r}, a {schema.field(name).type}: rows are sorted by plain columns",
                option=option,
            )


def interleaved(points: _Points, bits: int) -> npt.NDArray[np.uint64]:
    """Each point's place on the Z-order curve: the bits of its coordinates, in turns."""
    place = np.zeros(len(points[0]), np.uint64)
    for bit in reversed(range(bits)):
        for axis in points:
            place = (place << np.uint64(1)) | ((axis >> np.uint64(bit)) & np.uint64(1))
    return place


def hilbert_index(points: _Points, bits: int) -> npt.NDArray[np.uint64]:
    """Each point's place on the Hilbert curve, on which neighbours are neighbours in space.

    J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004): coordinates become the
    transposed place bit by bit, from the highest one, by exchanges and inversions of what is below.
    """
    axes = [axis.copy() for axis in points]
    for bit in reversed(range(1, bits)):
        below = np.uint64((1 << bit) - 1)
        for number, axis in enumerate(axes):
            inverts = (axis >> np.uint64(bit)) & np.uint64(1) == 1
            exchanged = np.where(inverts, np.uint64(0), (axes[0] ^ axis) & below)
            axes[0] = axes[0] ^ np.where(inverts, below, exchanged)
            if number:
                axes[number] = axis ^ exchanged
    for number in range(1, len(axes)):  # Gray code
        axes[number] = axes[number] ^ axes[number - 1]
    turned = np.zeros(len(points[0]), np.uint64)
    for bit in reversed(range(1, bits)):
        turned ^= np.where((axes[-1] >> np.uint64(bit)) & np.uint64(1) == 1, np.uint64((1 << bit) - 1), np.uint64(0))
    return interleaved([axis ^ turned for axis in axes], bits)


def _coordinates(values: pa.ChunkedArray, bits: int) -> npt.NDArray[np.uint64]:
    """The rank of each value among all of them, as a number of so many bits: columns of any type count alike."""
    positions = pc.rank(values, sort_keys="ascending", tiebreaker="min")
    found = np.asarray(positions).astype(np.float64) - 1
    return (found * ((1 << bits) / len(values))).astype(np.uint64)
