"""Clients of redis-py: opened by the options, for one server, Sentinel or a cluster, with errors of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthorizationError, NoPermissionError, NoScriptError
from redis.retry import Retry

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.session.options import BackendOptions, without_secrets

_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_CONNECT_MOST_S = 5.0
_CONNECTIONS_MOST = 512  # one for each thread that waits at the same time, and a few


class RedisClient:
    """Runs scripts, and waits for a list; its pool has a connection for each thread that waits.

    Errors: `InvalidRequest` for refused credentials and missing rights, `Unavailable` for everything else.
    """

    def __init__(self, options: BackendOptions) -> None:
        self.where = f"Redis at {without_secrets(options.text('url'))}"
        self._option = options.key("url")
        self._prefix = f"{{{options.text('prefix', 'lakelatch')}}}:"
        self._client = _open(options)
        self._scripts: dict[str, Any] = {}

    def run(self, script: str, *arguments: str | int) -> Any:
        """The answer of a script of ours."""
        with self._errors():
            known = self._scripts.get(script) or self._scripts.setdefault(script, self._client.register_script(script))
            try:
                return self._client.evalsha(known.sha, 1, self._prefix, *arguments)
            except NoScriptError:  # a server that was restarted, or another one
                return known(keys=[self._prefix], args=list(arguments))

    def pop(self, key: str, timeout_s: float) -> bytes | None:
        """The first element of a list, as soon as there is one; None after the time."""
        with self._errors():
            found: Any = self._client.blpop([self._prefix + key], timeout=max(timeout_s, 0.001))
        return None if found is None else bytes(found[1])

    def close(self) -> None:
        """Closes all connections."""
        self._client.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (redis.AuthenticationError, NoPermissionError, AuthorizationError) as error:
            raise InvalidRequest(
                f"{self.where} refuses these credentials or this user's rights ({_first_words(error)}): look at "
                f"{self._option}, and at the username and password beside it",
                option=self._option,
            ) from None
        except redis.RedisError as error:
            raise Unavailable(
                f"{self.where} could not be used ({type(error).__name__}: {_first_words(error)}); is {self._option} "
                "right, and the server up?",
                option=self._option,
            ) from None


def _first_words(error: Exception) -> str:
    """Without what redis-py appends about its connection pools."""
    return str(error).partition("\n")[0].partition(" : <")[0][:200]


def _open(options: BackendOptions) -> Any:
    """The client; nothing is connected yet. It never repeats a call by itself, because `take` has to know."""
    url = options.text("url")
    timeout_s = min(options.lease_s / 3, _CONNECT_MOST_S)
    settings: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        "max_connections": _CONNECTIONS_MOST,
    }
    for name in ("username", "password"):
        if options.text(name):
            settings[name] = options.secret(name)
    settings.update({name: options.text(name) for name in _TLS if options.text(name)})
    scheme = urlsplit(url).scheme
    open_client: Callable[[BackendOptions, str, dict[str, Any]], Any] = _open_single
    if scheme.endswith("+sentinel"):
        open_client = _open_sentinel
    elif scheme.endswith("+cluster"):
        open_client = _open_cluster
    try:
        return open_client(options, url, settings)
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            f"{options.key('url')}={without_secrets(url)!r} cannot be used: {_first_words(error)}",
            option=options.key("url"),
        ) from None


def _open_single(options: BackendOptions, url: str, settings: dict[str, Any]) -> Any:
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **settings)


def _addresses(url: str, port: int) -> list[tuple[str, int]]:
    places = urlsplit(url).netloc.rpartition("@")[2].split(",")
    found = [urlsplit("//" + place) for place in places]
    return [(place.hostname or "localhost", place.port or port) for place in found]


def _credentials(url: str, settings: dict[str, Any]) -> dict[str, Any]:
    user = urlsplit(url).netloc.rpartition("@")[0]
    name, _, password = user.partition(":")
    found = {"username": name, "password": password}
    return {key: value for key, value in found.items() if value and key not in settings}


def _open_sentinel(options: BackendOptions, url: str, settings: dict[str, Any]) -> Any:
    parts = [part for part in urlsplit(url).path.split("/") if part]
    if not parts or len(parts) > 2:
        raise ValueError("name the master, as in redis+sentinel://host:26379/mymaster/0")
    tls = {"ssl": True} if url.startswith("rediss") else {}
    watching = {key: value for key, value in settings.items() if key not in ("username", "password")}
    for name in ("username", "password"):
        if options.text(f"sentinel_{name}"):
            watching[name] = options.secret(f"sentinel_{name}")
    sentinel: Any = cast(Any, redis).Sentinel(_addresses(url, 26379), sentinel_kwargs={**watching, **tls})
    database = int(parts[1]) if len(parts) == 2 else 0
    settings = {**settings, **_credentials(url, settings), **tls, "db": database, "retry": Retry(NoBackoff(), 0)}
    return sentinel.master_for(parts[0], **settings)


def _open_cluster(options: BackendOptions, url: str, settings: dict[str, Any]) -> Any:
    nodes = [cast(Any, redis).cluster.ClusterNode(host, port) for host, port in _addresses(url, 6379)]
    tls = {"ssl": True} if url.startswith("rediss") else {}
    settings = {**settings, **_credentials(url, settings), **tls}
    return redis.RedisCluster(startup_nodes=nodes, **settings)  # follows moved slots, so it needs its retries
