"""Locks in the storage where the tables lie, by conditional puts: S3, GCS, Azure, and files of one machine."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import GCSStore, S3Store, from_url

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.blobs import BlobRecords, Blobs, CheckedBlobs, GuardedBlobs
from lakelatch.locks.contract import TABLE_KEY, Holder, LockScope
from lakelatch.locks.foreign_names import ForeignLock, ForeignNamesService
from lakelatch.locks.hudi_table_object import HudiTableObject
from lakelatch.locks.options import DEFAULT_LEASE_S, LEASE
from lakelatch.locks.record_service import RecordService
from lakelatch.locks.service import LockService
from lakelatch.locks.service_options import ServiceOptions, without_secrets
from lakelatch.locks.session_provider import SessionLockProvider
from lakelatch.storage.uris import open_storage
from lakelatch.system import System

DEFAULT_FOLDER = ".hoodie/.lakelatch/lock_records"

_VALIDITY, _RENEWAL = "validity.timeout.secs", "renew.interval.secs"
_KNOWN = frozenset(
    {"url", "endpoint_url", "region", "allow_http", "access_key_id", "secret_access_key", _VALIDITY, _RENEWAL}
)
_S3_ONLY = {
    "endpoint_url": "endpoint",
    "region": "region",
    "access_key_id": "access_key_id",
    "secret_access_key": "secret_access_key",
    "allow_http": "",
}
_HUDI = "hudi:"
_HUDI_LEASE_S, _HUDI_RENEWALS = 300, 10
_CALL_MOST_S = 5.0
_LOCAL = ("", "file", "memory")
_S3, _GCS = ("s3", "s3a"), ("gs",)
_AZURE = ("az", "adl", "azure", "abfs", "abfss")
_NO_PLACE = re.compile("NoSuchBucket|ContainerNotFound")
_REASONS = (r"<Code>(\w+)</Code>", r"status code: (\d+ [A-Za-z ]+)", "(TimedOut|timed out|ConnectionRefused|dns error)")
_SIGNS = (  # of a wrong setting, in the text of an error that has no kind of its own; what to look at, and why
    ("169.254.169.254", "access_key_id", "no credentials were found, neither in the options nor in the environment"),
    ("metadata.google.internal", "url", "no credentials were found in the environment"),
    ("builder error", "allow_http", "its endpoint has no TLS, which is refused unless allow_http is true"),
    ("configured region", "region", "the bucket is in another region"),
)


class StorageLockProvider(SessionLockProvider):
    """Leases as small objects below `.hoodie/.lakelatch/lock_records/` of the table, or at `url`.

    Nothing notifies here: who waits looks again, at most four times a second. Keys below `hoodie.write.lock.storage.`:
    `url` (`s3://`, `gs://`, `az://`, `file://`, or a path), `endpoint_url`, `region`, `allow_http`, `access_key_id` and
    `secret_access_key` for S3; what is not given is taken from the environment, as obstore does it. Hudi's
    `validity.timeout.secs` is the lease time, and `renew.interval.secs` how often it is renewed.

    The store has to keep its conditions (`If-Match`, `If-None-Match: *`), which is tried out before the first lease.
    The records of local tables are guarded by kernel locks, so that all writers have to be on one machine then.
    """

    _default_lease_s: float = DEFAULT_LEASE_S
    _renewals = 0

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        options = ServiceOptions.of("storage", scope.options, _KNOWN, self._default_lease_s)
        self._options, self._renew_s = _with_times(options, LEASE in scope.options, self._renewals)
        self._url = options.text("url")
        _check_place(options, self._url or scope.table_uri)

    @property
    def identity(self) -> Hashable:
        return self._options.identity(), self._renew_s, "" if self._url else self.scope.table_uri

    def make_service(self) -> LockService:
        return RecordService(self._records(), self.scope.system, self._options.lease_s, self._renew_s)

    def _records(self) -> BlobRecords:
        folder = "" if self._url else DEFAULT_FOLDER
        blobs = open_blobs(self._url or self.scope.table_uri, self._options, folder, self.scope.system)
        return BlobRecords(blobs, folder, self.scope.system)


class HudiStorageLockProvider(StorageLockProvider):
    """The provider of Hudi's class name: the table's key is the lock that Hudi's Java writers take.

    It is the object `.hoodie/.locks/table_lock.json` of the table, by Hudi's rules, which compare wall clocks: those of
    all writers must agree within half a second. What Java writers have no lock for lies where `StorageLockProvider` has
    it. The lease time is 300 s and renewed ten times in it, as in Hudi, unless said otherwise.

    A Java writer does not hear of `break_`: its lock is expired all the same, when its time is over.
    """

    _default_lease_s: float = _HUDI_LEASE_S
    _renewals = _HUDI_RENEWALS

    def make_service(self) -> LockService:
        options, system, lease_s = self._options, self.scope.system, self._options.lease_s

        def find(name: str) -> ForeignLock | None:
            if not name.startswith(_HUDI):
                return None
            with guard:
                if name not in places:
                    blobs = open_blobs(name[len(_HUDI) :], options, DEFAULT_FOLDER, system)
                    places[name] = HudiTableObject(blobs, lease_s, system)
                return places[name]

        guard = threading.Lock()
        places: dict[str, ForeignLock] = {}
        return ForeignNamesService(self._records(), system, lease_s, find, self._renew_s)

    def name_of(self, key: str) -> str:
        return _HUDI + self.scope.table_uri if key == TABLE_KEY else super().name_of(key)

    def key_of(self, name: str) -> str | None:
        return TABLE_KEY if name == self.name_of(TABLE_KEY) else super().key_of(name)

    def holders(self, prefix: str = "") -> list[Holder]:
        found = super().holders(prefix)
        if TABLE_KEY.startswith(prefix):
            of_table = self._session().service.holders(self.name_of(TABLE_KEY))
            found += [replace(holder, key=TABLE_KEY) for holder in of_table]
        return sorted(found, key=lambda holder: holder.key)


def open_blobs(uri: str, options: ServiceOptions, guard_folder: str, system: System) -> Blobs:
    """The objects at a URI; nothing is connected yet."""
    wait_s = min(options.lease_s / 3, _CALL_MOST_S)
    if _scheme(uri) in _LOCAL:
        return GuardedBlobs(open_storage(uri), guard_folder, wait_s, options.key("url"))
    option, identity = options.key("url"), (uri, guard_folder, options.identity())
    return CheckedBlobs(ObjectBlobs(uri, options, wait_s), guard_folder, system, option, identity)


class ObjectBlobs(Blobs):
    """An object store, by obstore; each request is sent once, and ends in `call_s`."""

    def __init__(self, uri: str, options: ServiceOptions, call_s: float) -> None:
        self._s3 = _scheme(uri) in _S3
        self.where = without_secrets(uri) if self._s3 else uri.partition("?")[0]  # the user of abfss:// is a container
        self._uri = uri
        self._options = options
        self._call_s = call_s
        self._guard = threading.Lock()
        self._opened: Any = None

    def get(self, path: str) -> tuple[bytes, str] | None:
        store = self._store()
        with self._errors(path):
            try:
                found = obstore.get(store, path)
                return bytes(found.bytes()), _version(found.meta)
            except (NotFoundError, FileNotFoundError) as error:
                if _NO_PLACE.search(str(error)):
                    raise
                return None

    def put(self, path: str, data: bytes, expected: str | None) -> str | None:
        return self._put(self._store(), path, data, expected)

    def delete(self, path: str) -> None:
        store = self._store()
        with self._errors(path), suppress(FileNotFoundError):
            obstore.delete(store, path)

    def paths(self, folder: str) -> list[str]:
        store = self._store()
        with self._errors(folder):
            return [str(found["path"]) for some in obstore.list(store, folder) for found in some]

    def close(self) -> None:
        self._opened = None

    def _put(self, store: Any, path: str, data: bytes, expected: str | None) -> str | None:
        mode: Any = "create"
        if expected is not None:
            tag, _, version = expected.partition(" ")
            mode = {"e_tag": tag, **({"version": version} if version else {})}
        with self._errors(path):
            try:
                return _version(obstore.put(store, path, data, mode=mode))
            except (AlreadyExistsError, PreconditionError):
                return None
            except (NotFoundError, FileNotFoundError) as error:
                if expected is None or _NO_PLACE.search(str(error)):
                    raise
                return None
            except BaseError as error:
                if "409 Conflict" in str(error):  # two at once, and the store does not say whether one of them won
                    return None
                raise

    def _store(self) -> Any:
        _check_process()
        with self._guard:
            if self._opened is None:
                with self._errors(""):
                    self._opened = _open_store(self._uri, self._options, self._call_s)
            return self._opened

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        option = self._options.key("url")
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            if "RequestTimeTooSkewed" in str(error):
                raise Unavailable(f"{self.where} refuses requests of this machine: its clock is wrong") from None
            raise InvalidRequest(
                f"{self.where} refuses these credentials, or their rights ({_reason(error)}): they need to read, "
                f"write, list and delete there; see {self._options.key('access_key_id')}, and the environment",
                option=self._options.key("access_key_id"),
            ) from None
        except (BaseError, OSError, ValueError) as error:
            text = str(error)
            if _NO_PLACE.search(text) or isinstance(error, (NotFoundError, FileNotFoundError)):
                raise InvalidRequest(
                    f"there is no bucket at {self.where} ({_reason(error)}): make it, or set {option} to another place",
                    option=option,
                ) from None
            for sign, name, what in _SIGNS:
                if sign in text:
                    key = self._options.key(name if self._s3 else "url")
                    raise InvalidRequest(f"{self.where} cannot be used: {what}; see {key}", option=key) from None
            raise Unavailable(
                f"{self.where} could not be used ({_reason(error)}); are {option} and the endpoint right, and the "
                "store up?",
                option=option,
                path=path,
            ) from None


def _scheme(uri: str) -> str:
    scheme, found, _ = uri.partition(":")
    return scheme.lower() if found and "/" not in scheme else ""


def _check_place(options: ServiceOptions, uri: str) -> None:
    """What can be said of the settings before anything is connected."""
    scheme = _scheme(uri)
    if scheme not in (*_LOCAL, *_S3, *_GCS, *_AZURE):
        raise InvalidRequest(
            f"the lock provider 'storage' knows no {scheme}://, where {without_secrets(uri)} lies: set "
            f"{options.key('url')} to a place at s3://, gs://, az:// or file://",
            option=options.key("url"),
        )
    given = [name for name in _S3_ONLY if options.text(name)]
    if given and scheme not in _S3:
        raise InvalidRequest(
            f"{options.key(given[0])} is for s3:// only, and {without_secrets(uri)} is not: remove it, and use the "
            "environment",
            option=options.key(given[0]),
        )
    if not options.flag("allow_http") and options.text("endpoint_url").lower().startswith("http:"):
        raise InvalidRequest(
            f"{options.key('endpoint_url')} has no TLS: use https://, or set {options.key('allow_http')}=true",
            option=options.key("allow_http"),
        )


def _with_times(options: ServiceOptions, lease_given: bool, renewals: int) -> tuple[ServiceOptions, float | None]:
    """The options with the lease time that they mean, and the time between two renewals if it is not the usual one."""
    if options.text(_VALIDITY) and not lease_given:
        options = replace(options, lease_s=float(options.number(_VALIDITY, 0, 10, 3600)))
    if options.text(_RENEWAL):
        renew_s = float(options.number(_RENEWAL, 0, 1, 1200))
        if renew_s > options.lease_s / 3:
            raise InvalidRequest(
                f"{options.key(_RENEWAL)}={renew_s:g} is more than a third of the lease time, {options.lease_s:g} s: "
                f"lower it, or raise {options.key(_VALIDITY)}",
                option=options.key(_RENEWAL),
            )
        return options, renew_s
    return options, options.lease_s / renewals if renewals else None


def _open_store(uri: str, options: ServiceOptions, call_s: float) -> Any:
    """The client, which never repeats a request by itself, as a conditional put must not be."""
    duration = f"{int(call_s * 1000)}ms"
    http = options.flag("allow_http") or os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
    client: Any = {"timeout": duration, "connect_timeout": duration, **({"allow_http": True} if http else {})}
    once: Any = {"max_retries": 0}
    scheme, rest = _scheme(uri), uri.partition("://")[2]
    bucket, _, prefix = rest.partition("/")
    if scheme in _GCS:
        return GCSStore(bucket, prefix=prefix or None, client_options=client, retry_config=once)
    if scheme in _AZURE:
        return from_url(uri, client_options=client, retry_config=once)
    config: Any = {}
    for name, setting in _S3_ONLY.items():
        if setting and options.text(name):
            config[setting] = options.secret(name) if "access_key" in name else options.text(name)
    return S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=once)


def _version(found: Any) -> str:
    """Entity tag and version, as the store gives them; a store that gives neither cannot be used."""
    tag, version = found.get("e_tag"), found.get("version")
    if tag is None and version is None:
        raise InvalidRequest("this object store gives objects no versions, so that nothing can be put conditionally")
    return f"{tag or ''} {version}" if version else str(tag)


def _reason(error: Exception) -> str:
    """What is told of an error; its text may hold more than anybody wants to see."""
    found = (re.search(pattern, str(error)) for pattern in _REASONS)
    return next((match[1] for match in found if match), type(error).__name__)


_used_by: int | None = None


def _check_process() -> None:
    """A forked child would wait for ever, since the threads of the object store's client stayed with its parent."""
    global _used_by
    if _used_by is None:
        _used_by = os.getpid()
    elif _used_by != os.getpid():
        raise InvalidRequest(
            "this process was forked from one that had used an object store, and its client does not survive that: "
            "start such processes with multiprocessing's 'spawn' or 'forkserver'"
        )
