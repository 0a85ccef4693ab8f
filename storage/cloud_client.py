"""The clients of S3, GCS and Azure, by obstore: how they are opened, and what their errors mean."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO, TypeVar

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
from lakelatch.retry import Backoff, tries
from lakelatch.storage.contract import NotFound, PutUnknown
from lakelatch.storage.object_store import PutCollided
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import scheme_of, without_secrets
from lakelatch.system import REAL_SYSTEM

T = TypeVar("T")

S3, GCS = ("s3", "s3a"), ("gs",)
AZURE = ("az", "adl", "azure", "abfs", "abfss")
_NO_PLACE = re.compile("NoSuchBucket|ContainerNotFound")
_REFUSALS = (PermissionDeniedError, UnauthenticatedError, PermissionError)
_REFUSED = re.compile(r"(?:<Code>|\(code: )(SignatureDoesNotMatch|InvalidAccessKeyId|AccessDenied|ExpiredToken)\b")
_STATUS = re.compile(r"status code: (\d{3})\b")
_CONFLICT, _NO_RANGE, _TOO_MANY, _NOT_IMPLEMENTED, _UNAVAILABLE = 409, 416, 429, 501, 503
_IS_THERE = "<Code>BlobAlreadyExists</Code>"  # Azure's word for an object that is there, which is a 409 as well
_BEYOND_END = re.compile(r'"bytes \d+--1/0"|Wanted range starting at \d+, but object was only')  # after an odd 206
_BUSY = Backoff(first_s=0.1, longest_s=5.0)
_ENDPOINT = re.compile(r"https?://[^/\s]+(/\S*)?")
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_PART_BYTES, _PARTS_AT_ONCE = 16 * 1024 * 1024, 4  # what is in memory of a file that is put in parts
_REASONS = (
    r"(?:<Code>|\(code: )(\w+)",
    r"status code: (\d+ [A-Za-z ]+)",
    "(TimedOut|timed out|ConnectionRefused|dns error)",
)
_SIGNS = (  # of a wrong setting, in the text of an error that has no kind of its own; what to look at, and why
    ("169.254.169.254", "access_key_id", "no credentials were found, neither in the options nor in the environment"),
    ("metadata.google.internal", "url", "no credentials were found in the environment"),
    ("InvalidCertificate", "ca_file", "its certificate is signed by no authority that is trusted here"),
    ("Invalid Access Key", "secret_access_key", "the account's key is not the base64 that Azure gives"),
    ("builder error", "allow_http", "its endpoint has no TLS, which is refused unless allow_http is true"),
    ("configured region", "region", "the bucket is in another region"),
    ("AuthorizationHeaderMalformed", "region", "the bucket is in another region"),
)


@dataclass(frozen=True)
class CloudSettings:
    """How a store is reached; an option that is empty is taken from the environment, as obstore does it.

    `call_s` is the time in which a request ends. For messages, the names of the options have `option_prefix` before
    them, and the place is that of the option `url`, unless it is of `place_option`.
    """

    options: StorageOptions
    call_s: float
    option_prefix: str
    place_option: str = "url"

    def option(self, name: str) -> str:
        """The whole option key, for messages."""
        return self.place_option if name == "url" and self.place_option != "url" else self.option_prefix + name


class CloudClient:
    """The client of one store, for the objects below a URI (`s3://bucket/prefix`); it connects on first use.

    A pickled one connects anew. `retries`: how often the library sends a request again that got no answer, which a
    conditional put must never be.
    """

    def __init__(self, uri: str, settings: CloudSettings, retries: int = 0) -> None:
        self._s3 = scheme_of(uri) in S3
        self.where = without_secrets(uri) if self._s3 else uri.partition("?")[0]  # the user of abfss:// is a container
        self._uri = uri
        self._settings = settings
        self._retries = retries
        self._guard = threading.Lock()
        self._opened: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._uri, self._settings, self._retries)

    def store(self) -> Any:
        """The library's own object. Errors: `InvalidRequest` for settings that are wrong, and in a forked process."""
        _check_process()
        with self._guard:
            if self._opened is None:
                with self.errors(""):
                    self._opened = _open_store(self._uri, self._settings, self._retries)
            return self._opened

    def close(self) -> None:
        """Gives up connections."""
        self._opened = None

    @contextmanager
    def asking(self, path: str) -> Iterator[Any]:
        """The library's own object for a request, whose errors become ours. Errors: those of `store` as well."""
        store = self.store()
        with self.errors(path):
            yield store

    @contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        """As `asking`, for a request that needs an object to be there: it is `NotFound` if only the bucket is."""
        with self.asking(path) as store:
            try:
                yield store
            except (NotFoundError, FileNotFoundError) as error:
                if self.means_no_place(error):
                    raise
                raise NotFound(f"there is no object {path!r} in {self.where}", path=path) from None

    @property
    def copies_once(self) -> bool:
        """Whether objects are copied on a condition, and appear whole: an Azure copy may be seen while it is made."""
        return self._s3

    @property
    def reads_ends(self) -> bool:
        """Whether the store can be asked for the last bytes of an object whose size is not known; Azure cannot."""
        return scheme_of(self._uri) not in AZURE

    def end_range(self, size_bytes: int) -> Any:
        """The range of a request for the last bytes; of one for the first ones where the store knows no end."""
        return {"suffix": size_bytes} if self.reads_ends else (0, size_bytes)

    def means_no_range(self, error: Exception) -> bool:
        """Whether the object is there and ends before the bytes that were asked for."""
        return _status(error) == _NO_RANGE or _BEYOND_END.search(str(error)) is not None

    def means_no_place(self, error: Exception) -> bool:
        """Whether what is not there is the bucket, and not the object."""
        return _NO_PLACE.search(str(error)) is not None

    def put(self, path: str, data: bytes, mode: Any) -> Any | None:
        """A conditional put; returns the library's description of the object, or None if the condition did not hold.

        It is sent again only if a busy store has turned it away, and then for as long as a request may take. Errors:
        `PutCollided` if two puts met (409, which the library takes for an object that is there), of which perhaps
        neither has done anything; `PutUnknown` for any other answer that does not say what was done.
        """
        return self._on_condition(
            path, mode, lambda store: obstore.put(store, path, data, mode=mode, use_multipart=False)
        )

    def upload(self, path: str, file: BinaryIO) -> None:
        """Puts a file in parts, without a condition, so only where no other client puts anything."""
        file.seek(0)
        with self.asking(path) as store:
            obstore.put(store, path, file, use_multipart=True, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

    def copy(self, source: str, path: str) -> bool:
        """A conditional copy inside the store: whether it was made, or there was an object. Errors: those of `put`."""

        def send(store: Any) -> bool:
            try:
                obstore.copy(store, source, path, overwrite=False)
            except (NotFoundError, FileNotFoundError) as error:
                if self.means_no_place(error):
                    raise
                raise Unavailable(
                    f"{source!r} is gone, of which {path!r} was to be made: try again", path=path
                ) from None
            return True

        return self._on_condition(path, "create", send) is not None

    def _on_condition(self, path: str, mode: Any, send: Callable[[Any], T]) -> T | None:
        """See `put`."""
        store = self.store()
        for _ in tries(REAL_SYSTEM, _BUSY, limit_s=self._settings.call_s):
            with self.errors(path, unanswered=PutUnknown):
                try:
                    return send(store)
                except (AlreadyExistsError, PreconditionError) as error:
                    if _status(error) != _CONFLICT or _IS_THERE in str(error):
                        return None
                    raise PutCollided(f"another put of {path!r} met this one in {self.where}", path=path) from None
                except (NotFoundError, FileNotFoundError) as error:
                    if mode == "create" or self.means_no_place(error):
                        raise
                    return None
                except BaseError as error:
                    if _status(error) == _NOT_IMPLEMENTED:
                        raise InvalidRequest(
                            f"{self.where} does not know conditional puts (If-None-Match: *), so that two writers "
                            f"could both win: set {self._settings.option('url')} to a place where they are kept",
                            option=self._settings.option("url"),
                        ) from None
                    if not _is_turned_away(error):
                        raise
        raise Unavailable(f"{self.where} is too busy to take {path!r}: try again later", path=path)

    @contextmanager
    def errors(self, path: str, unanswered: type[Unavailable] = Unavailable) -> Iterator[None]:
        """Turns the client's errors into ours; `unanswered` is for those that do not say what the store did."""
        option = self._settings.option
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            text = str(error)
            if "RequestTimeTooSkewed" in text:
                raise Unavailable(
                    f"{self.where} refuses requests of this machine, since its clock is wrong: set it right"
                ) from None
            if isinstance(error, _REFUSALS) or _REFUSED.search(text):
                raise InvalidRequest(
                    f"{self.where} refuses these credentials, or their rights ({_reason(error)}): they need to read, "
                    f"write, list and delete there, and this machine's clock must be right; see "
                    f"{option('access_key_id')}, and the environment",
                    option=option("access_key_id"),
                ) from None
            if _NO_PLACE.search(text) or isinstance(error, (NotFoundError, FileNotFoundError)):
                raise InvalidRequest(
                    f"there is no bucket at {self.where} ({_reason(error)}): make it, or set {option('url')} to "
                    "another place, or the endpoint to another store",
                    option=option("url"),
                ) from None
            for sign, name, what in _SIGNS:
                if sign in text:
                    key = option("url" if scheme_of(self._uri) in GCS else name)
                    raise InvalidRequest(f"{self.where} cannot be used: {what}; see {key}", option=key) from None
            raise unanswered(
                f"{self.where} could not be used ({_reason(error)}); are {option('url')} and the endpoint right, and "
                "the store up?",
                option=option("url"),
                path=path,
            ) from None


def _open_store(uri: str, settings: CloudSettings, retries: int) -> Any:
    duration = f"{int(settings.call_s * 1000)}ms"
    http = settings.options.allow_http or os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
    client: Any = {"timeout": duration, "connect_timeout": duration, **({"allow_http": True} if http else {})}
    if settings.options.ca_file:
        client["root_certificate"] = _certificates(settings)
    if settings.options.proxy_url:
        client["proxy_url"] = _checked_url(settings.option("proxy_url"), settings.options.proxy_url, "proxy")
    again: Any = {"max_retries": retries, "retry_timeout": timedelta(seconds=settings.call_s)}
    scheme, rest = scheme_of(uri), uri.partition("://")[2]
    bucket, _, prefix = rest.partition("/")
    if scheme in GCS:
        return GCSStore(bucket, prefix=prefix or None, client_options=client, retry_config=again)
    _check_endpoint(settings)
    azure = scheme in AZURE
    given = {
        "endpoint": settings.options.endpoint_url,
        "region": settings.options.region,
        "account_name" if azure else "access_key_id": settings.options.access_key_id,
        "account_key" if azure else "secret_access_key": settings.options.secret_access_key,
    }
    config: Any = {name: value for name, value in given.items() if value}
    if azure:
        return from_url(uri, config=config, client_options=client, retry_config=again)
    config["copy_if_not_exists"] = "multipart"  # of one part, and completed with If-None-Match: *
    return S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=again)


def _check_endpoint(settings: CloudSettings) -> None:
    """The library panics at one that is no URL."""
    given = {settings.option("endpoint_url"): settings.options.endpoint_url}
    for name, url in (
        given if settings.options.endpoint_url else {name: os.environ.get(name, "") for name in _ENDPOINTS}
    ).items():
        if url:
            _checked_url(name, url, "endpoint")


def _checked_url(name: str, url: str, what: str) -> str:
    if not _ENDPOINT.fullmatch(url):
        raise InvalidRequest(f"{name}={url.rpartition('@')[2]!r} is no {what}: write https://host:port", option=name)
    return url


def _certificates(settings: CloudSettings) -> bytes:
    key = settings.option("ca_file")
    try:
        with open(settings.options.ca_file, "rb") as file:
            found = file.read()
    except OSError as error:
        raise InvalidRequest(
            f"{key}={settings.options.ca_file!r} cannot be read ({error.strerror}): name a file of certificates in PEM "
            "that each executor has",
            option=key,
        ) from None
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise InvalidRequest(
            f"{key}={settings.options.ca_file!r} holds no certificate in PEM: name a file that does", option=key
        )
    return found


def _is_turned_away(error: Exception) -> bool:
    """Whether a busy store has done nothing at all; a mere 503 does not say that."""
    return _status(error) == _TOO_MANY or (_status(error) == _UNAVAILABLE and "<Code>SlowDown</Code>" in str(error))


def _status(error: Exception) -> int:
    """The status of the store's answer; 0 for no answer."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def _reason(error: Exception) -> str:
    """A short text of an error, whose own text may be very long."""
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
