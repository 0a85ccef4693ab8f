"""Ordering values: of whatever type, as one that sorts, and as ranks; and small helpers for Arrow's columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import shown_type


def comparable(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Ordering values of type `kind`, which may come in a wider type of the same family, as one sortable type."""
    types = pa.types
    if types.is_null(values.type):
        values = pa.nulls(len(values), kind)
    if types.is_timestamp(values.type) and types.is_timestamp(kind):
        values = values.cast(pa.timestamp(kind.unit, values.type.tz), safe=False)
    if types.is_temporal(values.type):
        values = values.cast(pa.int32() if types.is_date32(values.type) else pa.int64())
    values = values.cast(sortable_type(kind))
    return pc.fill_null(values, 0) if types.is_integer(values.type) else values  # Hudi's default is an int of 0


def restored(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Values that `comparable` made, as the type that they came from."""
    return (values.cast(pa.int32()) if pa.types.is_date32(kind) else values).cast(kind)


def sortable_type(kind: pa.DataType) -> pa.DataType:
    """The type as which ordering values of this one are compared. Errors: `InvalidRequest` if there is none."""
    types = pa.types
    if types.is_decimal(kind):
        return pa.decimal256(76, max(kind.scale, 15))
    if types.is_floating(kind):
        return pa.float64()
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_temporal(kind):
        return pa.int64()
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    raise InvalidRequest(
        f"an ordering field of type {shown_type(kind)} cannot be compared: use a number, text, date or timestamp"
    )


def is_default(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A delete without an ordering value, or with Hudi's default one, deletes in any case.

    That is an int of 0, which a date of 1970-01-01 is as well: a delete block cannot tell them apart, nor does Java.
    """
    missing = pc.is_null(values)
    if not (pa.types.is_int32(values.type) or pa.types.is_date32(values.type)):
        return missing
    return pc.or_(missing, pc.fill_null(pc.equal(values.cast(pa.int32()), 0), False))


def flags(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """A column of booleans without nulls as numpy's."""
    return np.asarray(values).astype(np.bool_)


def chunked(arrays: list[pa.Array | pa.ChunkedArray]) -> pa.ChunkedArray:
    """The arrays, which have one type, one behind the other."""
    chunks = [chunk for array in arrays for chunk in (array.chunks if isinstance(array, pa.ChunkedArray) else [array])]
    return pa.chunked_array(chunks, arrays[0].type)


def in_java_s_order(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values that sort as Java and hudi-rs compare these: -0.0 is less than 0.0, and not-a-number above all.

    Floating point numbers become integers, since Arrow takes both zeros for equal; others stay as they are.
    """
    if not pa.types.is_floating(values.type):
        return values
    missing = flags(pc.is_null(values))
    numbers = np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0), dtype=np.float64)
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    return pa.array(bits ^ ((bits >> 63) & np.int64(2**63 - 1)), mask=missing)


def ranks(values: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Equal values share a rank; a null ranks below every value, not-a-number above them as in Java."""
    ordered = in_java_s_order(values)
    found = np.asarray(pc.rank(ordered, sort_keys="ascending", tiebreaker="dense")).astype(np.uint64)
    found[flags(pc.is_null(values))] = 0
    return found
