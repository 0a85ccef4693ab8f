"""Locks by ZooKeeper: our own places for all keys, or Hudi's place for the table, where its Java writers queue too."""

from __future__ import annotations

from lakelatch.locks.contract import LockScope
from lakelatch.locks.hudi.names import hudi_base_path, hudi_path_hash, hudi_table_name
from lakelatch.locks.hudi.provider import SharedTableKey
from lakelatch.locks.options import BASE_PATH, keys_of
from lakelatch.locks.session.backend import SessionBackend
from lakelatch.locks.session.options import BackendOptions
from lakelatch.locks.session.provider import SessionLockProvider
from lakelatch.locks.zookeeper.backend import ZookeeperBackend
from lakelatch.locks.zookeeper.options import (
    DEFAULT_ROOT,
    KNOWN,
    ensure_ports,
    path_of,
    servers_of,
    target_of,
    with_secrets,
)


class ZookeeperLockProvider(SessionLockProvider):
    """Leases at ZooKeeper 3.5 or later, in the order of arrival.

    `hoodie.write.lock.zookeeper.url` names the servers, with a path behind them if everything is to live below it.
    Further keys: `port` (of hosts without one), `base_path` (`/lakelatch`), `session_timeout_ms`,
    `connection_timeout_ms`, `auth` (`digest:user:password`), `acl` (`open`, or `creator`: no other user may see or
    change what we create), `sasl_mechanism`, `sasl_username`, `sasl_password`, and for TLS `use_ssl`, `ca`, `certfile`,
    `keyfile`, `keyfile_password`, `verify_certs` and `check_hostname`.

    The session that is asked for is a third longer than the leases (with `session_timeout_ms`, the leases are three
    quarters of it), because the servers of an ensemble tell each other late who is there. The server decides in the
    end, by its minSessionTimeout and maxSessionTimeout.
    """

    not_secret = keys_of("zookeeper", "url", "port", "base_path", "acl", "use_ssl", "ca")
    _known = KNOWN | {"base_path"}
    _root_option = "base_path"

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options = BackendOptions.of("zookeeper", scope, self._known)
        hosts, self._above = servers_of(self._options)
        self._root = self._above + path_of(self._options, self._root_option, DEFAULT_ROOT)
        self._target = target_of(self._options, hosts)

    def make_backend(self) -> SessionBackend:
        return ZookeeperBackend(with_secrets(self._options, self._target), self._root, self.scope.system)


class HudiZookeeperLockProvider(SharedTableKey, ZookeeperLockProvider):
    """The provider of Hudi's class name: the table's key is the lock that Hudi's Java writers take.

    It lies at `base_path/lock_key` (`lock_key` is the table's name, `hoodie.table.name`, unless given), and both sides
    wait for each other in one queue. What Java writers have no lock for (file groups, registers) lies below `root`
    (`/lakelatch`). The other options are those of `ZookeeperLockProvider`, but that ports stand in `url`: Java writers
    look for them nowhere else.

    A Java writer does not hear of `break_`: its node is removed all the same, after our lease time.
    """

    not_secret = ZookeeperLockProvider.not_secret | keys_of("zookeeper", "lock_key", "root") | {BASE_PATH}
    _known = KNOWN | {"base_path", "lock_key", "root"}
    _root_option = "root"

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        ensure_ports(self._options)
        self._lock_path = self._above + self._place()

    def _place(self) -> str:
        lock_key = hudi_table_name(self.scope, self._options.text("lock_key"), self._options.key("lock_key"))
        self._options.required("base_path", "/hudi/locks")
        return path_of(self._options, "base_path", "", "/" + lock_key)

    @property
    def table_lock(self) -> str:
        return self._lock_path


class HudiImplicitZookeeperLockProvider(HudiZookeeperLockProvider):
    """As `HudiZookeeperLockProvider`, for Hudi's class that derives the lock's place from the table's base path.

    Both sides must name the table alike; `hoodie.base.path` says how the others do, if not as our URI does.
    """

    def _place(self) -> str:
        return f"/tmp/{hudi_path_hash(hudi_base_path(self.scope))}/lock_key"
