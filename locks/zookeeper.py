"""Locks by ZooKeeper: our own places for all keys, or Hudi's place for the table, where its Java writers queue too."""

from __future__ import annotations

import importlib.util
import math
import re
import ssl
from collections.abc import Hashable
from dataclasses import replace

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import TABLE_KEY, Holder, LockScope
from lakelatch.locks.hudi_names import hudi_base_path, hudi_path_hash, hudi_table_name
from lakelatch.locks.service import LockService
from lakelatch.locks.service_options import ServiceOptions
from lakelatch.locks.session_provider import SessionLockProvider
from lakelatch.locks.zookeeper_client import LEASE_SHARE, Target
from lakelatch.locks.zookeeper_service import ZookeeperService

_CONNECTION = frozenset({"url", "port", "session_timeout_ms", "connection_timeout_ms", "auth", "acl"})
_SASL = frozenset({"sasl_mechanism", "sasl_username", "sasl_password"})
_TLS = frozenset({"use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname"})
_COMMON = _CONNECTION | _SASL | _TLS
_EXAMPLE = "host1:2181,host2:2181,host3:2181"
_DEFAULT_ROOT = "/lakelatch"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,@\[\]]+)(?::([0-9]{1,5}))?")
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")  # as ZooKeeper checks
_MECHANISMS = ("DIGEST-MD5", "GSSAPI")
_SESSION_LEAST_MS, _SESSION_MOST_MS = 1334, 4_800_000
_CONNECT_MOST_S = 5.0


class ZookeeperLockProvider(SessionLockProvider):
    """Leases at ZooKeeper 3.5 or later, in the order of arrival.

    `hoodie.write.lock.zookeeper.url` names the servers, with a path behind them if everything is to live below it.
    Further keys: `port` (of hosts without one), `base_path` (`/lakelatch`), `session_timeout_ms`,
    `connection_timeout_ms`, `auth` (`digest:user:password`), `acl` (`open`, or `creator`: nobody else may see or change
    what we create), `sasl_mechanism`, `sasl_username`, `sasl_password`, and for TLS `use_ssl`, `ca`, `certfile`,
    `keyfile`, `keyfile_password`, `verify_certs` and `check_hostname`.

    The session that is asked for is a third longer than the leases (with `session_timeout_ms`, the leases are three
    quarters of it), because the servers of an ensemble tell each other late who is there. The server decides in the
    end, by its minSessionTimeout and maxSessionTimeout.
    """

    _known = _COMMON | {"base_path"}
    _root_option = "base_path"

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options = ServiceOptions.of("zookeeper", scope.options, self._known)
        hosts, self._above = _servers(self._options)
        self._root = self._above + _path(self._options, self._root_option, _DEFAULT_ROOT)
        self._target = _target(self._options, hosts)

    @property
    def identity(self) -> Hashable:
        return self._options.identity()

    def make_service(self) -> LockService:
        return ZookeeperService(_with_secrets(self._options, self._target), self._root, self.scope.system)


class HudiZookeeperLockProvider(ZookeeperLockProvider):
    """The provider of Hudi's class name: the table's key is the lock that Hudi's Java writers take.

    It lies at `base_path/lock_key` (`lock_key` is the table's name, `hoodie.table.name`, unless given), and both sides
    wait for each other in one queue. What Java writers have no lock for (file groups, registers) lies below `root`
    (`/lakelatch`). The other options are those of `ZookeeperLockProvider`.

    A Java writer does not hear of `break_`: its node is removed all the same, after our lease time.
    """

    _known = _COMMON | {"base_path", "lock_key", "root"}
    _root_option = "root"

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._lock_path = self._above + self._place()

    def _place(self) -> str:
        lock_key = hudi_table_name(self.scope, self._options.text("lock_key"), self._options.key("lock_key"))
        self._options.required("base_path", "/hudi/locks")
        return _path(self._options, "base_path", "", "/" + lock_key)

    def name_of(self, key: str) -> str:
        return self._lock_path if key == TABLE_KEY else super().name_of(key)

    def key_of(self, name: str) -> str | None:
        return TABLE_KEY if name == self._lock_path else super().key_of(name)

    def holders(self, prefix: str = "") -> list[Holder]:
        found = super().holders(prefix)
        if TABLE_KEY.startswith(prefix):
            for holder in self._session().service.holders(self._lock_path):
                found.append(replace(holder, key=TABLE_KEY))
        return sorted(found, key=lambda holder: holder.key)


class HudiImplicitZookeeperLockProvider(HudiZookeeperLockProvider):
    """As `HudiZookeeperLockProvider`, for Hudi's class that derives the lock's place from the table's base path.

    Both sides must name the table alike; `hoodie.base.path` says how the others do, if not as our URI does.
    """

    def _place(self) -> str:
        return f"/tmp/{hudi_path_hash(hudi_base_path(self.scope))}/lock_key"


def _servers(options: ServiceOptions) -> tuple[str, str]:
    """The hosts with their ports, and the path below which everything is to live."""
    url = options.required("url", _EXAMPLE)
    hosts, slash, above = url.partition("/")
    port = options.number("port", 2181, 1, 65_535)
    found = [_HOST.fullmatch(host.strip()) for host in hosts.split(",")]
    places = [f"{match[1]}:{match[2] or port}" for match in found if match and int(match[2] or port) <= 65_535]
    path = (slash + above).rstrip("/")
    if len(places) < len(found) or (path and not _PATH.fullmatch(path)):
        shown = "..." if "@" in url else url  # which may be a password
        raise InvalidRequest(
            f"{options.key('url')}={shown!r} names no servers: use a list as in {_EXAMPLE!r}, with a path such as "
            "/below behind it if need be, and without a scheme or a user",
            option=options.key("url"),
        )
    return ",".join(places), path


def _path(options: ServiceOptions, name: str, default: str, more: str = "") -> str:
    path = options.text(name, default).rstrip("/") + more
    if not _PATH.fullmatch(path):
        raise InvalidRequest(
            f"{options.key(name)}: {path!r} is no path of a node: use one as in {_DEFAULT_ROOT!r}",
            option=options.key(name),
        )
    return path


def _target(options: ServiceOptions, hosts: str) -> Target:
    """What is known without reading secrets or files."""
    asked_ms = math.ceil(options.lease_s * 1000 / LEASE_SHARE)
    session_ms = options.number("session_timeout_ms", asked_ms, _SESSION_LEAST_MS, _SESSION_MOST_MS)
    connect_ms = int(min(session_ms * LEASE_SHARE / 3, _CONNECT_MOST_S * 1000))
    acl = options.text("acl", "open")
    known_by = [name for name in ("auth", "sasl_mechanism", "certfile") if options.text(name)]
    if acl not in ("open", "creator") or (acl == "creator" and not known_by):
        raise InvalidRequest(
            f"{options.key('acl')}={acl!r}: use open, or creator together with {options.key('auth')} or another way to "
            "say who we are",
            option=options.key("acl"),
        )
    mechanism = options.text("sasl_mechanism")
    if mechanism and (mechanism not in _MECHANISMS or importlib.util.find_spec("puresasl") is None):
        raise InvalidRequest(
            f"{options.key('sasl_mechanism')}={mechanism!r}: use {' or '.join(_MECHANISMS)}, and run pip install "
            "pure-sasl for it",
            option=options.key("sasl_mechanism"),
        )
    for name in ("verify_certs", "check_hostname"):
        options.flag(name, default=True)
    return Target(
        hosts=hosts,
        option=options.key("url"),
        session_s=session_ms / 1000,
        connect_s=options.number("connection_timeout_ms", connect_ms, 100, 600_000) / 1000,
        creator_only=acl == "creator",
    )


def _with_secrets(options: ServiceOptions, target: Target) -> Target:
    auth = []
    if options.text("auth"):
        scheme, colon, credential = options.secret("auth").partition(":")
        if not scheme or not colon or not credential:
            raise InvalidRequest(
                f"{options.key('auth')} has another form than scheme:credential, as in 'digest:user:password'",
                option=options.key("auth"),
            )
        auth.append((scheme, credential))
    sasl = {name: options.secret(f"sasl_{name}") for name in ("mechanism", "username", "password")}
    sasl = {name: value for name, value in sasl.items() if value}
    tls = _tls(options) if options.flag("use_ssl") else None
    return replace(target, auth=tuple(auth), sasl=sasl, tls=tls)


def _tls(options: ServiceOptions) -> ssl.SSLContext:
    asked = "ca"
    try:
        context = ssl.create_default_context(cafile=options.text("ca") or None)
        asked = "certfile"
        if options.text("certfile"):
            password = options.secret("keyfile_password") or None
            context.load_cert_chain(options.text("certfile"), options.text("keyfile") or None, password)
    except OSError as error:
        raise InvalidRequest(
            f"{options.key(asked)}={options.text(asked)!r} cannot be used, with the keyfile beside it if there is one "
            f"({type(error).__name__}: {error.strerror})",
            option=options.key(asked),
        ) from None
    context.check_hostname = options.flag("check_hostname", True) and options.flag("verify_certs", True)
    if not options.flag("verify_certs", True):
        context.verify_mode = ssl.CERT_NONE
    return context
