"""Sorted runs of rows for Spark's shuffle, and their merge: an external merge sort in two stages.

Spark shuffles and sorts row by row, and converts columns to rows and back for it. So tasks gather rows, sort them by
bucket and record key, and give Spark one value for some thousands of rows of a bucket: an Arrow stream. The task that
gets the rows of a bucket merges its runs, in memory or, if they are large, in a temporary file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.write.runs import (
    GATHERED_BYTES,
    RUN_SCHEMA,
    cuts_of,
    gathered,
    starts_of,
    streams,
    with_second_key,
    without_second_key,
)
from lakelatch.engine.write.task import BUCKET_COLUMN, PARTITION_COLUMN
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.sorting.spill import SpilledRuns, temporary_file, writing_temporary_file

_PART_ROWS = 64 * 1024
#: The most bytes that are merged at once: rows may be large, and no column may have 2 GiB at once.
_PART_BYTES = 16 * 1024 * 1024


def to_runs(
    batches: Iterable[pa.RecordBatch], key_field: str | None, sorted_bytes: int = GATHERED_BYTES
) -> Iterator[pa.RecordBatch]:
    """Makes sorted runs of tagged rows. Memory holds `sorted_bytes` of rows about three times.

    `key_field` is the column that is the record key itself, if there is one: a text is not sent a second time.
    """
    for rows in gathered(batches, sorted_bytes):
        sent = without_second_key(rows, key_field)
        yield _runs_of(sent, _key_column(sent, key_field))


def from_runs(
    batches: Iterable[pa.RecordBatch],
    key_field: str | None,
    sorted_bytes: int = GATHERED_BYTES,
    part_rows: int = _PART_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Merges runs that come by bucket into tagged rows, by record key within a bucket; equal keys in any order.

    Errors: `Unavailable` if temporary files cannot be written.
    """
    runs = (run for batch in batches for run in zip(*batch.columns, strict=True))
    for (partition, bucket), found in groupby(runs, lambda run: (run[0].as_py(), run[1].as_py())):
        for rows in _merged((run[2].as_buffer() for run in found), key_field, sorted_bytes, part_rows):
            for part in rows.to_batches(max_chunksize=part_rows):
                yield _tagged(part, key_field, partition, bucket)


def _runs_of(rows: pa.Table, key: str) -> pa.RecordBatch:
    paths = rows[PARTITION_COLUMN].combine_chunks().dictionary_encode()
    buckets = rows[BUCKET_COLUMN].to_numpy()
    places = paths.indices.to_numpy().astype(np.int64) * (int(buckets.max()) + 1) + buckets
    order, starts = _order(places, rows[key].combine_chunks())
    sent = rows.drop_columns([PARTITION_COLUMN, BUCKET_COLUMN]).take(pa.array(order))
    cuts = cuts_of(sent, starts)
    firsts = [int(order[first]) for first, _ in cuts]
    return pa.RecordBatch.from_arrays(
        [
            rows[PARTITION_COLUMN].take(firsts).combine_chunks(),
            pa.array(buckets[firsts], pa.int32()),
            streams(sent, cuts),
        ],
        schema=RUN_SCHEMA,
    )


def _order(places: npt.NDArray[np.int64], keys: pa.Array) -> tuple[npt.NDArray[np.int64], list[int]]:
    """The rows' order by place and key, and where each place begins in it."""
    order = np.argsort(places, kind="stable")
    starts = starts_of(places[order])
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        part = order[start:stop]
        order[start:stop] = part[pc.array_sort_indices(keys.take(pa.array(part))).to_numpy()]
    return order, starts


def _tagged(rows: pa.RecordBatch, key_field: str | None, partition: str, bucket: int) -> pa.RecordBatch:
    count, rows = rows.num_rows, with_second_key(rows, key_field)
    places = [pa.repeat(partition, count), pa.repeat(pa.scalar(bucket, pa.int32()), count)]
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *places], names=[*rows.schema.names, PARTITION_COLUMN, BUCKET_COLUMN]
    )


def _merged(
    streams: Iterator[pa.Buffer], key_field: str | None, sorted_bytes: int, part_rows: int
) -> Iterator[pa.Table]:
    """The rows of one bucket, by key."""
    held: list[pa.Table] = []
    size_bytes = 0
    with ExitStack() as opened:
        spilled: SpilledRuns | None = None
        for stream in streams:
            held.append(pa.ipc.open_stream(stream).read_all())
            size_bytes += stream.size
            if size_bytes >= sorted_bytes:
                with writing_temporary_file("the rows of a bucket"):
                    spilled = spilled or SpilledRuns(opened.enter_context(temporary_file()))
                    spilled.add(_sorted(held, key_field))
                held, size_bytes = [], 0
        runs: list[pa.Table] = []
        if spilled is not None:
            with writing_temporary_file("the rows of a bucket"):
                runs = spilled.mapped()
        if held:
            runs.append(held[0] if len(held) == 1 else _sorted(held, key_field))
        yield from _in_order(runs, key_field, part_rows)


def _sorted(parts: list[pa.Table], key_field: str | None) -> pa.Table:
    rows = pa.concat_tables(parts).combine_chunks()
    return rows.take(pc.array_sort_indices(_keys(rows, key_field)))


def _keys(rows: pa.Table, key_field: str | None) -> pa.Array:
    """The record keys of rows in one chunk."""
    return rows[_key_column(rows, key_field)].combine_chunks()


def _key_column(rows: pa.Table, key_field: str | None) -> str:
    return RECORD_KEY_COLUMN if key_field is None or RECORD_KEY_COLUMN in rows.column_names else key_field


def _in_order(runs: list[pa.Table], key_field: str | None, part_rows: int) -> Iterator[pa.Table]:
    """Merges sorted runs; yields their rows in order, in parts."""
    if len(runs) == 1:
        yield runs[0]
        return
    row_bytes = sum(run.get_total_buffer_size() for run in runs) / max(sum(run.num_rows for run in runs), 1)
    step = max(int(min(part_rows, _PART_BYTES / max(row_bytes, 1))) // len(runs), 1)
    left = [(run, _keys(run, key_field), 0) for run in runs]
    while left:
        # All rows with keys up to this one are in the next step of some run.
        bound = min(keys[min(at + step, len(keys)) - 1].as_py() for _, keys, at in left)
        parts, rest = [], []
        for run, keys, at in left:
            stop = bisect_right(keys, bound, at, min(at + step, len(keys)), key=pa.StringScalar.as_py)
            parts.append(run.slice(at, stop - at))
            if stop < len(keys):
                rest.append((run, keys, stop))
        left = rest
        yield _sorted(parts, key_field)
