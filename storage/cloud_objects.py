"""Objects at S3, GCS and Azure, by obstore."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from lakelatch.storage.contract import NotFound, PutUnknown
from lakelatch.storage.object_store import PutCollided, ReplacingObjectStore, VersionedObject
from lakelatch.storage.uris import scheme_of, without_secrets

S3, GCS = ("s3", "s3a"), ("gs",)
AZURE = ("az", "adl", "azure", "abfs", "abfss")
_NO_PLACE = re.compile("NoSuchBucket|ContainerNotFound")
_REASONS = (r"<Code>(\w+)</Code>", r"status code: (\d+ [A-Za-z ]+)", "(TimedOut|timed out|ConnectionRefused|dns error)")
_SIGNS = (  # of a wrong setting, in the text of an error that has no kind of its own; what to look at, and why
    ("169.254.169.254", "access_key_id", "no credentials were found, neither in the options nor in the environment"),
    ("metadata.google.internal", "url", "no credentials were found in the environment"),
    ("builder error", "allow_http", "its endpoint has no TLS, which is refused unless allow_http is true"),
    ("configured region", "region", "the bucket is in another region"),
)


@dataclass(frozen=True)
class CloudSettings:
    """How a store is reached; what is empty is taken from the environment, as obstore does it.

    All but `call_s`, the time in which a request ends, are for S3 only. `option_prefix` is what the settings' options
    begin with, for messages: behind it come `url`, and the names of these fields.
    """

    call_s: float
    option_prefix: str
    endpoint_url: str = ""
    region: str = ""
    allow_http: bool = False
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)

    def option(self, name: str) -> str:
        """The whole option key, for messages."""
        return self.option_prefix + name


class CloudObjectStore(ReplacingObjectStore):
    """The objects below a URI (`s3://bucket/prefix`); nothing is connected before the first call."""

    def __init__(self, uri: str, settings: CloudSettings) -> None:
        self._s3 = scheme_of(uri) in S3
        self.where = without_secrets(uri) if self._s3 else uri.partition("?")[0]  # the user of abfss:// is a container
        self._uri = uri
        self._settings = settings
        self._guard = threading.Lock()
        self._opened: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy that was pickled connects anew."""
        return type(self), (self._uri, self._settings)

    def get(self, path: str) -> VersionedObject:
        store = self._store()
        with self._errors(path):
            try:
                found = obstore.get(store, path)
                return VersionedObject(bytes(found.bytes()), _version(found.meta))
            except (NotFoundError, FileNotFoundError) as error:
                if _NO_PLACE.search(str(error)):
                    raise
                raise NotFound(f"there is no object {path!r} in {self.where}", path=path) from None

    def put_if_absent(self, path: str, data: bytes) -> str | None:
        return self._put(path, data, "create")

    def replace(self, path: str, data: bytes, version: str) -> str | None:
        tag, _, number = version.partition(" ")
        try:
            return self._put(path, data, {"e_tag": tag, **({"version": number} if number else {})})
        except NotFound:
            return None

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

    def _put(self, path: str, data: bytes, mode: Any) -> str | None:
        store = self._store()
        with self._errors(path, unanswered=PutUnknown):
            try:
                return _version(obstore.put(store, path, data, mode=mode))
            except (AlreadyExistsError, PreconditionError):
                return None
            except (NotFoundError, FileNotFoundError) as error:
                if mode == "create" or _NO_PLACE.search(str(error)):
                    raise
                raise NotFound(f"there is no object {path!r} in {self.where}", path=path) from None
            except BaseError as error:
                if "409 Conflict" in str(error):
                    raise PutCollided(f"another put of {path!r} met this one in {self.where}", path=path) from None
                raise

    def _store(self) -> Any:
        _check_process()
        with self._guard:
            if self._opened is None:
                with self._errors(""):
                    self._opened = _open_store(self._uri, self._settings)
            return self._opened

    @contextmanager
    def _errors(self, path: str, unanswered: type[Unavailable] = Unavailable) -> Iterator[None]:
        """Turns the client's errors into ours; `unanswered` is for those that do not say what the store did."""
        option = self._settings.option
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            if "RequestTimeTooSkewed" in str(error):
                raise Unavailable(f"{self.where} refuses requests of this machine: its clock is wrong") from None
            raise InvalidRequest(
                f"{self.where} refuses these credentials, or their rights ({_reason(error)}): they need to read, "
                f"write, list and delete there; see {option('access_key_id')}, and the environment",
                option=option("access_key_id"),
            ) from None
        except (BaseError, OSError, ValueError) as error:
            text = str(error)
            if _NO_PLACE.search(text) or isinstance(error, (NotFoundError, FileNotFoundError)):
                raise InvalidRequest(
                    f"there is no bucket at {self.where} ({_reason(error)}): make it, or set {option('url')} to "
                    "another place",
                    option=option("url"),
                ) from None
            for sign, name, what in _SIGNS:
                if sign in text:
                    key = option(name if self._s3 else "url")
                    raise InvalidRequest(f"{self.where} cannot be used: {what}; see {key}", option=key) from None
            raise unanswered(
                f"{self.where} could not be used ({_reason(error)}); are {option('url')} and the endpoint right, and "
                "the store up?",
                option=option("url"),
                path=path,
            ) from None


def _open_store(uri: str, settings: CloudSettings) -> Any:
    """The client, which never repeats a request by itself, as a conditional put must not be."""
    duration = f"{int(settings.call_s * 1000)}ms"
    http = settings.allow_http or os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
    client: Any = {"timeout": duration, "connect_timeout": duration, **({"allow_http": True} if http else {})}
    once: Any = {"max_retries": 0}
    scheme, rest = scheme_of(uri), uri.partition("://")[2]
    bucket, _, prefix = rest.partition("/")
    if scheme in GCS:
        return GCSStore(bucket, prefix=prefix or None, client_options=client, retry_config=once)
    if scheme in AZURE:
        return from_url(uri, client_options=client, retry_config=once)
    given = {
        "endpoint": settings.endpoint_url,
        "region": settings.region,
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
    }
    config: Any = {name: value for name, value in given.items() if value}
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
