"""Rows that are too many for memory, in a temporary file; and rows in another order than that in which they come.

What decides the order stays in memory, and the rows go to the file. When all have come, the place of each is known:
they are read again some at a time, sorted by place, written as runs, and the runs are merged.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelatch.errors import Unavailable
from lakelatch.range_file import RangeFile

#: So many bytes of rows are in memory at once, before they go to the file and as one run of it.
_RUN_BYTES = 16 * 1024 * 1024
#: Of each run that is merged, so many bytes are in memory.
_BATCH_BYTES = 256 * 1024
#: What comes out at once has about as many at most.
_PART_BYTES = 8 * 1024 * 1024
_WHAT = "rows that are sorted"
_Places = npt.NDArray[np.uint32 | np.uint64]


@contextmanager
def writing_temporary_file(what: str, path: str | None = None) -> Iterator[None]:
    """Errors: `Unavailable` in place of an `OSError`, for a temporary file that cannot be written with `what`."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{what} could not be written to a temporary file in {tempfile.gettempdir()}: "
            f"{error.strerror or error}; free some space there, or set TMPDIR to a folder that has some",
            path=path,
        ) from error


@contextmanager
def temporary_file() -> Iterator[IO[bytes]]:
    """A file that no other process sees, and that is gone when the context ends."""
    file = tempfile.TemporaryFile(prefix="lakelatch-")  # noqa: SIM115
    try:
        yield file
    finally:
        with suppress(OSError):  # the rest of its buffer fails once more, and is not needed
            file.close()


class SpilledRuns:
    """Tables in a temporary file, each as it was added, of which memory holds what is looked at."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._ends = [0]

    @property
    def size_bytes(self) -> int:
        """Of all tables."""
        return self._ends[-1]

    def add(self, rows: pa.Table, batch_rows: int | None = None) -> None:
        """Appends a table, in batches of so many rows."""
        with pa.ipc.new_stream(self._file, rows.schema) as writer:
            writer.write_table(rows, batch_rows)
        self._file.flush()
        self._ends.append(self._file.tell())

    def batches(self) -> list[Iterator[pa.RecordBatch]]:
        """Those of each table: one of them is in memory while the next one has not been asked for."""
        return [iter(pa.ipc.open_stream(_FilePart(self._file, start, end))) for start, end in pairwise(self._ends)]

    def mapped(self) -> list[pa.Table]:
        """All tables, mapped into memory."""
        found = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        return [pa.ipc.open_stream(found.slice(start, end - start)).read_all() for start, end in pairwise(self._ends)]


class _FilePart(RangeFile):
    """Some bytes of a file, which others may read and write elsewhere."""

    def __init__(self, file: IO[bytes], start: int, end: int) -> None:
        super().__init__(end - start)
        self._file, self._start = file, start

    def part(self, start: int, size_bytes: int) -> bytes:
        """Errors: `Unavailable` for a file that cannot be read, or has lost its end."""
        found = b""
        try:
            while len(found) < size_bytes:
                more = os.pread(self._file.fileno(), size_bytes - len(found), self._start + start + len(found))
                if not more:
                    raise OSError("it ends too early")
                found += more
        except OSError as error:
            raise Unavailable(
                f"a temporary file in {tempfile.gettempdir()} could not be read: {error.strerror or error}; set TMPDIR "
                "to another folder if it is the disk"
            ) from error
        return found


def reordered(
    parts: Iterable[pa.Table],
    columns: Sequence[str],
    order_of: Callable[[pa.Table], npt.NDArray[np.int64]],
    run_bytes: int = _RUN_BYTES,
    part_bytes: int = _PART_BYTES,
) -> Iterator[pa.Table]:
    """The rows of all parts in another order: `order_of` is given these columns of theirs, and returns rows' numbers.

    Memory holds those columns, and otherwise `run_bytes` of rows a few times, if rows are of about one size.
    Errors: `Unavailable` where temporary files lie and nothing can be written.
    """
    held: list[pa.Table] = []
    keys: list[pa.Table] = []
    counts, size_bytes = [], 0
    with ExitStack() as opened:
        unsorted: SpilledRuns | None = None
        for part in _of_at_most(parts, run_bytes):
            held.append(part)
            keys.append(part.select(columns))
            size_bytes += part.nbytes
            if size_bytes >= run_bytes:
                unsorted = unsorted or _opened_in(opened)
                counts.append(_spill(held, unsorted))
                size_bytes = 0
        if not keys:
            return
        order = order_of(pa.concat_tables(keys))
        keys.clear()
        if unsorted is None:
            yield pa.concat_tables(held).combine_chunks().take(pa.array(order))
            return
        counts.append(_spill(held, unsorted))
        row_bytes = max(unsorted.size_bytes / len(order), 1)
        places = _places(order)
        del order
        runs = _opened_in(opened)
        found = _sorted_runs(unsorted, runs, np.split(places, np.cumsum(counts)[:-1]), row_bytes)
        del places
        yield from _merged(runs, found, max(int(part_bytes / row_bytes), 1))


def _places(order: npt.NDArray[np.int64]) -> _Places:
    """Where each row comes in this order."""
    places = np.empty(len(order), np.uint32 if len(order) < 2**32 else np.uint64)
    places[order] = np.arange(len(order), dtype=places.dtype)
    return places


def _opened_in(opened: ExitStack) -> SpilledRuns:
    with writing_temporary_file(_WHAT):
        return SpilledRuns(opened.enter_context(temporary_file()))


def _of_at_most(parts: Iterable[pa.Table], size_bytes: int) -> Iterator[pa.Table]:
    """The parts that have rows, and large ones in several."""
    for part in parts:
        rows = max(int(part.num_rows / max(part.nbytes / size_bytes, 1)), 1)
        for start in range(0, part.num_rows, rows):
            yield part.slice(start, rows)


def _spill(held: list[pa.Table], runs: SpilledRuns) -> int:
    """How many rows there are, which are in the file then."""
    if not held:
        return 0
    rows = pa.concat_tables(held)
    with writing_temporary_file(_WHAT):
        runs.add(rows)
    count = int(rows.num_rows)
    held.clear()
    del rows
    _give_back()
    return count


def _give_back() -> None:
    """Else the pool keeps as much as was ever needed at once."""
    pa.default_memory_pool().release_unused()


def _sorted_runs(unsorted: SpilledRuns, runs: SpilledRuns, places: list[_Places], row_bytes: float) -> list[_Places]:
    """Writes each table as a run, its rows by place; what the places are then."""
    batch_rows = max(int(_BATCH_BYTES / row_bytes), 1)
    found = []
    for batches, own in zip(unsorted.batches(), places, strict=False):
        order = np.argsort(own)
        rows = pa.Table.from_batches(batches).combine_chunks().take(pa.array(order))
        with writing_temporary_file(_WHAT):
            runs.add(rows, batch_rows)
        found.append(own[order])
        del rows, order
        _give_back()
    return found


def _merged(runs: SpilledRuns, places: list[_Places], part_rows: int) -> Iterator[pa.Table]:
    """The rows of all runs by place, so many at a time."""
    left = [_Run(batches, own) for batches, own in zip(runs.batches(), places, strict=True)]
    count = sum(map(len, places))
    for bound in (min(start + part_rows, count) for start in range(0, count, part_rows)):
        found = [run.below(bound) for run in left]
        rows = pa.Table.from_batches([batch for batches, _ in found for batch in batches]).combine_chunks()
        yield rows.take(pa.array(np.argsort(np.concatenate([own for _, own in found]))))


class _Run:
    """The rest of a run."""

    def __init__(self, batches: Iterator[pa.RecordBatch], places: _Places) -> None:
        self._batches, self._places = batches, places
        self._at = 0
        self._rest: pa.RecordBatch | None = None

    def below(self, bound: int) -> tuple[list[pa.RecordBatch], _Places]:
        """The next rows, with places below this one, which are left no more."""
        start, self._at = self._at, int(np.searchsorted(self._places, self._places.dtype.type(bound)))
        wanted, found = self._at - start, []
        while wanted:
            batch = next(self._batches) if self._rest is None else self._rest
            found.append(batch.slice(0, wanted))
            self._rest = batch.slice(wanted) if batch.num_rows > wanted else None
            wanted -= found[-1].num_rows
        return found, self._places[start : self._at]
