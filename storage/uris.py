"""From the path that a user writes to the storage that holds the table."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec

from lakelatch.errors import InvalidRequest
from lakelatch.plugins import find_component
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.memory import find_memory_storage
from lakelatch.storage.options import StorageOptions

#: Entry points by scheme: what is called with the URI, without a slash at its end, and its `StorageOptions`.
STORAGES = "lakelatch.storages"

_BY_FSSPEC = ", or what fsspec creates objects in (pip install 'lakelatch[fsspec]', and the package for that scheme)"
_HOST = re.compile(r"\s*(\[[0-9A-Fa-f:.%]+\]|[^:\[\]@]*)(:[0-9]*)?\s*")
_NAMED = re.compile(r"\?[A-Za-z_]+=[^&]*(&[A-Za-z_]+=[^&]*)*")
_SERVICE = re.compile(
    r"(https?|rediss?(\+[a-z]+)?|unix)"
)  # here a path ends at `#` and `;`; elsewhere a name may hold them
_DATABASE = re.compile("db=[0-9]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")


def open_storage(path: str, options: StorageOptions | None = None) -> Storage:
    """The storage at a path or URI; makes nothing and asks nothing of it yet.

    Nothing in a path is decoded or cut off (`%20`, `#`, `?`), as Spark does it, so that both mean the same folder. A
    path that begins with a word and a colon (`dbfs:/x`) is on that scheme, as it is for Spark, with or without `//`; a
    `~` at its beginning is refused, since only a shell makes a home of it. What other schemes there are, installed
    packages say, by entry points of the group `lakelatch.storages`; for all others fsspec is asked, if it is there.

    Errors: `InvalidRequest` for an empty path, for `~`, and for a scheme that this version has no storage for.
    """
    ensure_place(path)
    found = _SCHEME.match(path)
    if found is None:
        return _local(path)
    scheme, slashes = found.group(1).lower(), found.group(2)
    rest = path[found.end() :]
    if scheme == "file":
        return _local(_without_host(path, rest) if slashes else rest)
    if scheme == "memory":
        return find_memory_storage(rest.rstrip("/"))
    if entry_points(group=STORAGES, name=scheme):
        kind: Callable[[str, StorageOptions], Storage] = find_component(STORAGES, scheme, "storage", "path")
        return kind(path.rstrip("/"), options or StorageOptions())
    from lakelatch.storage.fsspec import open_fsspec_storage

    return open_fsspec_storage(path.rstrip("/"), options or StorageOptions())


def ensure_place(path: str) -> None:
    """Checks a path or URI as `open_storage` does, without making anything of it.

    Errors: `InvalidRequest` for an empty path, for `~`, and for a scheme that this version has no storage for.
    """
    refuse_home(path, "the path")
    if not path:
        raise InvalidRequest("the option 'path' is empty: name the table's folder, as in save('/data/flights')")
    found = _SCHEME.match(path)
    if found is None:
        return
    scheme, slashes = found.group(1).lower(), found.group(2)
    rest = path[found.end() :]
    if scheme == "file":
        if slashes:
            _without_host(path, rest)
        return
    if scheme == "memory":
        if not slashes or not rest.strip("/"):
            raise InvalidRequest(f"the path {path!r} names nothing: write memory://name")
        return
    if slashes and (entry_points(group=STORAGES, name=scheme) or _fsspec_knows(scheme)):
        return
    known = ", ".join(f"{name}://" for name in sorted({point.name for point in entry_points(group=STORAGES)}))
    raise InvalidRequest(
        f"the path {without_secrets(path)!r} is on {scheme!r}, for which there is no storage: use a local path, "
        f"file:///..., {known}" + (_BY_FSSPEC if slashes else f", and ./{path} for a folder of that name")
    )


def _fsspec_knows(scheme: str) -> bool:
    if find_spec("fsspec") is None:
        return False
    from lakelatch.storage.fsspec import knows

    return knows(scheme)


def refuse_home(path: str, what: str) -> None:
    """`InvalidRequest` for a path that begins with `~`: a folder of that name would be made, and no home be found."""
    if path.startswith("~"):
        raise InvalidRequest(
            f"{what} {path!r} begins with '~', which only a shell turns into a home folder: write "
            f"{os.path.expanduser(path)!r} (os.path.expanduser), or ./{path} for a folder of that name"
        )


def scheme_of(uri: str) -> str:
    """The scheme in lower case; "" for a plain path."""
    scheme, found, _ = uri.partition(":")
    return scheme.lower() if found and "/" not in scheme else ""


def without_secrets(uri: str) -> str:
    """A URI for messages: without the user and password that it may hold, and without its parameters.

    Of one that cannot be taken apart for certain, as with a `/` in its password, the scheme alone is left.
    """
    parts = _taken_apart(uri)
    if parts is not None:
        start, _, place, _ = parts
        return start + place
    found = _SCHEME.match(uri)
    return f"{found[0]}…" if found and uri[found.end(1) + 1 :].startswith("/") else "…"


def without_password(uri: str) -> str:
    """A URI that leads to the same place, without the password that it may hold, and of its parameters `db` alone.

    Empty for one that cannot be taken apart for certain.
    """
    parts = _taken_apart(uri)
    if parts is None:
        return ""
    start, user, place, parameters = parts
    kept = "&".join(each for each in parameters.split("&") if _DATABASE.fullmatch(each))
    return start + (f"{user}@" if user else "") + place + (f"?{kept}" if kept else "")


def _taken_apart(uri: str) -> tuple[str, str, str, str] | None:
    """The scheme with its `://`, the user, hosts and path, and the parameters; None if a secret may hide there.

    All before the last `@` of the authority is user information.
    """
    found = _SCHEME.match(uri)
    start, rest = (found[0], uri[found.end() :]) if found and found[2] else ("", uri)
    if not start:
        may_hold = "@" in uri and ":" in uri and not uri.startswith(("/", ".")) and scheme_of(uri) != "file"
        place, _, parameters = uri.partition("?")
        return None if may_hold else ("", "", place, parameters)
    scheme = start[:-3].lower()
    service = _SERVICE.fullmatch(scheme) is not None
    if service:  # etcd's endpoints may each be a whole URL
        rest = rest.replace(f",{start}", ",").replace("/,", ",")
    place = re.split("[?#;]" if service else "[?]", rest, maxsplit=1)[0]
    behind = rest[len(place) :]
    authority, slash, path = place.partition("/")
    information, _, hosts = authority.rpartition("@")
    user = information.partition(":")[0]
    if (
        not all(_HOST.fullmatch(host) for host in hosts.split(","))
        or ("@" in path and (":" in authority or (service and scheme != "unix")))
        or ("@" in behind and not _NAMED.fullmatch(behind))
    ):
        return None
    return start, "" if "@" in user else user, hosts + slash + path, behind[1:] if behind.startswith("?") else ""


def _without_host(path: str, rest: str) -> str:
    host, slash, below = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidRequest(f"the path {path!r} names the host {host!r}: write file:///folder")
    return slash + below


def _local(path: str) -> LocalStorage:
    root = os.path.abspath(path)
    # POSIX keeps two leading slashes apart from one; here they would give one table two names.
    return LocalStorage("/" + root.lstrip("/") if root.startswith("//") else root)
