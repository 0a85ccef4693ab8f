"""The address of etcd and the way in: the checked options, and clients opened by them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from lakelatch.errors import InvalidRequest
from lakelatch.locks.session.options import BackendOptions, without_secrets

OpenClient = Callable[..., Any]

_EXAMPLE = "http://host:2379"
_PORT = 2379
_TLS = ("ca_cert", "cert_key", "cert_cert")


@dataclass(frozen=True)
class Target:
    """One etcd. `open_client` is called as `pyetcd.client` is."""

    options: BackendOptions = field(repr=False)
    endpoints: tuple[tuple[str, int], ...]
    secure: bool
    open_client: OpenClient = field(repr=False)

    @classmethod
    def of(cls, options: BackendOptions, open_client: OpenClient) -> Target:
        """Errors: `InvalidRequest` for what cannot be right; nothing is connected."""
        secure, endpoints = _endpoints(options)
        for one, other in (("username", "password"), ("password", "username"), ("cert_key", "cert_cert")):
            if options.text(one) and not options.text(other):
                raise InvalidRequest(
                    f"{options.key(one)} is given without {options.key(other)}: set both or none",
                    option=options.key(other),
                )
        for name in _TLS:
            if options.text(name) and not secure:
                raise InvalidRequest(
                    f"{options.key(name)} is given, but {options.key('url')} is not for TLS: begin it with https://",
                    option=options.key("url"),
                )
        return cls(options, endpoints, secure, open_client)

    @property
    def where(self) -> str:
        """The name of this etcd in messages."""
        return "etcd at " + ",".join(f"{host}:{port}" for host, port in self.endpoints)

    def open(self, turn: int, timeout_s: float, channel: Any) -> Any:
        """A client for one of the endpoints, with these settings for its channel; it does not connect yet."""
        host, port = self.endpoints[turn % len(self.endpoints)]
        files = {name: self.options.text(name) or None for name in _TLS}
        if self.secure and not files["ca_cert"]:
            files["ca_cert"] = ssl.get_default_verify_paths().cafile
            if not files["ca_cert"]:
                raise self.options.refusal(
                    "ca_cert", " is missing, and this machine has no file of authorities: set it"
                )
        try:
            return self.open_client(host=host, port=port, timeout=timeout_s, grpc_options=channel, **files)
        except OSError as error:
            names = ", ".join(self.options.key(name) for name in _TLS if files[name])
            raise InvalidRequest(f"a file of {names} cannot be read ({type(error).__name__})") from None


def _endpoints(options: BackendOptions) -> tuple[bool, tuple[tuple[str, int], ...]]:
    url = options.required("url", _EXAMPLE)
    scheme, _, places = url.partition("://")
    found = []
    for place in places.split(","):
        parts = urlsplit("//" + place.strip().removeprefix(f"{scheme}://").rstrip("/"))
        try:
            host, port = parts.hostname or "", parts.port or _PORT
        except ValueError:
            host, port = "", 0
        if scheme not in ("http", "https") or not host or parts.path or parts.query or parts.username is not None:
            raise options.refusal(
                "url",
                f"={without_secrets(url)!r} is no URL of etcd: use http://host:port or "
                "https://host:port, with ,host:port for each further endpoint; credentials have options of their own",
            )
        found.append((f"[{host}]" if ":" in host else host, port))
    return scheme == "https", tuple(found)
