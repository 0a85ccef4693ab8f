"""Tables in a file system of fsspec's, found by the scheme of the path."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.core import url_to_fs
from fsspec.registry import known_implementations, registry

from lakelatch.errors import InvalidRequest, LakelatchError, Unavailable
from lakelatch.storage.contract import FileStatus, Listing, NotFound, PutUnknown, Storage, depth_first
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import scheme_of, without_secrets

_OPENED_MAX = 64


@dataclass(frozen=True)
class FsspecStorage(Storage):
    """The objects below `place` (without a slash at its end), reached as fsspec's configuration says.

    A copy that was pickled connects anew, in each process once. File systems repeat requests by themselves, a
    conditional put as well: one that says 'exists' may have been its own first try, which its content shows.
    """

    place: str

    @property
    def uri(self) -> str:
        return self.place

    def read(self, path: str) -> bytes:
        files, full = self._find(path)
        with self._errors(path):
            return bytes(files.cat_file(full))

    def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
        end = min(start + size_bytes, self.stat(path).size_bytes)  # some refuse to read beyond it
        if end <= start:
            return b""
        files, full = self._find(path)
        with self._errors(path):
            return bytes(files.cat_file(full, start=start, end=end))

    def read_end(self, path: str, size_bytes: int) -> tuple[bytes, int]:
        files, full = self._find(path)
        with self._errors(path):
            try:
                data = bytes(files.cat_file(full, start=-size_bytes))
            except (FileNotFoundError, PermissionError):
                raise
            except Exception:  # of an empty object some stores know no last bytes
                if self.stat(path).size_bytes:
                    raise
                return b"", 0
        return data, len(data) if len(data) < size_bytes else self.stat(path).size_bytes

    def stat(self, path: str) -> FileStatus:
        files, full = self._find(path)
        with self._errors(path):
            found = files.info(full)
            if found["type"] != "file":
                raise FileNotFoundError(path)
            return FileStatus(int(found["size"]), int(files.modified(full).timestamp() * 1000))

    def list(self, folder: str) -> Listing:
        files, full = self._find(folder)
        with self._errors(folder):
            try:
                found = files.ls(full, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return Listing((), ())
        below = full.rstrip("/") + "/"
        names = {kind: set[str]() for kind in ("file", "directory")}
        for one in found:
            name = str(one["name"]).rstrip("/")
            if name.startswith(below):  # neither a file of the folder's name nor the folder itself
                names[one["type"]].add(name.removeprefix(below))
        return Listing(tuple(sorted(names["file"])), tuple(sorted(names["directory"])))

    def put(self, path: str, data: bytes) -> None:
        files, full = self._find(path)
        with self._errors(path):
            try:
                files.pipe_file(full, data, mode="overwrite")
            except FileNotFoundError:
                raise self._no_place() from None

    def put_if_absent(self, path: str, data: bytes) -> bool:
        files, full = self._find(path)
        with self._errors(path, unanswered=PutUnknown):
            try:
                files.pipe_file(full, data, mode="create")
                return True
            except FileNotFoundError:
                raise self._no_place() from None
            except OSError as error:
                if _is_there(error):
                    return False
                raise

    def delete(self, path: str) -> None:
        files, full = self._find(path)
        with self._errors(path):
            try:
                if files.info(full)["type"] == "file":
                    files.rm_file(full)
            except FileNotFoundError:
                return

    def walk(self, folder: str) -> Iterator[str]:
        files, full = self._find(folder)
        root = self._find("")[1].rstrip("/") + "/"
        with self._errors(folder):
            paths = [name.removeprefix(root) for name in map(str, files.find(full)) if name.startswith(root)]
        yield from sorted((path for path in paths if path != folder), key=depth_first)

    def _find(self, path: str) -> tuple[Any, str]:
        """The file system of this process, and the path that it knows."""
        files, root = _opened(self.place, os.getpid())
        return files, f"{root}/{path}" if path else root

    def _no_place(self) -> InvalidRequest:
        place = without_secrets(self.place)
        return InvalidRequest(f"there is no bucket at {place}: make it, or set path to another place", option="path")

    @contextmanager
    def _errors(self, path: str, unanswered: type[Unavailable] = Unavailable) -> Iterator[None]:
        where = without_secrets(self.place)
        try:
            yield
        except LakelatchError:
            raise
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NotFound(f"there is no object {path!r} in {where}", path=path) from None
        except PermissionError as error:
            raise InvalidRequest(
                f"{where} refuses these credentials, or their rights ({type(error).__name__}): they need to read, "
                f"write, list and delete there; see fsspec's configuration, and the environment",
                option="path",
            ) from None
        except Exception as error:  # whatever the file system's own library raises
            raise unanswered(
                f"{where} could not be used ({type(error).__name__}); are path and fsspec's configuration right, and "
                "the store up?",
                option="path",
                path=path,
            ) from None


def open_fsspec_storage(uri: str, options: StorageOptions) -> FsspecStorage:
    """The storage at a URI that fsspec knows.

    Errors: `InvalidRequest` for a file system that cannot create an object whole and exclusively, and for options,
    since each of them has its own.
    """
    if options != StorageOptions(timeout_s=options.timeout_s):
        raise InvalidRequest(
            f"the options lakelatch.storage.* are for s3://, and {without_secrets(uri)} is reached by fsspec: remove "
            "them, and use fsspec's configuration (FSSPEC_<PROTOCOL>_<SETTING>, or a file in ~/.config/fsspec)",
            option="lakelatch.storage.endpoint_url",
        )
    _check_creates(uri)
    return FsspecStorage(uri.rstrip("/"))


def knows(scheme: str) -> bool:
    """Whether fsspec has a file system for the scheme, installed or not."""
    return scheme in known_implementations or scheme in registry


def _check_creates(uri: str) -> None:
    """Refuses what would create by opening a file exclusively: its readers see it before it is whole."""
    place = without_secrets(uri)
    try:
        kind = fsspec.get_filesystem_class(scheme_of(uri))
    except (ImportError, ValueError) as error:
        raise InvalidRequest(f"the path {place!r} cannot be used by fsspec: {error}", option="path") from None
    name, base = (
        ("_pipe_file", AsyncFileSystem) if issubclass(kind, AsyncFileSystem) else ("pipe_file", AbstractFileSystem)
    )
    method = getattr(kind, name)
    if method is getattr(base, name) or "mode" not in inspect.signature(method).parameters:
        raise InvalidRequest(
            f"the path {place!r} is on fsspec's {kind.__name__}, which cannot create an object whole and exclusively "
            '(pipe_file with mode="create" of its own), so that two writers could both win: use another store',
            option="path",
        )


def _is_there(error: OSError) -> bool:
    """Whether an error says that the object exists; clones of S3 leave out what s3fs knows that by."""
    response = getattr(error.__cause__, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return isinstance(error, FileExistsError) or code in ("PreconditionFailed", "412")


@lru_cache(maxsize=_OPENED_MAX)
def _opened(place: str, process: int) -> tuple[Any, str]:
    files, root = url_to_fs(place, use_listings_cache=False, skip_instance_cache=True)
    return files, str(root).rstrip("/")
