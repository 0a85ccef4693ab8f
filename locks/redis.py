"""Locks by Redis or Valkey: one script, one round trip; who waits is handed the key in its order, and woken."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthorizationError, NoPermissionError, NoScriptError
from redis.retry import Retry

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks import redis_scripts as scripts
from lakelatch.locks.contract import Holder, LockScope
from lakelatch.locks.service import Held, LockService, SessionGone, Wait
from lakelatch.locks.service_options import ServiceOptions, without_secrets
from lakelatch.locks.session_provider import SessionLockProvider
from lakelatch.system import System

_KNOWN = frozenset(
    {
        "url",
        "username",
        "password",
        "sentinel_username",
        "sentinel_password",
        "prefix",
        "ssl_ca_certs",
        "ssl_certfile",
        "ssl_keyfile",
    }
)
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_EXAMPLE = "redis://host:6379/0"
_CONNECT_MOST_S = 5.0
_CONNECTIONS_MOST = 512  # one for each thread that waits at the same time, and a few


class RedisLockProvider(SessionLockProvider):
    """Leases at a Redis or Valkey server of version 6.2 or later, in the order of arrival.

    `hoodie.write.lock.redis.url` is `redis://`, `rediss://` (TLS) or `unix://` as redis-py takes it,
    `redis+sentinel://host:26379,host:26379/master_name/db` or `redis+cluster://host:port,host:port` (`rediss+...` for
    TLS). Further keys: `username`, `password`, `prefix` (`lakelatch`), `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`.

    A failover may lose what a replica had not received, leases included; the table is safe all the same. Tokens go on
    even then, since none is below the server's clock in milliseconds.
    """

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options = ServiceOptions.of("redis", scope.options, _KNOWN)
        _check_url(self._options)

    @property
    def domain(self) -> str:
        return " ".join(part for part in ("redis", self._options.text("prefix")) if part)

    @property
    def identity(self) -> Hashable:
        return self._options.identity()

    def make_service(self) -> LockService:
        return RedisService(self._options, self.scope.system)


class RedisService(LockService):
    """The scripts of `redis_scripts`, over one client, whose pool has a connection for each thread that waits."""

    can_be_kept = True
    may_forget = True

    def __init__(self, options: ServiceOptions, system: System) -> None:
        self.lease_s = options.lease_s
        self._lease_ms = int(options.lease_s * 1000)
        self._system = system
        self._where = f"Redis at {without_secrets(options.text('url'))}"
        self._option = options.key("url")
        self._prefix = f"{{{options.text('prefix', 'lakelatch')}}}:"
        self._client = _open(options)
        self._scripts = {
            text: self._client.register_script(text) for text in vars(scripts).values() if isinstance(text, str)
        }

    def open_session(self, owner: str) -> str:
        session = self._system.new_id()
        self._run(scripts.OPEN, session, owner, self._lease_ms)
        return session

    def renew_session(self, session: str) -> list[str]:
        wishes = self._run(scripts.RENEW, session, self._lease_ms)
        if wishes is None:
            raise SessionGone(f"{self._where} does not know this session any more", session=session)
        return [wish.decode() for wish in wishes]

    def held_by(self, session: str) -> list[tuple[str, str]]:
        found = self._run(scripts.HELD_BY, session)
        return [(request.decode(), name.decode()) for request, name in zip(found[::2], found[1::2], strict=True)]

    def close_session(self, session: str) -> None:
        self._run(scripts.CLOSE, session)

    def take(self, session: str, request: str, name: str, wait: Wait) -> int | None:
        queue, again = wait.left_s() > 0, False
        while True:
            asked = session, request, name, self._lease_ms, int(queue), self._system.realtime_ms(), int(again)
            token, look_again_ms = self._run(scripts.TAKE, *asked)
            again = True
            if token < 0:
                raise SessionGone(f"{self._where} does not know this session any more", session=session)
            if token > 0:
                return int(token)
            if queue:
                look_again_ns = self._system.monotonic_ns() + min(look_again_ms, self._lease_ms) * 1_000_000
                woken = self._wait(request, wait, look_again_ns)
                if woken is not None:
                    return woken
            if not queue or wait.left_s() <= 0:
                return int(self._run(scripts.LEAVE, session, request, name)) or None

    def _wait(self, request: str, wait: Wait, until_ns: int) -> int | None:
        """Waits until woken with a token, or until the holder's session may be over, or the deadline."""
        while True:
            left_s = (until_ns - self._system.monotonic_ns()) / 1e9
            nap_s = wait.nap_s(max(left_s, 0.0) + 0.001)
            if nap_s <= 0 or left_s <= 0:
                return None
            with self._errors():
                woken: Any = self._client.blpop([self._prefix + "w:" + request], timeout=max(nap_s, 0.001))
            if woken is not None:
                return int(woken[1])

    def give_back(self, session: str, request: str, name: str) -> bool:
        return bool(self._run(scripts.GIVE_BACK, session, request, name))

    def advance(self, name: str, at_least: int, count: int) -> int:
        return int(self._run(scripts.ADVANCE, name, at_least, count))

    def holders(self, prefix: str) -> list[Holder]:
        found = []
        for name, held, session, waiting in self._run(scripts.HOLDERS, prefix, int("/=" in prefix[:-2])):
            _, _, token, since_ms = held.decode().split(" ")
            owner = session.decode().partition(" ")[2]
            found.append(Holder(name.decode(), owner, int(token), int(since_ms), int(waiting)))
        return found

    def find_holder(self, name: str) -> Held | None:
        for _, held, about, _ in self._run(scripts.HOLDERS, name, 1):
            session, request, _, _ = held.decode().split(" ")
            return Held(session, request, int(about.decode().partition(" ")[0]) / 1000)
        return None

    def ask_to_give_up(self, held: Held, name: str) -> None:
        self._run(scripts.WISH, held.session, held.request, int(held.lease_s * 1000))

    def force(self, held: Held, name: str) -> bool:
        return self.give_back(held.session, held.request, name)

    def close(self) -> None:
        self._client.close()

    def _run(self, script: str, *arguments: str | int) -> Any:
        with self._errors():
            known = self._scripts[script]
            try:
                return self._client.evalsha(known.sha, 1, self._prefix, *arguments)
            except NoScriptError:  # a server that was restarted, or another one
                return known(keys=[self._prefix], args=list(arguments))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (redis.AuthenticationError, NoPermissionError, AuthorizationError) as error:
            raise InvalidRequest(
                f"{self._where} refuses these credentials or this user's rights ({_first_words(error)}): look at "
                f"{self._option}, and at the username and password beside it",
                option=self._option,
            ) from None
        except redis.RedisError as error:
            raise Unavailable(
                f"{self._where} could not be used ({type(error).__name__}: {_first_words(error)}); is {self._option} "
                "right, and the server up?",
                option=self._option,
            ) from None


def _first_words(error: Exception) -> str:
    """Without what redis-py appends about its connection pools."""
    return str(error).partition("\n")[0].partition(" : <")[0][:200]


def _check_url(options: ServiceOptions) -> None:
    url = options.required("url", _EXAMPLE)
    scheme = urlsplit(url).scheme
    if scheme.removesuffix("+sentinel").removesuffix("+cluster") not in ("redis", "rediss", "unix"):
        raise InvalidRequest(
            f"{options.key('url')}={without_secrets(url)!r} is no Redis URL: use redis://, rediss://, unix://, "
            "redis+sentinel:// or redis+cluster://",
            option=options.key("url"),
        )


def _open(options: ServiceOptions) -> Any:
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
    open_client: Callable[[ServiceOptions, str, dict[str, Any]], Any] = _open_single
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


def _open_single(options: ServiceOptions, url: str, settings: dict[str, Any]) -> Any:
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


def _open_sentinel(options: ServiceOptions, url: str, settings: dict[str, Any]) -> Any:
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


def _open_cluster(options: ServiceOptions, url: str, settings: dict[str, Any]) -> Any:
    nodes = [cast(Any, redis).cluster.ClusterNode(host, port) for host, port in _addresses(url, 6379)]
    tls = {"ssl": True} if url.startswith("rediss") else {}
    settings = {**settings, **_credentials(url, settings), **tls}
    return redis.RedisCluster(startup_nodes=nodes, **settings)  # follows moved slots, so it needs its retries
