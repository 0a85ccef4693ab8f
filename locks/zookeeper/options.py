"""Which servers of ZooKeeper, how to connect to them, and as whom: the checked options."""

from __future__ import annotations

import importlib.util
import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakelatch.errors import InvalidRequest
from lakelatch.locks.session.options import BackendOptions

_CONNECTION = frozenset({"url", "port", "session_timeout_ms", "connection_timeout_ms", "auth", "acl"})
_SASL = frozenset({"sasl_mechanism", "sasl_username", "sasl_password"})
_TLS = frozenset({"use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname"})
KNOWN = _CONNECTION | _SASL | _TLS
_EXAMPLE = "host1:2181,host2:2181,host3:2181"
DEFAULT_ROOT = "/lakelatch"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,@\[\]]+)(?::([0-9]{1,5}))?")
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")  # as ZooKeeper checks
_MECHANISMS = ("DIGEST-MD5", "GSSAPI")
_SESSION_LEAST_MS, _SESSION_MOST_MS = 1334, 4_800_000
_CONNECT_MOST_S = 5.0
_CALL_MOST_S = 10.0

# A follower answers, and reports its clients to the leader half a tick later, which is up to a quarter of the shortest
# session. So a session is sure to outlive its last renewal by this share of its time only.
LEASE_SHARE = 0.75


@dataclass(frozen=True)
class Target:
    """Which servers, how to connect to them, and as whom. `option` is the key of the servers, for messages."""

    hosts: str
    option: str
    session_s: float
    connect_s: float
    tls: ssl.SSLContext | None = None
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)
    creator_only: bool = False

    @property
    def lease_s(self) -> float:
        """The lease time, if the server grants the session that is asked for."""
        return self.session_s * LEASE_SHARE

    @property
    def call_s(self) -> float:
        """The most that one call may take."""
        return min(self.lease_s / 3, _CALL_MOST_S)


def servers_of(options: BackendOptions) -> tuple[str, str]:
    """The hosts with their ports, and the path below which everything is to live."""
    url = options.required("url", _EXAMPLE)
    hosts, slash, above = url.partition("/")
    port = options.number("port", 2181, 1, 65_535)
    found = [_HOST.fullmatch(host.strip()) for host in hosts.split(",")]
    places = [f"{match[1]}:{match[2] or port}" for match in found if match and int(match[2] or port) <= 65_535]
    path = (slash + above).rstrip("/")
    if len(places) < len(found) or (path and not _PATH.fullmatch(path)):
        shown = "..." if "@" in url else url  # which may be a password
        raise options.refusal(
            "url",
            f"={shown!r} names no servers: use a list as in {_EXAMPLE!r}, with a path such as "
            "/below behind it if need be, and without a scheme or a user",
        )
    return ",".join(places), path


def ensure_ports(options: BackendOptions) -> None:
    """`InvalidRequest` unless the url alone names the servers: Hudi's provider reads no port from elsewhere."""
    port = options.number("port", 2181, 1, 65_535)
    hosts = options.required("url", _EXAMPLE).partition("/")[0].split(",")
    if port != 2181 and any(not match[2] for host in hosts if (match := _HOST.fullmatch(host.strip()))):
        raise InvalidRequest(
            f"{options.key('port')}={port} is read by no Java writer of Hudi's, which would lock at port 2181: set "
            f"{options.key('url')}={','.join(_with_port(host.strip(), port) for host in hosts)} on both sides, and "
            f"remove {options.key('port')}",
            option=options.key("port"),
        )


def _with_port(host: str, port: int) -> str:
    match = _HOST.fullmatch(host)
    return host if match is None or match[2] else f"{host}:{port}"


def path_of(options: BackendOptions, name: str, default: str, more: str = "") -> str:
    """An option that is the path of a node, with `more` at its end."""
    path = options.text(name, default).rstrip("/") + more
    if not _PATH.fullmatch(path):
        raise options.refusal(name, f": {path!r} is no path of a node: use one as in {DEFAULT_ROOT!r}")
    return path


def target_of(options: BackendOptions, hosts: str) -> Target:
    """The target as far as it is known without reading secrets or files."""
    asked_ms = math.ceil(options.lease_s * 1000 / LEASE_SHARE)
    session_ms = options.number("session_timeout_ms", asked_ms, _SESSION_LEAST_MS, _SESSION_MOST_MS)
    connect_ms = int(min(session_ms * LEASE_SHARE / 3, _CONNECT_MOST_S * 1000))
    acl = options.text("acl", "open")
    known_by = [name for name in ("auth", "sasl_mechanism", "certfile") if options.text(name)]
    if acl not in ("open", "creator") or (acl == "creator" and not known_by):
        raise options.refusal(
            "acl",
            f"={acl!r}: use open, or creator together with {options.key('auth')} or another way to say who we are",
        )
    mechanism = options.text("sasl_mechanism")
    if mechanism and (mechanism not in _MECHANISMS or importlib.util.find_spec("puresasl") is None):
        raise options.refusal(
            "sasl_mechanism", f"={mechanism!r}: use {' or '.join(_MECHANISMS)}, and run pip install pure-sasl for it"
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


def with_secrets(options: BackendOptions, target: Target) -> Target:
    """The target with credentials and TLS, read from where they stand when a connection is needed."""
    auth = []
    if options.text("auth"):
        scheme, colon, credential = options.secret("auth").partition(":")
        if not scheme or not colon or not credential:
            raise options.refusal("auth", " has another form than scheme:credential, as in 'digest:user:password'")
        auth.append((scheme, credential))
    sasl = {name: options.secret(f"sasl_{name}") for name in ("mechanism", "username", "password")}
    sasl = {name: value for name, value in sasl.items() if value}
    tls = _tls(options) if options.flag("use_ssl") else None
    return replace(target, auth=tuple(auth), sasl=sasl, tls=tls)


def _tls(options: BackendOptions) -> ssl.SSLContext:
    asked = "ca"
    try:
        context = ssl.create_default_context(cafile=options.text("ca") or None)
        asked = "certfile"
        if options.text("certfile"):
            password = options.secret("keyfile_password") or None
            context.load_cert_chain(options.text("certfile"), options.text("keyfile") or None, password)
    except OSError as error:
        raise options.refusal(
            asked,
            f"={options.text(asked)!r} cannot be used, with the keyfile next to it if there is one "
            f"({type(error).__name__}: {error.strerror})",
        ) from None
    context.check_hostname = options.flag("check_hostname", True) and options.flag("verify_certs", True)
    if not options.flag("verify_certs", True):
        context.verify_mode = ssl.CERT_NONE
    return context
