"""Hudi's SIMPLE bucket index: which bucket a record key belongs to, and the file id of a bucket.

The hash is Java's: `String.hashCode` of each index field's text over UTF-16 code units, then `List.hashCode` of those,
both wrapping at 32 bits. Every writer of a table must agree on it, and nothing on storage would show a difference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from math import isqrt

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.format.record_keys import value_texts

_MULTIPLIER = np.uint32(31)
_POSITIVE = np.uint32(0x7FFFFFFF)
_BUCKET_MAX = 99_999_999
# Under non-blocking concurrency all writers make the same file id, so that it does not matter which one is first.
_FIXED_TAIL = "-0000-0000-0000-000000000000-0"
_FILE_ID = re.compile(r"([0-9]{8})-.+")


def bucket_ids(table: pa.Table, hash_fields: Sequence[str], bucket_count: int) -> pa.Array:
    """The bucket of each row, as int32, from the columns that the index hashes (record key fields, in key order)."""
    texts = [value_texts(table, field) for field in hash_fields]
    return bucket_ids_of_texts(texts, bucket_count)


def bucket_ids_of_texts(texts: Sequence[pa.Array], bucket_count: int) -> pa.Array:
    """The bucket of each row, as int32, from the texts of its index fields; a null counts as Java's null."""
    if not 0 < bucket_count <= _BUCKET_MAX:
        raise InvalidRequest(f"hoodie.bucket.index.num.buckets={bucket_count} is not from 1 to {_BUCKET_MAX}")
    if not texts:
        raise InvalidRequest("a bucket index needs at least one field: set hoodie.bucket.index.hash.field")
    return pa.array((key_hashes(texts) % np.uint32(bucket_count)).astype(np.int32))


def key_hashes(texts: Sequence[pa.Array]) -> npt.NDArray[np.uint32]:
    """The hash of each row from the texts of its index fields: its remainder is the bucket."""
    combined = np.ones(len(texts[0]), np.uint32)
    for column in texts:
        combined = combined * _MULTIPLIER + string_hashes(column)
    hashes: npt.NDArray[np.uint32] = combined & _POSITIVE
    return hashes


def possible_bucket_counts(hashes: npt.NDArray[np.uint32], buckets: Sequence[int]) -> list[int]:
    """The bucket counts under which rows with these hashes lie in these buckets, least first; [] if there is none.

    All counts would do for rows whose hash is their bucket's number: they give [] as well.
    """
    differences = hashes.astype(np.int64) - np.asarray(buckets, np.int64)
    common = int(np.gcd.reduce(differences)) if len(differences) else 0
    least = max(buckets, default=0) + 1
    divisors = {
        divisor for small in range(1, isqrt(common) + 1) if common % small == 0 for divisor in (small, common // small)
    }
    return sorted(divisor for divisor in divisors if least <= divisor <= _BUCKET_MAX)


def string_hashes(texts: pa.Array) -> npt.NDArray[np.uint32]:
    """Java's `String.hashCode` of each text as unsigned 32 bits; 0 for null."""
    texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets_buffer, data_buffer = texts.buffers()
    if not len(texts) or data_buffer is None:
        return np.zeros(len(texts), np.uint32)
    offsets = np.frombuffer(offsets_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    encoded = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    units, bounds = _utf16(encoded, offsets - offsets[0])
    lengths = np.diff(bounds)
    if lengths.min() == lengths.max():
        return _hashes_of_rows(units.reshape(len(lengths), int(lengths[0])))
    # h = sum of unit[i] * 31 ** (length - 1 - i), every text at once; sums of slices are differences of a running sum.
    powers = _powers(int(lengths.max(initial=0)))
    exponents = np.repeat(bounds[1:], lengths) - 1 - np.arange(len(units))
    running = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units.astype(np.uint32) * powers[exponents], dtype=np.uint32, out=running[1:])
    hashes: npt.NDArray[np.uint32] = running[bounds[1:]] - running[bounds[:-1]]
    return hashes


def _hashes_of_rows(units: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint32]:
    """The hashes of texts of one length, the usual form of keys, each in a row: nearly twenty times as fast."""
    hashes = np.zeros(len(units), np.uint32)
    for place in range(units.shape[1]):
        hashes *= _MULTIPLIER
        hashes += units[:, place]
    return hashes


def bucket_file_id(bucket: int) -> str:
    """The one file id of a bucket within its partition, as long as nothing there was replaced."""
    if not 0 <= bucket <= _BUCKET_MAX:
        raise InvalidRequest(f"bucket {bucket} is not from 0 to {_BUCKET_MAX}: its number must fit 8 digits")
    return f"{bucket:08d}{_FIXED_TAIL}"


def successor_file_id(bucket: int, instant: str) -> str:
    """The one file id of a bucket after the replace commit of that requested time; every writer makes the same one."""
    if not 0 <= bucket <= _BUCKET_MAX:
        raise InvalidRequest(f"bucket {bucket} is not from 0 to {_BUCKET_MAX}: its number must fit 8 digits")
    return _begun_at(f"{bucket:08d}", instant, "")


def successor_of(file_id: str, instant: str) -> str:
    """The file id of the file group that takes the rows of this one at the replace commit of that requested time.

    That of a file group of no bucket is of none either.
    """
    bucket = bucket_of_file_id(file_id)
    if bucket is not None:
        return successor_file_id(bucket, instant)
    digest = hashlib.sha256(file_id.encode()).hexdigest()
    return _begun_at(f"a{digest[:7]}", instant, digest[7:14])


def is_successor(file_id: str, instant: str) -> bool:
    """Whether this is the successor of some file group at the replace commit of that requested time."""
    return file_id[9:].replace("-", "").startswith(instant)


def _begun_at(head: str, instant: str, rest: str) -> str:
    digits = f"{instant}{rest}".ljust(24, "0")
    return f"{head}-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:]}-0"


def bucket_of_file_id(file_id: str) -> int | None:
    """The bucket in a file id of any writer; None for a file id of another index.

    A random id may start with eight decimal digits by chance: call it only for tables with a bucket index.
    """
    found = _FILE_ID.fullmatch(file_id)
    return int(found[1]) if found else None


def _utf16(
    encoded: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """UTF-16 code units of UTF-8 texts that lie one after another, and the bounds of each text among them."""
    units = np.frombuffer(encoded.tobytes().decode("utf-8").encode("utf-16-le"), np.uint16)
    if len(units) == len(encoded):  # plain ASCII, the usual case
        return units, offsets
    # A character's first byte is no continuation byte; those from F0 on start characters of two code units.
    made = ((encoded & 0xC0) != 0x80).astype(np.int64) + (encoded >= 0xF0)
    before = np.concatenate(([0], np.cumsum(made)))
    return units, before[offsets]


def _powers(count: int) -> npt.NDArray[np.uint32]:
    powers = np.full(max(count, 1), _MULTIPLIER, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)
