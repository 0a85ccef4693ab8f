"""Runs of rows for Spark's shuffle: one value for some thousands of rows, which is an Arrow stream.

Those for tasks have rows of several buckets, in no order. A partition path and a bucket stand beside each, since Spark
brings what has the same ones into one task; of runs for tasks these are an empty text and the task's number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelatch.engine.write.task import BUCKET_COLUMN, PARTITION_COLUMN, buffer_bytes
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.bucket_index import string_hashes
from lakelatch.timeline.table_config import TableConfig

#: The column of the runs, besides those of the partition path and the bucket.
RUN_COLUMN = "_lakelatch_run"
RUN_SCHEMA = pa.schema([(PARTITION_COLUMN, pa.string()), (BUCKET_COLUMN, pa.int32()), (RUN_COLUMN, pa.binary())])
#: Rows of this many bytes are gathered at once.
GATHERED_BYTES = 32 * 1024 * 1024
#: The bytes of a run, so that Spark's batches are not much larger than they may be.
_RUN_BYTES = 1024 * 1024


def runs_for_tasks(
    batches: Iterable[pa.RecordBatch], config: TableConfig, tasks: int, gathered_bytes: int = GATHERED_BYTES
) -> Iterator[pa.RecordBatch]:
    """Makes runs of tagged rows, so that those of a bucket come to one of so many tasks, in the order that they have.

    Memory holds `gathered_bytes` of rows about three times.
    """
    for rows in gathered(batches, gathered_bytes):
        numbers = _task_numbers(rows, config.bucket_count or 1, tasks)
        order = np.argsort(numbers, kind="stable")
        starts = starts_of(numbers[order])
        sent = without_second_key(rows, config.plain_key_field).take(pa.array(order))
        cuts = cuts_of(sent, starts)
        found = pa.array(numbers[order[[first for first, _ in cuts]]].astype(np.int32))
        yield pa.RecordBatch.from_arrays([pa.repeat("", len(cuts)), found, streams(sent, cuts)], schema=RUN_SCHEMA)


def rows_of_runs(batches: Iterable[pa.RecordBatch], config: TableConfig) -> Iterator[pa.RecordBatch]:
    """The tagged rows of runs for tasks."""
    for batch in batches:
        for run in batch[RUN_COLUMN]:
            for rows in pa.ipc.open_stream(run.as_buffer()):
                yield with_second_key(rows, config.plain_key_field)


def gathered(batches: Iterable[pa.RecordBatch], size_bytes: int) -> Iterator[pa.Table]:
    """The rows, so many bytes of them at once."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            held_bytes += sum(map(buffer_bytes, batch.columns))
        if held_bytes >= size_bytes:
            yield pa.Table.from_batches(held).combine_chunks()
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def without_second_key(rows: pa.Table, key_field: str | None) -> pa.Table:
    """The rows without their record keys, where these are a column already: a text is not sent a second time."""
    if key_field is None or not pa.types.is_string(rows.schema.field(key_field).type):
        return rows
    return rows.drop_columns([RECORD_KEY_COLUMN])


def with_second_key(rows: pa.RecordBatch, key_field: str | None) -> pa.RecordBatch:
    """The rows with their record keys."""
    if RECORD_KEY_COLUMN in rows.schema.names:
        return rows
    return rows.append_column(RECORD_KEY_COLUMN, rows[key_field])


def starts_of(sorted_places: npt.NDArray[np.int64]) -> list[int]:
    """Where each of these numbers begins."""
    found: list[int] = np.flatnonzero(np.r_[True, sorted_places[1:] != sorted_places[:-1]]).tolist()
    return found


def cuts_of(rows: pa.Table, starts: list[int]) -> list[tuple[int, int]]:
    """The first row of each run and the one behind its last, where rows of another place begin at each start."""
    run_rows = max(int(_RUN_BYTES / max(rows.get_total_buffer_size() / rows.num_rows, 1)), 1)
    return [
        (first, min(first + run_rows, stop))
        for start, stop in zip(starts, [*starts[1:], rows.num_rows], strict=True)
        for first in range(start, stop, run_rows)
    ]


def streams(rows: pa.Table, cuts: Iterable[tuple[int, int]]) -> pa.Array:
    """The values of runs."""
    return pa.array([_stream(rows.slice(first, stop - first)) for first, stop in cuts], pa.binary())


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _task_numbers(rows: pa.Table, bucket_count: int, tasks: int) -> npt.NDArray[np.int64]:
    """The task of each row: buckets one after another, from a task on that depends on the partition."""
    paths = rows[PARTITION_COLUMN].combine_chunks().dictionary_encode()
    firsts = string_hashes(paths.dictionary).astype(np.int64)
    numbers: npt.NDArray[np.int64] = (firsts[paths.indices.to_numpy()] + rows[BUCKET_COLUMN].to_numpy()) % tasks
    return numbers
