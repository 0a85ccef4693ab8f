"""A standalone ZooKeeper server from Debian's jars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lakelatch.errors import Unavailable
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.servers.contract import exchange
from lakelatch.testing.servers.local import JAVA_OPTIONS, LocalServer, java

_JAR = Path("/usr/share/java/zookeeper.jar")  # its manifest names all the others


class LocalZooKeeper(LocalServer):
    """One server; `settings` are lines of zoo.cfg, `arguments` those of the Java machine.

    Sessions live two ticks at least and 40 s at most unless the settings say otherwise; a client that asks for less or
    more gets the bound.
    """

    name = "zookeeper"

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        system: System = REAL_SYSTEM,
        *,
        tick_ms: int = 500,
        session_min_ms: int | None = None,
        session_max_ms: int = 40_000,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, (), environment, system)
        self._java_arguments = tuple(arguments)
        own = {"dataDir": str(self.data), "clientPort": str(self.port), "clientPortAddress": self.host}
        self._settings = zookeeper_settings(own | dict(settings or {}), tick_ms, session_min_ms, session_max_ms)

    def command(self) -> list[str]:
        if not _JAR.exists():
            raise Unavailable(f"{_JAR} does not exist: apt-get install libzookeeper-java")
        configuration = self.folder / "zoo.cfg"
        configuration.write_text(self._settings)
        log_settings = self.folder / "log4j.properties"
        log_settings.write_text(_LOG_SETTINGS)
        classes = f"{self.folder}:{_JAR}:/usr/share/java/slf4j-log4j12.jar:/usr/share/java/log4j-1.2.jar"
        return [
            *(java(), *JAVA_OPTIONS, "-Dzookeeper.preAllocSize=1024", *self._java_arguments, "-cp", classes),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)),
        ]

    def answers(self) -> bool:
        return zookeeper_answers(self.host, self.port)


def zookeeper_settings(
    settings: Mapping[str, str], tick_ms: int = 500, session_min_ms: int | None = None, session_max_ms: int = 40_000
) -> str:
    """The text of zoo.cfg; `settings` win over the others."""
    usual = {
        "tickTime": str(tick_ms),
        "minSessionTimeout": str(2 * tick_ms if session_min_ms is None else session_min_ms),
        "maxSessionTimeout": str(session_max_ms),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
    }
    return "".join(f"{name}={value}\n" for name, value in (usual | dict(settings)).items())


def zookeeper_answers(host: str, port: int) -> bool:
    """Whether the server serves sessions; needs its four-letter words."""
    return exchange(host, port, b"srvr").startswith(b"Zookeeper version")


_LOG_SETTINGS = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
