"""Writes the history: level files, manifests, the merging of levels, and the removal of replaced files.

**Manifests are create-only, and the greatest one counts.** Creating the next one with put-if-absent decides between two
archivers; the one that finds its number taken starts again. Old manifests are removed, so an archiver that was paused
may succeed with a number that was removed: it checks the greatest one afterwards, and has lost if that is not its own.
`_version_` is removed by each archiver, as Java's does before it puts the next one; here none is put, since a late put
of an old one would hide what others have archived. Without it Java's readers and writers take the greatest, too.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable
from lakelatch.failpoints import failpoint
from lakelatch.storage.conditional_puts import create_own
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.system import System
from lakelatch.timeline.history.level_file import LEVEL_FILE_SCHEMA, read_rows
from lakelatch.timeline.history.manifest import (
    HISTORY_FOLDER,
    VERSION_PATH,
    LevelFile,
    Manifest,
    greatest_manifest,
    level_file,
    manifest_path,
    manifest_versions,
)

MANIFESTS_KEPT = 3  # Hudi's: readers that have loaded one go on with it for a while
MERGED_MAX_BYTES = 256 * 1024 * 1024  # what is larger stays as it is: a level file is written whole
_TIME = "instantTime"
_ROWS_OF_GROUP = 1000  # so that one completion time is found without reading a whole file


class ArchiverOvertaken(Exception):
    """Another archiver has changed the history since it was read: read it again. Never leaves this project."""


@dataclass(frozen=True)
class HistoryRow:
    """One completed instant, as a row of a level file."""

    requested: str
    completion: str
    action: str
    metadata: bytes
    plan: bytes | None

    def values(self) -> dict[str, Any]:
        return {
            "instantTime": self.requested,
            "completionTime": self.completion,
            "action": self.action,
            "metadata": self.metadata,
            "plan": self.plan,
            "version": 1,
        }


class HistoryWriter:
    """Writes one table's history. Any number of archivers may be at work; one that loses has lost only time.

    Errors, of every method: those of `load_manifest`, `Unavailable` if the storage confirms nothing.
    """

    def __init__(self, storage: Storage, system: System) -> None:
        self._storage = storage
        self._system = system

    def append(self, rows: Sequence[HistoryRow]) -> Sequence[HistoryRow]:
        """Adds rows to the history; returns those that are in it afterwards, the oldest.

        They are fewer if an archiver that died has left a file of the same name with other rows. Errors:
        `ArchiverOvertaken`, with nothing done.
        """
        manifest = greatest_manifest(self._storage)
        ordered = sorted(rows, key=lambda row: row.requested)
        while ordered:
            content = _table_of(ordered)
            file = self._put_level_file(content, 0)
            if file is not None:
                failpoint("archive.after_level_file")
                self._replace(manifest, (), file, content)
                return ordered
            ordered.pop()
        raise CorruptTable(
            f"level files that no manifest names have the name of the oldest instant of {HISTORY_FOLDER}: remove them",
            path=HISTORY_FOLDER,
        )

    def merge(self, batch_size: int) -> int:
        """Merges level files, level by level, for as long as a level has a batch of them; returns how often.

        Errors: `ArchiverOvertaken`; what was merged until then counts.
        """
        merged, level = 0, 0
        while True:
            manifest = greatest_manifest(self._storage)
            files = _candidates(manifest, level, batch_size)
            while len(files) > 1 and not self._merge(manifest, files, level + 1):
                files.pop()  # so that its name is another one
            if len(files) < 2:
                break
            merged, level = merged + 1, level + 1
        self.remove_old()
        return merged

    def remove_old(self) -> None:
        """Removes manifests that no reader uses any more, and the level files that only they name."""
        versions = sorted(manifest_versions(self._storage.names(HISTORY_FOLDER)))
        if len(versions) <= MANIFESTS_KEPT:
            return
        try:
            kept = {file.name for one in versions[-MANIFESTS_KEPT:] for file in Manifest.read(self._storage, one).files}
            for version in versions[:-MANIFESTS_KEPT]:
                for file in Manifest.read(self._storage, version).files:
                    if file.name not in kept:
                        self._storage.delete(file.path)
                failpoint("archive.after_old_level_files")
                self._storage.delete(manifest_path(version))
        except NotFound:  # another archiver removes the same
            return

    # -- one change -------------------------------------------------------------------------------------------------

    def _merge(self, manifest: Manifest, files: Sequence[LevelFile], level: int) -> bool:
        try:
            rows = _in_order(read_rows(self._storage, one) for one in files)
        except NotFound:
            raise ArchiverOvertaken from None
        file = self._put_level_file(rows, level)
        if file is None:  # an archiver that died has merged others of the same range
            return False
        failpoint("archive.after_merged_file")
        self._replace(manifest, files, file, rows)
        return True

    def _replace(self, manifest: Manifest, old: Sequence[LevelFile], new: LevelFile, rows: Any) -> None:
        """Creates the next manifest, without the `old` level files and with the `new` one.

        Errors: `ArchiverOvertaken` if another one counts; then nothing that this one would replace may be deleted.
        """
        version = manifest.greatest + 1
        files = [*(file for file in manifest.files if file not in old and file.name != new.name), new]
        entries = [{"fileName": file.name, "fileLen": file.size_bytes} for file in sorted(files, key=_name)]
        content = json.dumps({"files": entries}, indent=2).encode()
        if not create_own(self._storage, manifest_path(version), content, self._system):
            raise ArchiverOvertaken
        failpoint("archive.after_manifest")
        names = self._storage.names(HISTORY_FOLDER)
        if max(manifest_versions(names), default=0) != version:
            self._storage.delete(manifest_path(version))
            raise ArchiverOvertaken
        if new.name not in names:  # Java's archiver removes level files that no manifest names
            self._put_level_file(rows, new.level)
        self._storage.delete(VERSION_PATH)
        failpoint("archive.after_version")

    def _put_level_file(self, rows: Any, level: int) -> LevelFile | None:
        """Creates the file with exactly these rows, or finds it there; None if its name is taken by other rows."""
        name = f"{rows[_TIME][0]}_{rows[_TIME][-1]}_{level}.parquet"
        data = _level_file_bytes(rows)
        file = level_file(name, len(data))
        if create_own(self._storage, file.path, data, self._system):
            return file
        try:
            file = level_file(name, self._storage.stat(file.path).size_bytes)
            there = read_rows(self._storage, file)
        except (CorruptTable, NotFound):
            return None
        return file if there.equals(rows) else None


def _candidates(manifest: Manifest, level: int, batch_size: int) -> list[LevelFile]:
    """The oldest neighbours of a level that are merged next, as Hudi chooses them."""
    of_level = sorted((one for one in manifest.files if one.level == level), key=lambda one: (one.first, one.last))
    chosen: list[LevelFile] = []
    if len(of_level) < batch_size:
        return chosen
    for file in of_level:
        if sum(one.size_bytes for one in chosen) + file.size_bytes > MERGED_MAX_BYTES:
            if len(chosen) > 1:
                break
            chosen = []
            if file.size_bytes > MERGED_MAX_BYTES:
                continue
        chosen.append(file)
        if len(chosen) == batch_size:
            break
    return chosen


def _table_of(rows: Iterable[HistoryRow]) -> Any:
    return pa.Table.from_pylist([row.values() for row in rows], LEVEL_FILE_SCHEMA)


def _in_order(tables: Iterable[Any]) -> Any:
    """The tables' rows by instant, each instant once. Sorting copies all metadata, so it is done only if needed."""
    rows = pa.concat_tables(tables)
    if _is_rising(rows[_TIME]):
        return rows
    rows = rows.sort_by(_TIME)
    times = rows[_TIME].combine_chunks()
    return rows.filter(pa.concat_arrays([pc.not_equal(times[:-1], times[1:]), pa.array([True])]))


def _is_rising(times: Any) -> bool:
    times = times.combine_chunks()
    return bool(pc.all(pc.less(times[:-1], times[1:])).as_py())


def _level_file_bytes(rows: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=_ROWS_OF_GROUP, compression="zstd", store_schema=False)
    return sink.getvalue()


def _name(file: LevelFile) -> str:
    return file.name
