"""A standalone etcd server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.ports import free_port
from lakelatch.testing.servers.contract import http_status
from lakelatch.testing.servers.local import LocalServer, program


class LocalEtcd(LocalServer):
    """A cluster of one, with TLS towards its clients if `arguments` have a `--cert-file`.

    Its leases live 2 s at least: one and a half times the election timeout, rounded up.
    """

    name = "etcd"

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        system: System = REAL_SYSTEM,
    ) -> None:
        super().__init__(folder, arguments, environment, system)
        self._scheme = "https" if any(one.startswith("--cert-file") for one in arguments) else "http"
        self._peer_port = free_port(system)
        self._health_port = free_port(system)  # asked in plain HTTP, whatever the clients use

    def command(self) -> list[str]:
        client, peer = f"{self._scheme}://{self.host}:{self.port}", f"http://{self.host}:{self._peer_port}"
        settings = {
            "data-dir": self.data,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "listen-metrics-urls": f"http://{self.host}:{self._health_port}",
            "logger": "zap",
        }
        etcd = program("etcd", "apt-get install etcd-server")
        return [etcd, *(f"--{name}={value}" for name, value in settings.items())]

    def answers(self) -> bool:
        return etcd_answers(self.host, self._health_port)


def etcd_answers(host: str, port: int) -> bool:
    """Whether the server has a leader, which it needs for every write."""
    return http_status(host, port, "/health") == 200
