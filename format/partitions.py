"""Where the partitions of a table are: the folders that say so, however deep they lie."""

from __future__ import annotations

from collections.abc import Iterator

from lakelatch.format.names import parse_data_file
from lakelatch.storage.contract import Storage, path_below
from lakelatch.timeline.table_config import TableConfig

PARTITION_METADATA = ".hoodie_partition_metadata"
_TABLE_FOLDER = ".hoodie"


def partition_files(storage: Storage, config: TableConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each partition's path with the names of the files in its folder, by path; each folder is listed once.

    A partition is a folder with a file of partition metadata, whatever its ending, or with data files. Its depth says
    nothing of the number of partition fields: one field may make several folders (`2024/01/02`), and a partition may
    lie within another. A folder with a table of its own is none of this one's.
    """
    if not config.partition_fields:
        yield "", storage.list("").files
        return
    yield from _below(storage, "")


def _below(storage: Storage, folder: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    listing = storage.list(folder)
    if folder and _TABLE_FOLDER in listing.folders:
        return
    if any(name.startswith(PARTITION_METADATA) or parse_data_file(name) is not None for name in listing.files):
        yield folder, listing.files
    for name in listing.folders:
        if name != _TABLE_FOLDER:
            yield from _below(storage, path_below(folder, name))
