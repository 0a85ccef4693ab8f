"""The level files that the history has: `_version_`, and the manifest that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.instant import HISTORY_NAME, TIMELINE_FOLDER

HISTORY_FOLDER = f"{TIMELINE_FOLDER}/{HISTORY_NAME}"
VERSION_NAME = "_version_"
VERSION_PATH = f"{HISTORY_FOLDER}/{VERSION_NAME}"

SIZE_UNKNOWN = -1  # of a level file that no manifest names
_READS_MAX = 20
_DIGITS_MOST = 18  # far above any version
_MANIFEST = re.compile(r"manifest_(\d+)")
_LEVEL_FILE = re.compile(r"(\d+)_(\d+)_(\d+)\.parquet")


@dataclass(frozen=True)
class LevelFile:
    """One parquet file of the history, as its name and the manifest describe it: instants `first` to `last`."""

    name: str
    size_bytes: int
    first: str
    last: str

    @property
    def path(self) -> str:
        return f"{HISTORY_FOLDER}/{self.name}"

    @property
    def level(self) -> int:
        """How often its rows have been merged."""
        return int(self.name.rpartition("_")[2].removesuffix(".parquet"))


@dataclass(frozen=True)
class Manifest:
    """The level files of one version, newest first. Version 0 says that nothing has been archived.

    `loose` are level files from before the first manifest: an archiver is in its first run, or died in it, and their
    instants are on the active timeline, too.
    """

    version: int = 0
    files: tuple[LevelFile, ...] = ()
    loose: tuple[LevelFile, ...] = ()
    greatest: int = 0  # the number of any manifest, for those who make the next one

    @classmethod
    def read(cls, storage: Storage, version: int) -> Manifest:
        """Reads the manifest of one version. Errors: `NotFound`, and `CorruptTable` with its path."""
        path = manifest_path(version)
        return cls(version, _parse(storage.read(path), path))


def manifest_path(version: int) -> str:
    return f"{HISTORY_FOLDER}/manifest_{version}"


def load_manifest(storage: Storage) -> Manifest:
    """The manifest that counts now; one listing where there is no history.

    An archiver removes `_version_` before it puts the next one: then the greatest manifest counts, as for Hudi. It
    also removes old manifests, so one that is gone is no damage if the version has moved meanwhile. Errors:
    `CorruptTable` that names the file, `Unavailable` for a history that never rests.
    """
    for _ in range(_READS_MAX):
        names = storage.names(HISTORY_FOLDER)
        version = _version(storage, names) if names else 0
        if version == 0:
            loose = (level_file(name, SIZE_UNKNOWN) for name in names if _LEVEL_FILE.fullmatch(name))
            return Manifest(loose=tuple(loose))
        path = manifest_path(version)
        try:
            return Manifest.read(storage, version)
        except NotFound as error:
            if _version(storage, storage.names(HISTORY_FOLDER)) == version:
                raise CorruptTable(
                    f"{VERSION_PATH} names {path}, which is not there: restore it from a copy. Without it, it is "
                    "unknown which files of the table count",
                    path=path,
                ) from error
    raise Unavailable(f"{HISTORY_FOLDER} changed during each of {_READS_MAX} readings: try again")


def greatest_manifest(storage: Storage) -> Manifest:
    """The manifest on which the next one is built: the greatest readable one, even if `_version_` is older.

    An archiver that died may have left it, or one may still be at work; its instants are on the active timeline, too.
    Errors: those of `load_manifest`.
    """
    counted = load_manifest(storage)
    versions = manifest_versions(storage.names(HISTORY_FOLDER))
    for version in sorted(versions, reverse=True):
        if version <= counted.version:
            break
        try:
            found = Manifest.read(storage, version)
        except (NotFound, CorruptTable):  # Java's are not made at once, and half a one may be left
            continue
        if all(storage.exists(file.path) for file in found.files):
            return replace(found, greatest=max(versions))
    return replace(counted, greatest=max(versions, default=0))


def manifest_versions(names: Collection[str]) -> list[int]:
    """The versions of the manifests among the names of the history's folder."""
    return [int(found[1]) for found in map(_MANIFEST.fullmatch, names) if found]


def _version(storage: Storage, names: Collection[str]) -> int:
    greatest = max(manifest_versions(names), default=0)
    if VERSION_NAME not in names:
        return greatest
    try:
        text = storage.read(VERSION_PATH).decode("ascii", "replace").strip()
    except NotFound:
        return greatest
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MOST):
        raise CorruptTable(
            f"{VERSION_PATH} holds {text[:20]!r}, which is no version: restore it, or write {greatest} to it, the "
            "greatest manifest there",
            path=VERSION_PATH,
        )
    return int(text)


def _parse(data: bytes, path: str) -> tuple[LevelFile, ...]:
    try:
        files = [level_file(entry["fileName"], entry["fileLen"]) for entry in json.loads(data)["files"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptTable(
            f"{path} holds {len(data)} bytes that are no manifest of the history ({error!r}): restore it from a copy",
            path=path,
        ) from error
    return tuple(sorted(files, key=lambda file: (file.last, file.first), reverse=True))


def level_file(name: str, size_bytes: int) -> LevelFile:
    """The level file of this name. Errors: `ValueError` for another kind of name."""
    found = _LEVEL_FILE.fullmatch(name)
    if found is None or not isinstance(size_bytes, int):
        raise ValueError(f"{name!r} of {size_bytes!r} bytes is no level file")
    return LevelFile(name, size_bytes, found[1], found[2])
