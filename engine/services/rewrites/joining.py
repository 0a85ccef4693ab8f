"""Which small files of a table without a record key are joined: those of one partition, the oldest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, takewhile

from lakelatch.engine.services.rewrites.rewriting import operations_on
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.slices.table_view import TableView
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.clustering_plan import ClusteringGroup

_MB = 1024 * 1024
_LEAST_BYTES, _SMALL_BYTES = 64 * 1024, 64 * _MB  # below the first all files are of one tier, above the second of none
_FILES_OF_TIER = 4
_JOINED_BYTES = 128 * _MB
#: A file and its bytes.
Sized = tuple[ClusteringGroup, int]


def sized_files(view: TableView, busy: Collection[FileGroup], partitions: Iterable[str]) -> Iterator[list[Sized]]:
    """The files of each partition that are in no waiting plan, oldest first, with their bytes.

    A file group with logs is left out: Java's writers may have changed rows by the keys that were made up.
    """
    for partition in partitions:
        free = (
            one
            for one in view.slices([partition])
            if one.base_file and not one.log_files and (partition, one.file_id) not in busy
        )
        found = sorted(free, key=lambda one: (one.base_instant, one.file_id))
        paths = (one.path_of(one.base_file or "") for one in found)
        status = view.storage.together(*(partial(view.storage.stat, path) for path in paths))
        yield [
            (_group_of(view, one, size.size_bytes), size.size_bytes) for one, size in zip(found, status, strict=True)
        ]


def small_files(
    view: TableView, busy: Collection[FileGroup], partitions: Iterable[str], small_bytes: int
) -> Iterator[Sequence[Sized]]:
    """Sets of two files or more that are each smaller than this; a set is about as large at most."""
    for files in sized_files(view, busy, partitions):
        yield from cut([one for one in files if one[1] < small_bytes], small_bytes)


def files_of_a_size(files: Iterable[Sized]) -> Iterator[Sequence[Sized]]:
    """Sets of files that are about as large, so that each row is written anew a few times at most (size-tiered).

    A file is of a tier with those of less than four times its size, and so is all below 64 KB. Four files of a tier
    become one of the next. What has 64 MB stays as it is.
    """
    tiers: dict[int, list[Sized]] = {}
    for one in files:
        tiers.setdefault(_tier_of(one[1]), []).append(one)
    for tier, found in sorted(tiers.items()):
        if tier < _tier_of(_SMALL_BYTES) and len(found) >= _FILES_OF_TIER:
            yield from cut(found, _JOINED_BYTES)


def first_within(files: Sequence[Sized], most_bytes: int) -> Sequence[Sized]:
    """The first files of such a set that come to so many bytes at most; the rest is left to later plans.

    Empty if they are few and would stay in their tier: their rows would be written anew once more.
    """
    sums = list(takewhile(lambda total: total <= most_bytes, accumulate(size for _, size in files)))
    if len(sums) < min(_FILES_OF_TIER, len(files)):
        grown = len(sums) > 1 and _tier_of(sums[-1]) > max(_tier_of(size) for _, size in files)
        return files[: len(sums)] if grown else ()
    return files[: len(sums)]


def cut(files: Iterable[Sized], most_bytes: int) -> Iterator[Sequence[Sized]]:
    """Files one after the other, in sets of two or more of about so many bytes at most."""
    found: list[Sized] = []
    for one in files:
        if len(found) > 1 and sum(size for _, size in (*found, one)) > most_bytes:
            yield found
            found = []
        found.append(one)
    if len(found) > 1:
        yield found


def joined(files: Sequence[Sized]) -> Iterator[ClusteringGroup]:
    """The entries of a plan by which these become one file."""
    *first, last = (group for group, _ in files)
    yield from (replace(group, joined=True) for group in first)
    yield last


def _tier_of(size_bytes: int) -> int:
    return ((size_bytes // _LEAST_BYTES).bit_length() + 1) // 2


def _group_of(view: TableView, found: FileSlice, size_bytes: int) -> ClusteringGroup:
    (operation,) = operations_on(view, [found])
    metrics = {**operation.metrics, "TOTAL_IO_MB": 2 * size_bytes / _MB, "TOTAL_IO_READ_MB": size_bytes / _MB}
    metrics["TOTAL_IO_WRITE_MB"] = size_bytes / _MB
    return ClusteringGroup(found.partition, found.file_id, found.base_file, (), metrics)
