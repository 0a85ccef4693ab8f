"""Encodes and decodes timeline files: Avro container files of one record each.

Nothing in such a file is trusted: truncated or altered bytes, another kind of file and values of another type all raise
one error.
"""

from __future__ import annotations

import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import fastavro

from lakelatch.errors import CorruptTable
from lakelatch.storage.checksums import CHECKSUM_KEY, NO_CHECKSUM, verify_checksum
from lakelatch.storage.contract import Storage

_MAGIC = b"Obj\x01"
_MARKER_LENGTH = 16
_LONG_BITS = 63
T = TypeVar("T")
R = TypeVar("R", bound="Record")
_headers: dict[str, bytes] = {}  # by schema: how its container files begin, up to the sync marker


class Record(ABC):
    """The content of one kind of timeline file; subclasses build themselves from its record."""

    KIND: ClassVar[str]  # as errors call it
    NEEDED: ClassVar[tuple[str, ...]]  # fields without which it is another kind of file

    @classmethod
    def read(cls: type[R], storage: Storage, path: str) -> R:
        """Reads the file at a path. Errors: `NotFound`, `CorruptTable` with its path."""
        return cls.from_avro(storage.read(path), path)

    @classmethod
    def from_avro(cls: type[R], data: bytes, path: str = "") -> R:
        """Errors: `CorruptTable` for bytes that are no such file, or that are another file's."""
        return decode(data, path, cls.KIND, cls.NEEDED, cls._of)

    @classmethod
    @abstractmethod
    def _of(cls: type[R], record: Mapping[str, Any]) -> R:
        """Errors: any, for values that it cannot be made of."""


def encode(schema: Any, record: dict[str, Any]) -> bytes:
    """A container file of one record. The same record gives the same bytes: the sync marker is drawn from them."""
    body = _encode_value(schema, record)
    marker = hashlib.sha256(body).digest()[:_MARKER_LENGTH]
    header = _headers.get(schema["name"])
    if header is None:
        sink = io.BytesIO()
        fastavro.writer(sink, schema, [], metadata={CHECKSUM_KEY: NO_CHECKSUM}, sync_marker=bytes(_MARKER_LENGTH))
        header = _headers[schema["name"]] = sink.getvalue()[:-_MARKER_LENGTH]
    return b"".join((header, marker, _long(1), _long(len(body)), body, marker))


def _encode_value(schema: Any, value: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, schema, value)
    return sink.getvalue()


def _long(value: int) -> bytes:
    """A length or count, as `_length_at` reads it."""
    rest, found = value << 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def decode(data: bytes, path: str, what: str, needed: tuple[str, ...], build: Callable[[Mapping[str, Any]], T]) -> T:
    """Builds a value from the one record of a container file. Errors: `CorruptTable`, whatever is wrong with it."""
    if path:
        verify_checksum(data, path)
    try:
        records = _only_record(data) or list(fastavro.reader(io.BytesIO(data)))
        if len(records) == 1 and isinstance(records[0], dict) and all(name in records[0] for name in needed):
            return build(records[0])
        problem = "they are another kind of file"
    except Exception as error:  # the library raises whatever the bytes provoke, and so do values of another type
        problem = str(error) or type(error).__name__
    where = path or "the timeline"
    raise CorruptTable(
        f"{where} holds {len(data)} bytes that are not {what} ({problem}): restore it from a copy", path=path
    )


def _only_record(data: bytes) -> list[Any]:
    """The one record of a container file as ours are, whose schema is parsed once; none for any other, and damage."""
    try:
        metadata, at = _metadata_of(data)
        marker = data[at : at + _MARKER_LENGTH]
        count, at = _length_at(data, at + _MARKER_LENGTH)
        size, at = _length_at(data, at)
        ends = len(marker) == _MARKER_LENGTH and data[at + size :] == marker
        if count != 1 or not ends or metadata.get("avro.codec", b"null") != b"null":
            return []
        body = io.BytesIO(data[at : at + size])
        return [fastavro.schemaless_reader(body, _parsed(metadata["avro.schema"].decode()), None)]
    except Exception:  # whoever reads it in full says what is wrong with it
        return []


def _metadata_of(data: bytes) -> tuple[dict[str, bytes], int]:
    """The metadata of a container file, and where they end."""
    if not data.startswith(_MAGIC):
        raise ValueError("it is another kind of file")
    texts: list[bytes] = []
    count, at = _length_at(data, len(_MAGIC))
    while count:
        for _ in range(2 * count):
            size, at = _length_at(data, at)
            texts.append(data[at : at + size])
            at += size
        count, at = _length_at(data, at)
    return {key.decode(): value for key, value in zip(texts[::2], texts[1::2], strict=True)}, at


def _length_at(data: bytes, at: int) -> tuple[int, int]:
    """A length or count, as a long of Avro, and where it ends."""
    value = 0
    for shift in range(0, _LONG_BITS, 7):
        byte = data[at]
        at, value = at + 1, value | (byte & 0x7F) << shift
        if byte < 0x80 and not value & 1:
            return value >> 1, at
    raise ValueError("a length below zero, or of no file")


@lru_cache(maxsize=64)
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


def text(value: Any) -> str:
    """A text; None counts as empty."""
    if not isinstance(value, (str, type(None))):
        raise TypeError(f"{value!r} is no text")
    return value or ""


def texts(values: Any) -> dict[str, str]:
    return {text(key): text(value) for key, value in (values or {}).items()}


def number(value: Any) -> int:
    """A whole number; None counts as 0."""
    if not isinstance(value, (int, type(None))):
        raise TypeError(f"{value!r} is no whole number")
    return value or 0
