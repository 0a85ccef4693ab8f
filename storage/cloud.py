"""Tables at S3, GCS and Azure, by obstore."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import BinaryIO

import obstore
from obstore.exceptions import BaseError, NotFoundError

from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.storage.cloud_client import AZURE, GCS, S3, CloudClient, CloudSettings
from lakelatch.storage.contract import STAGING_FOLDER, FileStatus, Listing, NotFound, Storage, T, depth_first
from lakelatch.storage.options import ACCESS_KEY_ID, PREFIX, SECRET_ACCESS_KEY, StorageOptions
from lakelatch.storage.uris import scheme_of, without_secrets
from lakelatch.system import REAL_SYSTEM

#: A file of at most so many bytes is one put, and in memory until it is there.
ONE_PUT_BYTES = 16 * 1024 * 1024

_CONDITIONAL_MAX_BYTES = 5 * 1024**3  # what S3 takes in one put, and copies as one part
_COPY_S = 300.0
_STAGED_FOR = timedelta(days=1)
_RETRIES = 5  # of requests that may be sent twice: all but the conditional put
_THREADS, _THREADS_MAX = "lakelatch-requests", 8
_DELETED_AT_ONCE = 1000  # the most that S3 takes
_LISTED_AT_ONCE = 1000  # the most that one answer of S3 has
_CLIENTS_MAX = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_log = logging.getLogger("lakelatch.storage")


@dataclass(frozen=True)
class CloudStorage(Storage):
    """The objects below `place` (`s3://bucket/prefix`, without a slash at its end).

    A copy that was pickled connects anew, in each process once. A conditional put is sent again only if a busy store
    has turned it away, and its answer is never guessed; everything else is repeated a few times, with the library's
    back-off, within the time in which a request has to end.
    """

    place: str
    settings: CloudSettings

    @property
    def uri(self) -> str:
        return self.place

    @property
    def identity(self) -> Hashable:
        """Equal for storages that are one place, asked in one way."""
        return self.place, self.settings

    def read(self, path: str) -> bytes:
        with self._client.reading(path) as store:
            return bytes(obstore.get(store, path).bytes())

    def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
        if size_bytes <= 0:  # no request asks for nothing
            return b""
        client = self._client
        with client.reading(path) as store:
            try:
                return bytes(obstore.get_range(store, path, start=start, length=size_bytes))
            except BaseError as error:
                if client.means_no_range(error):
                    return b""
                raise

    def read_end(self, path: str, size_bytes: int) -> tuple[bytes, int]:
        client = self._client
        with client.reading(path) as store:
            try:
                found = obstore.get(store, path, options={"range": client.end_range(size_bytes)})
                data, whole_bytes = bytes(found.bytes()), int(found.meta["size"])
            except BaseError as error:
                if client.means_no_range(error):  # as an empty object has no last bytes
                    return b"", 0
                raise
        if whole_bytes > len(data) and not client.reads_ends:
            return self.read_range(path, whole_bytes - size_bytes, size_bytes), whole_bytes
        return data, whole_bytes

    def stat(self, path: str) -> FileStatus:
        with self._client.reading(path) as store:
            found = obstore.head(store, path)
        return FileStatus(int(found["size"]), int(found["last_modified"].timestamp() * 1000))

    def list(self, folder: str) -> Listing:
        with self._client.asking(folder) as store:
            found = obstore.list_with_delimiter(store, folder or None)
        below = f"{folder}/" if folder else ""  # some stores keep an object of the folder's own name
        paths = (str(one["path"]) for one in found["objects"])
        files = (path.removeprefix(below) for path in paths if path.startswith(below) and path != below)
        folders = (str(one).rstrip("/").rpartition("/")[2] for one in found["common_prefixes"])
        return Listing(tuple(sorted(files)), tuple(sorted(folders)))

    def put(self, path: str, data: bytes) -> None:
        with self._client.asking(path) as store:
            obstore.put(store, path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return _client(self.place, self.settings, 0, os.getpid()).put(path, data, "create") is not None

    def create_from_file(self, path: str, file: BinaryIO) -> bool:
        """A large file is put in parts under a staging path and copied into place on a condition, where the store can.

        Errors: `InvalidRequest` for a file that is larger than what a store takes on a condition.
        """
        size_bytes = file.seek(0, os.SEEK_END)
        if size_bytes <= ONE_PUT_BYTES:
            return super().create_from_file(path, file)
        if size_bytes > _CONDITIONAL_MAX_BYTES:
            raise InvalidRequest(
                f"{path!r} has {size_bytes} bytes, and {self._client.where} creates objects of at most "
                f"{_CONDITIONAL_MAX_BYTES} on a condition: make smaller files, with more buckets "
                "(hoodie.bucket.index.num.buckets) or partitions",
                option="hoodie.bucket.index.num.buckets",
            )
        if self.exists(path):
            return False
        if not self._copies_once():
            return super().create_from_file(path, file)
        staged = f"{STAGING_FOLDER}/{REAL_SYSTEM.new_id()}"
        try:
            self._client.upload(staged, file)
            self._remove_left_over(staged)
            return self._copying.copy(staged, path)
        finally:
            with suppress(LakelatchError):  # what is left is removed by the next one
                self.delete(staged)

    def _remove_left_over(self, newest: str) -> None:
        """Removes what crashed puts have left, a day before the newest object, by the store's own clock."""
        with self._client.asking(STAGING_FOLDER) as store:
            times = {
                str(one["path"]): one["last_modified"] for some in obstore.list(store, STAGING_FOLDER) for one in some
            }
        for path, modified in times.items():
            if path != newest and newest in times and times[newest] - modified > _STAGED_FOR:
                self.delete(path)

    def _copies_once(self) -> bool:
        """Whether the store refuses a second copy to one place: tried out, once in a process, as clones may not."""
        if not self._client.copies_once:
            return False
        if self not in _copying_once:
            trial = f"{STAGING_FOLDER}/{REAL_SYSTEM.new_id()}"
            paths = [f"{trial}-{name}" for name in ("first", "second", "target")]
            try:
                for path in paths[:2]:
                    self.put(path, path.encode())
                copied = [self._copying.copy(path, paths[2]) for path in paths[:2]]
                _copying_once[self] = copied == [True, False] and self.read(paths[2]) == paths[0].encode()
            except LakelatchError as error:
                _log.warning("large files are put whole, since no conditional copy was made: %s", error.message)
                return False
            finally:
                with suppress(LakelatchError):
                    self.delete_at_once(paths)
            if not _copying_once[self]:
                _log.warning("large files are put whole: %s copies to a place that is taken", self._client.where)
        return _copying_once[self]

    def delete(self, path: str) -> None:
        with suppress(NotFound), self._client.reading(path) as store:
            obstore.delete(store, path)

    def delete_folder(self, folder: str) -> None:
        with self._client.asking(folder) as store:
            for some in obstore.list(store, folder):
                self._delete_some([str(found["path"]) for found in some])

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        if threading.current_thread().name.startswith(_THREADS):  # they must not wait for each other
            return super().together(*requests)
        under_way = [_threads(os.getpid()).submit(request) for request in requests[1:]]
        try:
            first = [request() for request in requests[:1]]
        finally:
            wait(under_way)
        return first + [one.result() for one in under_way]

    def delete_at_once(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            some = paths[start : start + _DELETED_AT_ONCE]
            with self._client.errors(some[0]):
                self._delete_some(some)

    def _delete_some(self, paths: Sequence[str]) -> None:
        """One request for all; where it fails for one that is not there, as Azure's does, one for each."""
        try:
            obstore.delete(self._client.store(), paths)
        except (NotFoundError, FileNotFoundError) as error:
            if self._client.means_no_place(error):
                raise
            for path in paths:
                self.delete(path)

    def walk(self, folder: str) -> Iterator[str]:
        with self._client.asking(folder) as store:
            found = (str(one["path"]) for some in obstore.list(store, folder or None) for one in some)
            paths = [path for path in found if path != folder]
        yield from sorted(paths, key=depth_first)

    def first_paths(self, folder: str) -> tuple[Sequence[str], bool]:
        with self._client.asking(folder) as store:
            listed = iter(obstore.list(store, folder or None, chunk_size=_LISTED_AT_ONCE))
            first = next(listed, ())
            paths = [str(one["path"]) for one in first if one["path"] != folder]
            return paths, len(first) < _LISTED_AT_ONCE and not next(listed, None)

    @property
    def _client(self) -> CloudClient:
        return _client(self.place, self.settings, _RETRIES, os.getpid())

    @property
    def _copying(self) -> CloudClient:
        """The client for copies, which are never sent again and may take as long as gigabytes do."""
        longer = replace(self.settings, call_s=max(self.settings.call_s, _COPY_S))
        return _client(self.place, longer, 0, os.getpid())


def open_cloud_storage(uri: str, options: StorageOptions) -> CloudStorage:
    """The storage at a URI of a cloud. Errors: `InvalidRequest` for one that names no bucket."""
    place = uri.partition("?")[0].rstrip("/")
    scheme, bucket = scheme_of(place), place.partition("://")[2].partition("/")[0]
    if not bucket:
        raise InvalidRequest(f"the path {uri!r} names no bucket: write {scheme}://bucket/folder", option="path")
    _refuse_names(place)
    if scheme in S3 and "@" in bucket:
        raise InvalidRequest(
            f"the path {without_secrets(place)!r} holds credentials, which would end in logs and plans: take them out, "
            f"and use the environment, or {ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}",
            option="path",
        )
    if scheme in GCS:
        options.refuse(
            ("endpoint_url", "region", "allow_http", "access_key_id", "secret_access_key"),
            f"{scheme}://",
            "the environment (GOOGLE_APPLICATION_CREDENTIALS)",
        )
    if scheme in AZURE:
        options.refuse(("region",), f"{scheme}://", "endpoint_url, if the account's own will not do")
    return CloudStorage(place, CloudSettings(options, float(options.timeout_s), PREFIX, "path"))


def _refuse_names(place: str) -> None:
    """`InvalidRequest` for folders that the library has no objects in."""
    folders = place.partition("://")[2].split("/")[1:]
    for folder in folders:
        if folder in ("", ".", "..") or _CONTROL.search(folder):
            raise InvalidRequest(
                f"the path {without_secrets(place)!r} has a folder {folder!r}: name each folder between two slashes, "
                "without control characters, and neither '.' nor '..'",
                option="path",
            )


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    """Of this process, as a child that is forked has none of its parent's."""
    return ThreadPoolExecutor(_THREADS_MAX, _THREADS)


@lru_cache(maxsize=_CLIENTS_MAX)
def _client(place: str, settings: CloudSettings, retries: int, process: int) -> CloudClient:
    return CloudClient(place, settings, retries)


_copying_once: dict[CloudStorage, bool] = {}
