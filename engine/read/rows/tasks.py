"""Spreads slices over Python tasks, each of which costs Spark about as much as reading some megabytes of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from lakelatch.format.file_slices import FileSlice
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage

#: A large slice without logs is read by several tasks, each of which reads about this many bytes.
TASK_BYTES = 32 * 1024 * 1024
#: Small slices are packed into one task, up to this many bytes. A task costs some 50 ms of a core.
PACKED_BYTES = 8 * 1024 * 1024
_LEAST_BYTES = 4 * 1024 * 1024  # as Spark has it for files, in `spark.sql.files.openCostInBytes`
_ASKED_MAX = 256  # more slices make enough tasks, and too many requests for sizes


@dataclass(frozen=True)
class ReadTask:
    """The numbers of the slices that a task reads, or its share of one: the task's number, and the count of tasks."""

    indexes: tuple[int, ...]
    share: tuple[int, int] = (0, 1)


def shared_or_packed(storage: Storage, slices: Sequence[FileSlice], task_bytes: int = TASK_BYTES) -> list[ReadTask]:
    """Tasks for slices that Python reads: several for a large one without logs, one for several small ones.

    A slice with logs is not shared, since each task would have to merge them.
    """
    sizes = _sizes(storage, slices, asks=True)
    tasks, alone = [], set()
    for number, (found, size_bytes) in enumerate(zip(slices, sizes, strict=True)):
        count = -(-(size_bytes or 1) // task_bytes)
        if count > 1 and not found.fresh_logs:
            alone.add(number)
            tasks += [ReadTask((number,), (one, count)) for one in range(count)]
    others = [number for number in range(len(slices)) if number not in alone]
    groups = packed([sizes[number] for number in others], min(PACKED_BYTES, task_bytes))
    return [*tasks, *(ReadTask(tuple(others[place] for place in group)) for group in groups)]


def packed_for(
    storage: Storage, slices: Sequence[FileSlice], cores: int | None, most_bytes: int = TASK_BYTES
) -> list[ReadTask]:
    """Tasks for slices that are merged: their bytes are spread over the cores, as Spark spreads files."""
    sizes = _sizes(storage, slices, asks=False)
    target = PACKED_BYTES
    if cores is not None:
        target = min(max(-(-sum(size or 0 for size in sizes) // cores), _LEAST_BYTES), most_bytes)
    return [ReadTask(tuple(group)) for group in packed(sizes, target)]


def packed(sizes: Sequence[int | None], target_bytes: int) -> list[list[int]]:
    """Groups neighbours up to about `target_bytes`; those of unknown size are alone."""
    places: list[tuple[int, int]] = []
    before = unknown = 0
    for size_bytes in sizes:
        unknown += size_bytes is None or (bool(places) and sizes[len(places) - 1] is None)
        places.append((unknown, (before + (size_bytes or 0) // 2) // target_bytes))
        before += size_bytes or 0
    return [list(group) for _, group in groupby(range(len(sizes)), places.__getitem__)]


def _sizes(storage: Storage, slices: Sequence[FileSlice], asks: bool) -> list[int | None]:
    """The bytes of each slice, where no remote request is needed for them; `asks` requests those without logs."""
    if len(slices) > _ASKED_MAX:
        return [None] * len(slices)
    is_near = isinstance(storage, LocalStorage)
    paths = [_paths(found) if is_near or (asks and not found.fresh_logs) else () for found in slices]
    flat = [path for some in paths for path in some]
    found = iter(storage.together(*(partial(storage.stat, path) for path in flat)))
    return [sum(next(found).size_bytes for _ in some) if some else None for some in paths]


def _paths(found: FileSlice) -> list[str]:
    base = [] if found.base_path is None else [found.base_path]
    return [*base, *(found.path_of(name) for name in found.fresh_logs)]
