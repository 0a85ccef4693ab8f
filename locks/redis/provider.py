"""Locks by Redis or Valkey: one script, one round trip; waiters are handed the key in order, and woken."""

from __future__ import annotations

from urllib.parse import urlsplit

from lakelatch.locks.contract import LockScope
from lakelatch.locks.options import keys_of
from lakelatch.locks.redis.backend import RedisBackend
from lakelatch.locks.session.backend import SessionBackend
from lakelatch.locks.session.options import BackendOptions, without_secrets
from lakelatch.locks.session.provider import SessionLockProvider
from lakelatch.storage.uris import without_password

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
_EXAMPLE = "redis://host:6379/0"


class RedisLockProvider(SessionLockProvider):
    """Leases at a Redis or Valkey server of version 6.2 or later, in the order of arrival.

    `hoodie.write.lock.redis.url` is `redis://`, `rediss://` (TLS) or `unix://` as redis-py takes it,
    `redis+sentinel://host:26379,host:26379/master_name/db` or `redis+cluster://host:port,host:port` (`rediss+...` for
    TLS). Further keys: `username`, `password`, `prefix` (`lakelatch`), `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`.

    A failover may lose what a replica had not received, leases included; the table is safe all the same. Tokens go on
    even then, since none is below the server's clock in milliseconds.
    """

    may_forget = True
    not_secret = keys_of("redis", "url", "prefix", "ssl_ca_certs")

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options = BackendOptions.of("redis", scope, _KNOWN)
        _check_url(self._options)

    @property
    def domain(self) -> str:
        return " ".join(part for part in ("redis", self._options.text("prefix")) if part)

    def make_backend(self) -> SessionBackend:
        return RedisBackend(self._options, self.scope.system)


def _check_url(options: BackendOptions) -> None:
    url = options.required("url", _EXAMPLE)
    try:
        scheme = urlsplit(url).scheme if without_password(url) else ""
    except ValueError:  # which may quote what is in the wrong place
        scheme = ""
    if scheme.removesuffix("+sentinel").removesuffix("+cluster") not in ("redis", "rediss", "unix"):
        raise options.refusal(
            "url",
            f"={without_secrets(url)!r} is no Redis URL: use redis://, rediss://, unix://, "
            "redis+sentinel:// or redis+cluster://, and percent-encode what a user or password holds of :/?#[]@",
        )
