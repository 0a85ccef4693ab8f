"""Hudi's SIMPLE bucket index: which bucket a row belongs to, and the file id of a bucket.

The hash is Java's: `List.hashCode` over the hash fields' texts, each by `String.hashCode` over UTF-16 code units, both
wrapping at 32 bits; the bucket is the hash without its sign bit, modulo the number of buckets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelatch.pipeline.record_keys import field_texts

_SUFFIX = "-0000-0000-0000-000000000000-0"


def bucket_ids(table: pa.Table, hash_fields: Sequence[str], bucket_count: int) -> pa.Array:
    """The bucket of each row, as int32, by the values of its hash fields."""
    texts = [field_texts(table, name) for name in hash_fields]
    return pa.array(buckets_of_texts(texts, bucket_count), pa.int32())


def buckets_of_texts(texts: Sequence[pa.Array], bucket_count: int) -> npt.NDArray[np.int64]:
    """The bucket of each row from its hash fields' texts; null counts as Java's null, with hash 0."""
    total = np.ones(len(texts[0]), dtype=np.uint32)
    for column in texts:
        total = total * np.uint32(31) + string_hashes(column)
    return (total & np.uint32(0x7FFFFFFF)).astype(np.int64) % bucket_count


def string_hashes(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Java's `String.hashCode` of each value, as unsigned 32 bits; 0 for null and for the empty string."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = [b"" if value is None else value.encode("utf-16-le", "surrogatepass") for value in values.to_pylist()]
    lengths = np.fromiter((len(value) // 2 for value in encoded), dtype=np.int64, count=len(encoded))
    units = np.frombuffer(b"".join(encoded), dtype="<u2").astype(np.uint32)
    starts = np.r_[np.int64(0), np.cumsum(lengths)[:-1]] if len(lengths) else lengths
    hashes = np.zeros(len(encoded), dtype=np.uint32)
    order = np.argsort(-lengths, kind="stable")  # longest first, so that those still running are a prefix
    longest = int(lengths.max(initial=0))
    running = np.searchsorted(-lengths[order], -np.arange(longest), side="left")
    for position in range(longest):
        rows = order[: running[position]]
        hashes[rows] = hashes[rows] * np.uint32(31) + units[starts[rows] + position]
    return hashes


def bucket_file_id(bucket: int) -> str:
    """The file id of a bucket's file group: the same for all writers, so that nobody has to ask."""
    return f"{bucket:08d}{_SUFFIX}"


def bucket_of_file_id(file_id: str) -> int:
    """The bucket number that a bucket's file id begins with."""
    return int(file_id[:8])
