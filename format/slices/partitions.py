"""Finding the partitions of a table: folders that are marked as such or have data files, at any depth."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from lakelatch.format.index.file_index import INDEX_FOLDER
from lakelatch.format.names import parse_data_file
from lakelatch.storage.contract import Listing, Storage, SupportsFirstPaths, path_below
from lakelatch.timeline.table_config import TableConfig

#: So many folders are listed at least as fast as an index is found and read.
FEW_FOLDERS = 64
#: The names of the live files of each partition, from an index; None if they have to be listed. It is given the names
#: of the indexes if these have been seen.
Indexed: TypeAlias = Callable[[Collection[str] | None], Mapping[str, tuple[str, ...]] | None]

#: What one request shows of a table: paths, and whether these are all of them.
FirstAnswer: TypeAlias = tuple[Sequence[str], bool]

PARTITION_METADATA = ".hoodie_partition_metadata"
_TABLE_FOLDER = ".hoodie"


class Selection(Protocol):
    """The partitions that a reader wants, including those that it cannot rule out."""

    @property
    def paths(self) -> list[str] | None:
        """The paths of all wanted partitions, whether they exist or not; None if it cannot name them."""

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


def first_answer(storage: Storage, config: TableConfig) -> FirstAnswer:
    """The first request of `partition_files` if no selection names its partitions, for a caller that makes it ahead."""
    if not config.partition_fields:
        return storage.list("").files, True
    return storage.first_paths("") if isinstance(storage, SupportsFirstPaths) else ((), False)


def partition_files(
    storage: Storage,
    config: TableConfig,
    selection: Selection | None = None,
    indexed: Indexed | None = None,
    first: Callable[[], FirstAnswer] | None = None,
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each partition's path with the names of the files in its folder, by path; each folder is listed once.

    A partition is a folder with a file of partition metadata, whatever its ending, or with data files. Its depth says
    nothing of the number of partition fields: one field may make several folders (`2024/01/02`), and a partition may
    lie within another. A folder with a table of its own is none of this one's.

    One request does it where the storage shows all paths at once; else the folders of one depth are listed together.
    Folders that lead to no partition of the selection are not opened, nor any others if it names its partitions. Where
    `indexed` is given it is asked before many folders are listed, and then only live files may be among the names.
    `first` has the answer of `first_answer`.
    """
    selection, first = selection or Everything(), first or partial(first_answer, storage, config)
    if not config.partition_fields:
        yield "", tuple(first()[0])
        return
    found = _found(storage, selection, indexed, first)
    for folder in sorted(found, key=lambda folder: folder.split("/")):
        files = found[folder]
        is_one = any(name.startswith(PARTITION_METADATA) or parse_data_file(name) is not None for name in files)
        if is_one and selection.holds(folder):
            yield folder, files


def _found(
    storage: Storage, selection: Selection, indexed: Indexed | None, first: Callable[[], FirstAnswer]
) -> Mapping[str, tuple[str, ...]]:
    """The names of the files in each folder that may be a partition of the selection, and perhaps in others."""
    if selection.paths is not None:
        known = indexed(None) if indexed is not None and len(selection.paths) >= FEW_FOLDERS else None
        if known is not None:
            return {path: known[path] for path in selection.paths if path in known}
        return dict(zip(selection.paths, (one.files for one in _list_all(storage, selection.paths)), strict=True))
    paths, complete = first()
    if complete:
        return _of_paths(paths)
    names = [path.rpartition("/")[2] for path in paths if path.startswith(f"{INDEX_FOLDER}/")]
    known = indexed(names) if indexed is not None and names else None
    return _listed(storage, selection, indexed if not names else None) if known is None else known


def _of_paths(paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names of the files in each folder, without folders of nested tables."""
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


def _listed(storage: Storage, selection: Selection, indexed: Indexed | None) -> Mapping[str, tuple[str, ...]]:
    """As `_of_paths`, by listing folder by folder, or from an index once there are many folders."""
    found: dict[str, tuple[str, ...]] = {}
    level = [name for name in storage.list("").folders if name != _TABLE_FOLDER]
    while level:
        level = [folder for folder in level if selection.leads_on(folder)]
        if indexed is not None and len(level) >= FEW_FOLDERS:
            known, indexed = indexed(None), None
            if known is not None:
                return known
        below: list[str] = []
        for folder, listing in zip(level, _list_all(storage, level), strict=True):
            if _TABLE_FOLDER not in listing.folders:
                found[folder] = listing.files
                below.extend(path_below(folder, name) for name in listing.folders)
        level = below
    return found


def _list_all(storage: Storage, folders: list[str]) -> Sequence[Listing]:
    return storage.together(*(partial(storage.list, folder) for folder in folders))
