"""A Redis server whose every write is on disk before it is answered."""

from __future__ import annotations

from lakelatch.testing.servers.contract import exchange
from lakelatch.testing.servers.local import LocalServer, program

REDIS_SETTINGS = {
    "daemonize": "no",
    "protected-mode": "no",  # or a container would answer to itself only
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
}


class LocalRedis(LocalServer):
    """redis-server with an append-only file, synced at each write.

    Its plain port stays open if `arguments` give it a TLS port as well.
    """

    name = "redis"

    def command(self) -> list[str]:
        settings = {"port": str(self.port), "bind": self.host, "dir": str(self.data)} | REDIS_SETTINGS
        pairs = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [program("redis-server", "apt-get install redis-server"), *pairs]

    def answers(self) -> bool:
        return redis_answers(self.host, self.port)


def redis_answers(host: str, port: int) -> bool:
    """Whether a Redis server has loaded its data; also true of one that wants a password."""
    answer = exchange(host, port, b"PING\r\n")
    return answer.startswith((b"+PONG", b"-NOAUTH", b"-NOPERM"))
