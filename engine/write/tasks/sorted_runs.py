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

from lakelatch.engine.write.tasks.task import BUCKET_COLUMN, PARTITION_COLUMN, buffer_bytes
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.sorting.spill import SpilledRuns, temporary_file, writing_temporary_file

#: The column of the runs, besides those of the partition path and the bucket.
RUN_COLUMN = "_lakelatch_run"
RUN_SCHEMA = pa.schema([(PARTITION_COLUMN, pa.string()), (BUCKET_COLUMN, pa.int32()), (RUN_COLUMN, pa.binary())])
#: Rows of this many bytes are gathered and sorted at once, before the shuffle and after it.
_SORTED_BYTES = 32 * 1024 * 1024
#: The bytes of a run, so that Spark's batches are not much larger than they may be.
_RUN_BYTES = 1024 * 1024
_PART_ROWS = 64 * 1024
#: The most bytes that are merged at once: rows may be large, and no column may have 2 GiB at once.
_PART_BYTES = 16 * 1024 * 1024


def to_runs(
    batches: Iterable[pa.RecordBatch], key_field: str | None, sorted_bytes: int = _SORTED_BYTES
) -> Iterator[pa.RecordBatch]:
    """Makes sorted runs of tagged rows. Memory holds `sorted_bytes` of rows about three times.

    `key_field` is the column that is the record key itself, if there is one: a text is not sent a second time.
    """
    for rows in _gathered(batches, sorted_bytes):
        if key_field is not None and pa.types.is_string(rows.schema.field(key_field).type):
            yield _runs_of(rows.drop_columns([RECORD_KEY_COLUMN]), key_field)
        else:
            yield _runs_of(rows, RECORD_KEY_COLUMN)


def from_runs(
    batches: Iterable[pa.RecordBatch],
    key_field: str | None,
    sorted_bytes: int = _SORTED_BYTES,
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


def _gathered(batches: Iterable[pa.RecordBatch], sorted_bytes: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size_bytes += sum(map(buffer_bytes, batch.columns))
        if size_bytes >= sorted_bytes:
            yield pa.Table.from_batches(held).combine_chunks()
            held, size_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def _runs_of(rows: pa.Table, key: str) -> pa.RecordBatch:
    paths = rows[PARTITION_COLUMN].combine_chunks().dictionary_encode()
    buckets = rows[BUCKET_COLUMN].to_numpy()
    places = paths.indices.to_numpy().astype(np.int64) * (int(buckets.max()) + 1) + buckets
    order, starts = _order(places, rows[key].combine_chunks())
    sent = rows.drop_columns([PARTITION_COLUMN, BUCKET_COLUMN]).take(pa.array(order))
    run_rows = max(int(_RUN_BYTES / max(sent.get_total_buffer_size() / sent.num_rows, 1)), 1)
    cuts = [
        (first, min(first + run_rows, stop))
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True)
        for first in range(start, stop, run_rows)
    ]
    firsts = [int(order[first]) for first, _ in cuts]
    return pa.RecordBatch.from_arrays(
        [
            rows[PARTITION_COLUMN].take(firsts).combine_chunks(),
            pa.array(buckets[firsts], pa.int32()),
            pa.array([_stream(sent.slice(first, stop - first)) for first, stop in cuts], pa.binary()),
        ],
        schema=RUN_SCHEMA,
    )


def _order(places: npt.NDArray[np.int64], keys: pa.Array) -> tuple[npt.NDArray[np.int64], list[int]]:
    """The rows' order by place and key, and where each place begins in it."""
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    starts = np.flatnonzero(np.r_[True, sorted_places[1:] != sorted_places[:-1]]).tolist()
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        part = order[start:stop]
        order[start:stop] = part[pc.array_sort_indices(keys.take(pa.array(part))).to_numpy()]
    return order, starts


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _tagged(rows: pa.RecordBatch, key_field: str | None, partition: str, bucket: int) -> pa.RecordBatch:
    count = rows.num_rows
    columns, names = list(rows.columns), list(rows.schema.names)
    if RECORD_KEY_COLUMN not in names:
        columns, names = [*columns, rows[key_field]], [*names, RECORD_KEY_COLUMN]
    columns += [pa.repeat(partition, count), pa.repeat(pa.scalar(bucket, pa.int32()), count)]
    return pa.RecordBatch.from_arrays(columns, names=[*names, PARTITION_COLUMN, BUCKET_COLUMN])


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
    own = RECORD_KEY_COLUMN if RECORD_KEY_COLUMN in rows.column_names else key_field
    return rows[own].combine_chunks()


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
