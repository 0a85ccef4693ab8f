"""Where the partitions of a table are: the folders that say so, however deep they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from lakelatch.format.names import parse_data_file
from lakelatch.storage.contract import Listing, Storage, path_below
from lakelatch.timeline.table_config import TableConfig

PARTITION_METADATA = ".hoodie_partition_metadata"
_TABLE_FOLDER = ".hoodie"


class Selection(Protocol):
    """Which partitions a reader wants. What it cannot tell, it wants."""

    @property
    def paths(self) -> list[str] | None:
        """All that it wants, by path, whether they are there or not; None if it cannot name them."""

    def holds(self, folder: str) -> bool:
        """Whether it wants the partition in this folder."""

    def leads_on(self, folder: str) -> bool:
        """Whether it wants a partition in this folder or below it."""


class Everything:
    """All partitions."""

    paths: list[str] | None = None

    def holds(self, folder: str) -> bool:
        return True

    def leads_on(self, folder: str) -> bool:
        return True


def partition_files(
    storage: Storage, config: TableConfig, selection: Selection | None = None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each partition's path with the names of the files in its folder, by path; each folder is listed once.

    A partition is a folder with a file of partition metadata, whatever its ending, or with data files. Its depth says
    nothing of the number of partition fields: one field may make several folders (`2024/01/02`), and a partition may
    lie within another. A folder with a table of its own is none of this one's.

    One request does it where the storage shows all paths at once; else the folders of one depth are listed together.
    Folders that lead to no partition of the selection are not opened, nor any others if it names its partitions.
    """
    selection = selection or Everything()
    if not config.partition_fields:
        yield "", storage.list("").files
        return
    if selection.paths is not None:
        found = dict(zip(selection.paths, (one.files for one in _list_all(storage, selection.paths)), strict=True))
    else:
        paths = storage.paths_at_once("")
        found = _listed(storage, selection) if paths is None else _of_paths(paths)
    for folder in sorted(found, key=lambda folder: folder.split("/")):
        files = found[folder]
        if selection.holds(folder) and any(
            name.startswith(PARTITION_METADATA) or parse_data_file(name) is not None for name in files
        ):
            yield folder, files


def _of_paths(paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names of the files in each folder, but for those of tables."""
    folders: dict[str, list[str]] = {}
    tables = set()
    for path in paths:
        *inside, name = path.split("/")
        if _TABLE_FOLDER in inside:
            tables.add("/".join([*inside[: inside.index(_TABLE_FOLDER)], ""]))
        elif inside:
            folders.setdefault("/".join(inside), []).append(name)
    tables.discard("")  # the table itself
    return {
        folder: tuple(sorted(names))
        for folder, names in folders.items()
        if not any(f"{folder}/".startswith(table) for table in tables)
    }


def _listed(storage: Storage, selection: Selection) -> dict[str, tuple[str, ...]]:
    """The same, folder by folder."""
    found: dict[str, tuple[str, ...]] = {}
    level = [name for name in storage.list("").folders if name != _TABLE_FOLDER]
    while level:
        level = [folder for folder in level if selection.leads_on(folder)]
        below: list[str] = []
        for folder, listing in zip(level, _list_all(storage, level), strict=True):
            if _TABLE_FOLDER not in listing.folders:
                found[folder] = listing.files
                below.extend(path_below(folder, name) for name in listing.folders)
        level = below
    return found


def _list_all(storage: Storage, folders: list[str]) -> Sequence[Listing]:
    return storage.together(*(partial(storage.list, folder) for folder in folders))
