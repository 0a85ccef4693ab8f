"""Locks by etcd: a queue of keys for each name, one transaction to join it, and a watch on the one before."""

from __future__ import annotations

from lakelatch.locks.contract import LockScope
from lakelatch.locks.etcd.backend import EtcdBackend
from lakelatch.locks.etcd.client import open_client_of
from lakelatch.locks.etcd.options import Target
from lakelatch.locks.options import keys_of
from lakelatch.locks.session.backend import SessionBackend
from lakelatch.locks.session.options import BackendOptions
from lakelatch.locks.session.provider import SessionLockProvider

_KNOWN = frozenset({"url", "username", "password", "ca_cert", "cert_key", "cert_cert", "prefix", "client"})


class EtcdLockProvider(SessionLockProvider):
    """Leases at etcd 3.4 or later, in the order of arrival.

    `hoodie.write.lock.etcd.url` is `http://host:port` or `https://host:port`, with `,host:port` for each further
    endpoint. Further keys: `username`, `password`, `prefix` (`/lakelatch`), `ca_cert`, `cert_key`, `cert_cert` (files),
    and `client`, a function `module:function` that is called as `pyetcd.client` is and returns such a client.

    etcd counts leases in whole seconds, two at least by its default settings, so a shorter or broken
    `lakelatch.lock.lease_s` is rounded up. Tokens are etcd's revisions: they go on through crashes and restarts, but
    not if its data is wiped or restored from a backup.

    A process may fork while it holds leases: gRPC is brought to rest before, so the child can open a connection of its
    own. That does not reach other users of gRPC in the same process; if one is active at that moment, use spawn.
    """

    not_secret = keys_of("etcd", "url", "prefix", "ca_cert")

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options = BackendOptions.of("etcd", scope, _KNOWN)
        self._target = Target.of(self._options, open_client_of(self._options))

    def make_backend(self) -> SessionBackend:
        return EtcdBackend(self._target, self.scope.system)
