"""Values taken out of a message in Thrift's compact protocol, of which a parquet footer is one; all else stays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from lakelatch.errors import InvariantBroken

_TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_SIZES = {_BYTE: 1, _DOUBLE: 8}
_NOTED_SIZE_MAX = 14  # of a list, in one byte with the kind of its values
_DELTA_MAX = 15
#: Numbers of fields and of elements in lists, by turns.
Path: TypeAlias = tuple[int, ...]
#: What is taken out, by number: the whole value if there is nothing below.
_Tree: TypeAlias = Mapping[int, Any]


def without(message: bytes, paths: Collection[Path]) -> bytes:
    """A struct without the fields at these paths; one that it does not have is passed over.

    Errors: `InvariantBroken` for bytes that are no such struct.
    """
    tree: dict[int, Any] = {}
    for path in paths:
        below = tree
        for number in path:
            below = below.setdefault(number, {})
    try:
        return _struct(message, 0, tree)[0]
    except IndexError as error:
        raise InvariantBroken(f"a footer of {len(message)} bytes ends in the middle of a value") from error


def _struct(data: bytes, at: int, tree: _Tree) -> tuple[bytes, int]:
    """The struct that begins here, and where it ends."""
    found = bytearray()
    number = kept = 0
    while data[at]:
        number, kind, at = _head(data, at, number)
        below = tree.get(number)
        if below == {}:
            at = _end(data, at, kind)
            continue
        delta, kept = number - kept, number
        found += bytes([delta << 4 | kind]) if 0 < delta <= _DELTA_MAX else bytes([kind]) + _varint(number << 1)
        if below is not None and kind in (_LIST, _STRUCT):
            value, at = (_list if kind == _LIST else _struct)(data, at, below)
            found += value
        else:
            start, at = at, _end(data, at, kind)
            found += data[start:at]
    return bytes(found) + b"\0", at + 1


def _list(data: bytes, at: int, tree: _Tree) -> tuple[bytes, int]:
    """The list that begins here, with its structs changed, and where it ends."""
    start = at
    size, kind, at = _list_head(data, at)
    found = bytearray(data[start:at])
    for place in range(size):
        if kind == _STRUCT and place in tree:
            value, at = _struct(data, at, tree[place])
            found += value
        else:
            start, at = at, _element_end(data, at, kind)
            found += data[start:at]
    return bytes(found), at


def _head(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Of a field that begins here its number and kind, and where its value begins."""
    delta, kind = data[at] >> 4, data[at] & 15
    if delta:
        return before + delta, kind, at + 1
    coded, at = _number(data, at + 1)
    return coded >> 1, kind, at


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Of a list that begins here its size and the kind of its elements, and where these begin."""
    size, kind = data[at] >> 4, data[at] & 15
    if size <= _NOTED_SIZE_MAX:
        return size, kind, at + 1
    size, at = _number(data, at + 1)
    return size, kind, at


def _end(data: bytes, at: int, kind: int) -> int:
    """Where a field's value ends that begins here."""
    if kind in (_TRUE, _FALSE):  # the kind says it all
        return at
    if kind in _SIZES:
        return at + _SIZES[kind]
    if kind in (_INT16, _INT32, _INT64):
        return _number(data, at)[1]
    if kind == _BINARY:
        size, at = _number(data, at)
        return at + size
    if kind in (_LIST, _SET):
        size, inner, at = _list_head(data, at)
        for _ in range(size):
            at = _element_end(data, at, inner)
        return at
    if kind == _STRUCT:
        while data[at]:
            _, inner, at = _head(data, at, 0)
            at = _end(data, at, inner)
        return at + 1
    raise InvariantBroken(f"a footer has a value of kind {kind}, and parquet has none of that kind")


def _element_end(data: bytes, at: int, kind: int) -> int:
    return at + 1 if kind in (_TRUE, _FALSE) else _end(data, at, kind)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number that begins here, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
