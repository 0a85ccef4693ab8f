"""Clients of redis-py: opened by the options, for one server, Sentinel or a cluster, with errors of ours."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha1
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, parse_url
from redis.exceptions import AuthorizationError, NoPermissionError, NoScriptError, RedisClusterException
from redis.retry import Retry

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.session.options import BackendOptions, without_secrets

_ERRORS = (redis.RedisError, RedisClusterException)
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_CONNECT_MOST_S = 5.0
_CONNECTIONS_MOST = 512  # one for each thread that waits at the same time, and a few


class RedisClient:
    """Runs scripts, and waits for a list; it has a connection for each thread that is at either at the same time.

    Connections come from redis-py's pool, and are kept here between two calls: what redis-py does around a command, for
    retries and metrics that are not wanted, takes longer than the server does. A cluster's client has no such pool.

    Errors: `InvalidRequest` for refused credentials and missing rights, `Unavailable` for everything else.
    """

    def __init__(self, options: BackendOptions) -> None:
        self.where = f"Redis at {without_secrets(options.text('url'))}"
        self._option = options.key("url")
        self._prefix = f"{{{options.text('prefix', 'lakelatch')}}}:"
        self._client = _open(options)
        self._pool: Any = getattr(self._client, "connection_pool", None)
        self._kept: deque[Any] = deque()
        self._process = os.getpid()

    def run(self, script: str, *arguments: str | int) -> Any:
        """The answer of a script of ours."""
        try:
            return self._answer("EVALSHA", _name_of(script), 1, self._prefix, *arguments)
        except NoScriptError:  # a server that was restarted, or another one
            return self._told_answer("EVAL", script, 1, self._prefix, *arguments)
        except _ERRORS as error:
            raise _told(error, self.where, self._option) from None

    def pop(self, key: str, timeout_s: float) -> bytes | None:
        """The first element of a list, as soon as there is one; None after the time."""
        found = self._told_answer("BLPOP", self._prefix + key, max(timeout_s, 0.001))
        return None if found is None else bytes(found[1])

    def close(self) -> None:
        """Closes all connections."""
        self._client.close()

    def _told_answer(self, *command: str | int | float) -> Any:
        try:
            return self._answer(*command)
        except _ERRORS as error:
            raise _told(error, self.where, self._option) from None

    def _answer(self, *command: str | int | float) -> Any:
        if self._pool is None:
            return self._client.execute_command(*command)
        connection = self._connection()
        try:
            connection.send_packed_command(connection.pack_command(*command))
            answer = connection.read_response()  # an error that leaves the connection unclear closes it
        except redis.ResponseError:
            self._kept.append(connection)
            raise
        except BaseException:  # also one of a signal's handler, before the answer was read
            self._give_back(connection)
            raise
        self._kept.append(connection)
        return answer

    def _connection(self) -> Any:
        """One that was kept and is still open, or one of the pool, which opens it."""
        if self._process != os.getpid():  # a fork: the connections are its parent's, who reads their answers
            self._process, self._kept = os.getpid(), deque()
        try:
            connection = self._kept.pop()
        except IndexError:
            return self._pool.get_connection()
        try:
            if not connection.can_read():  # else the server has closed it, or said what nobody asked
                return connection
        except (redis.RedisError, OSError):
            pass
        self._give_back(connection)
        return self._pool.get_connection()

    def _give_back(self, connection: Any) -> None:
        """Closes a connection that may have an answer which nobody has read, and gives it back to the pool.

        The others, too: where one has failed the pool decides about them, as after a failover.
        """
        connection.disconnect()
        self._pool.release(connection)
        while self._kept:
            with suppress(IndexError):  # other threads take some
                self._pool.release(self._kept.pop())


@cache
def _name_of(script: str) -> str:
    """What a server knows a script by that it has run."""
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


def _told(error: Exception, where: str, option: str) -> Exception:
    """The error to raise for one of redis-py's."""
    # a cluster's client hides what stopped it behind an exception of its own
    cause = error.__cause__ if isinstance(error, RedisClusterException) and error.__cause__ else error
    if isinstance(cause, (ValueError, TypeError)):
        return cause
    if isinstance(cause, (redis.AuthenticationError, NoPermissionError, AuthorizationError)):
        return InvalidRequest(
            f"{where} refuses these credentials or this user's rights ({_first_words(cause)}): look at "
            f"{option}, and at the username and password beside it",
            option=option,
        )
    return Unavailable(
        f"{where} could not be used ({type(error).__name__}: {_first_words(error)}); is {option} "
        "right, and the server up?",
        option=option,
    )


def _first_words(error: Exception) -> str:
    """Without what redis-py appends about its connection pools."""
    return str(error).partition("\n")[0].partition(" : <")[0][:200]


def _open(options: BackendOptions) -> Any:
    """The client; nothing is connected yet, but a cluster. It never repeats a call by itself: `take` has to know."""
    url = options.text("url")
    scheme = urlsplit(url).scheme
    timeout_s = min(options.lease_s / 3, _CONNECT_MOST_S)
    settings: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "max_connections": _CONNECTIONS_MOST,
    }
    if scheme != "unix":
        settings["socket_keepalive"] = True
    for name in ("username", "password"):
        if options.text(name):
            settings[name] = options.secret(name)
    settings.update(_tls_files(options, scheme))
    open_client: Callable[[BackendOptions, str, dict[str, Any]], Any] = _open_single
    if scheme.endswith("+sentinel"):
        open_client = _open_sentinel
    elif scheme.endswith("+cluster"):
        open_client = _open_cluster
    try:
        client = open_client(options, url, settings)
        pool = getattr(client, "connection_pool", None)
        if pool is not None:  # wrong settings raise now, and not at the first connection
            _try_settings(pool.connection_class, pool.connection_kwargs)
        return client
    except (*_ERRORS, ValueError, TypeError) as error:
        told = _told(error, f"Redis at {without_secrets(url)}", options.key("url"))
        if isinstance(told, (ValueError, TypeError)):
            told = options.refusal("url", f"={without_secrets(url)!r} cannot be used: {_first_words(told)}")
        raise told from None


def _try_settings(kind: Callable[..., Any], settings: dict[str, Any]) -> None:
    try:
        kind(**settings)
    except redis.RedisError:  # which quotes the value
        raise ValueError("a value behind its ? cannot be") from None


def _tls_files(options: BackendOptions, scheme: str) -> dict[str, str]:
    found = {name: options.text(name) for name in _TLS if options.text(name)}
    if found and not scheme.startswith("rediss"):
        key = options.key(next(iter(found)))
        raise InvalidRequest(
            f"{key} is for TLS, and {options.key('url')} is {scheme}://: write {_with_tls(scheme)}://, or remove it",
            option=key,
        )
    return found


def _with_tls(scheme: str) -> str:
    return scheme.replace("redis", "rediss") if scheme.startswith("redis") else "rediss"


def _open_single(options: BackendOptions, url: str, settings: dict[str, Any]) -> Any:
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **settings)


def _addresses(url: str, port: int) -> list[tuple[str, int]]:
    places = urlsplit(url).netloc.rpartition("@")[2].split(",")
    found = [urlsplit("//" + place) for place in places]
    return [(place.hostname or "localhost", place.port or port) for place in found]


def connection_settings(url: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, and what a URL of Sentinel or a cluster adds: user, password and parameters, as redis-py reads
    those of one server. A username and password among the settings go before.

    Errors: `ValueError` for a parameter that is none.
    """
    parts = urlsplit(url)
    user, _, password = (unquote(part) for part in parts.netloc.rpartition("@")[0].partition(":"))
    named = {"username": user, "password": password}
    parameters: dict[str, Any] = cast(Any, parse_url)(f"redis://host?{parts.query}")
    del parameters["host"]
    found: dict[str, Any] = {**parameters, **{name: said for name, said in named.items() if said}}
    own: dict[str, Any] = {key: settings[key] for key in ("username", "password") if key in settings}
    return {**settings, **found, **own}


def _open_sentinel(options: BackendOptions, url: str, settings: dict[str, Any]) -> Any:
    parts = [part for part in urlsplit(url).path.split("/") if part]
    if not parts or len(parts) > 2:
        raise ValueError("name the master, as in redis+sentinel://host:26379/mymaster/0")
    tls = {"ssl": True} if urlsplit(url).scheme.startswith("rediss") else {}
    watching = {key: value for key, value in settings.items() if key not in ("username", "password")}
    for name in ("username", "password"):
        if options.text(f"sentinel_{name}"):
            watching[name] = options.secret(f"sentinel_{name}")
    sentinel: Any = cast(Any, redis).Sentinel(_addresses(url, 26379), sentinel_kwargs={**watching, **tls})
    database = int(parts[1]) if len(parts) == 2 else 0
    settings = {"db": database, **connection_settings(url, settings), **tls, "retry": Retry(NoBackoff(), 0)}
    return sentinel.master_for(parts[0], **settings)


def _open_cluster(options: BackendOptions, url: str, settings: dict[str, Any]) -> Any:
    nodes = [cast(Any, redis).cluster.ClusterNode(host, port) for host, port in _addresses(url, 6379)]
    tls = {"ssl": True} if urlsplit(url).scheme.startswith("rediss") else {}
    settings = {**connection_settings(url, settings), **tls}
    if settings.pop("db", 0):
        raise ValueError("a cluster has no db but 0")
    # a cluster's client drops in silence what it does not know
    own = {key: value for key, value in settings.items() if key not in ("max_connections", "ssl")}
    _try_settings(SSLConnection if tls else Connection, own)
    return redis.RedisCluster(startup_nodes=nodes, **settings)  # follows moved slots, so it needs its retries
