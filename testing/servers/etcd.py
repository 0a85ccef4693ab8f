"""A standalone etcd server."""

from __future__ import annotations

from lakelatch.testing.servers.contract import http_status
from lakelatch.testing.servers.local import LocalServer, program


class LocalEtcd(LocalServer):
    """A cluster of one, with TLS towards its clients if `arguments` have a `--cert-file`.

    Its leases live 2 s at least: one and a half times the election timeout, rounded up.
    """

    name = "etcd"
    port_names = ("peer", "health")  # health is asked for in plain HTTP, whatever the clients use

    def command(self) -> list[str]:
        scheme = "https" if any(one.startswith("--cert-file") for one in self._arguments) else "http"
        client, peer = f"{scheme}://{self.host}:{self.port}", f"http://{self.host}:{self.ports['peer']}"
        settings = {
            "data-dir": self.data,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "listen-metrics-urls": f"http://{self.host}:{self.ports['health']}",
            "logger": "zap",
        }
        etcd = program("etcd", "apt-get install etcd-server")
        return [etcd, *(f"--{name}={value}" for name, value in settings.items())]

    def answers(self) -> bool:
        return etcd_answers(self.host, self.ports["health"])


def etcd_answers(host: str, port: int) -> bool:
    """Whether the server has a leader, which it needs for every write."""
    return http_status(host, port, "/health") == 200
