"""The same servers in containers, through testcontainers, which is imported when the first one is made."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.ports import free_port
from lakelatch.testing.servers.contract import (
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Server,
    http_status,
    wait_until,
)
from lakelatch.testing.servers.dynamodb import VERSION, dynamodb_answers
from lakelatch.testing.servers.etcd import etcd_answers
from lakelatch.testing.servers.local import JAVA_OPTIONS
from lakelatch.testing.servers.redis import REDIS_SETTINGS, redis_answers
from lakelatch.testing.servers.seaweedfs import S3_ARGUMENTS, S3_ENVIRONMENT, seaweedfs_answers
from lakelatch.testing.servers.zookeeper import zookeeper_answers, zookeeper_settings

IMAGE_VARIABLE = "LAKELATCH_TEST_IMAGE_"  # and the server's name in capitals: takes another image
_DEFAULT_ENGINE = "unix:///var/run/docker.sock"
_ENGINE_TIMEOUT_S = 5.0
_LOG_LINES = 20
_JAVA_ENVIRONMENT = {"JAVA_TOOL_OPTIONS": " ".join(JAVA_OPTIONS)}


@dataclass(frozen=True)
class Image:
    """How a server is run from its official image, or from one of ours that takes the same arguments."""

    name: str
    port: int
    command: Sequence[str]
    answers: Callable[[str, int], bool]
    environment: Mapping[str, str] = field(default_factory=dict)


IMAGES: dict[str, Image] = {
    "redis": Image(
        "redis:7",
        6379,
        ["redis-server", *(word for name, value in REDIS_SETTINGS.items() for word in (f"--{name}", value))],
        redis_answers,
    ),
    "zookeeper": Image(
        "zookeeper:3.9",
        2181,
        ["sh", "-c", "printenv SETTINGS > /tmp/zoo.cfg && exec zkServer.sh start-foreground /tmp/zoo.cfg"],
        zookeeper_answers,
        _JAVA_ENVIRONMENT | {"SETTINGS": zookeeper_settings({"dataDir": "/data", "clientPort": "2181"})},
    ),
    "etcd": Image(
        "lakelatch-test/etcd:3",
        2379,
        [
            *("etcd", "--data-dir=/etcd-data", "--logger=zap", "--listen-client-urls=http://0.0.0.0:2379"),
            "--advertise-client-urls=http://127.0.0.1:2379",
        ],
        etcd_answers,
    ),
    "dynamodb": Image(
        f"amazon/dynamodb-local:{VERSION}",
        8000,
        ["-jar", "DynamoDBLocal.jar", "-sharedDb", "-dbPath", "/tmp", "-disableTelemetry"],
        dynamodb_answers,
        _JAVA_ENVIRONMENT,
    ),
    "seaweedfs": Image(
        "chrislusf/seaweedfs:4.48",
        8333,
        ["mini", "-dir=/data", "-ip=127.0.0.1", "-ip.bind=0.0.0.0", *S3_ARGUMENTS],
        seaweedfs_answers,
        S3_ENVIRONMENT,
    ),
}


def engine_answers() -> bool:
    """Whether a Docker engine answers without TLS where DOCKER_HOST says or by default, and testcontainers is there."""
    kind, _, place = (os.environ.get("DOCKER_HOST") or _DEFAULT_ENGINE).partition("://")
    if find_spec("testcontainers") is None:
        return False
    if kind == "unix":
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.settimeout(_ENGINE_TIMEOUT_S)
            connection.connect(place)
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 OK" in connection.recv(4096)
        return False
    host, _, port = place.rpartition(":")
    return kind == "tcp" and port.isdigit() and http_status(host, int(port), "/_ping") == 200


class ContainerServer(Server):
    """A server in a container of its own; `arguments` come after its usual ones.

    Its container is kept over `stop` and `kill`, and with it the data; `wipe` removes it. What is paused goes on for a
    moment before it is stopped or killed.
    """

    def __init__(self, name: str, arguments: Sequence[str] = (), system: System = REAL_SYSTEM) -> None:
        from testcontainers.core.config import testcontainers_config

        testcontainers_config.ryuk_disabled = True  # one image less; what a killed run leaves stays, however
        self.name = name
        self._image = IMAGES[name]
        self._image_name = os.environ.get(IMAGE_VARIABLE + name.upper()) or self._image.name
        self._arguments = tuple(arguments)
        self._system = system
        self._host_port = free_port(system)
        self._outer: Any = None
        self._owner = os.getpid()
        atexit.register(self._at_exit)

    @property
    def _container(self) -> Any:
        return self._outer.get_wrapped_container()

    def _state(self) -> str:
        if self._outer is None:
            return "absent"
        self._container.reload()
        return str(self._container.status)

    def start(self) -> None:
        state = self._state()
        if state in ("running", "paused"):
            return
        if state == "absent":
            self._create()
        else:
            self._container.start()
        if not wait_until(self._ready, START_TIMEOUT_S, self._system):
            log = self._container.logs(tail=_LOG_LINES).decode(errors="replace")
            self.kill()
            raise Unavailable(
                f"the server {self.name} in {self._image_name} does not answer; the end of its log:\n{log}"
            )

    def _create(self) -> None:
        from docker.errors import DockerException
        from testcontainers.core.container import DockerContainer

        outer: DockerContainer | None = None
        try:
            outer = DockerContainer(self._image_name).with_command([*self._image.command, *self._arguments])
            outer.with_bind_ports(self._image.port, self._host_port).with_envs(**self._image.environment).start()
        except DockerException as error:
            if outer is not None:
                outer.stop()
            raise Unavailable(
                f"no container of {self._image_name} could be started ({error}): make the image with "
                f"tests/containers/build, name another one in {IMAGE_VARIABLE}{self.name.upper()}, or set "
                "LAKELATCH_TEST_SERVERS=local"
            ) from error
        self._outer = outer

    def _ready(self) -> bool:
        if self._state() != "running":
            return False
        host = self._outer.get_container_host_ip()
        self.host = "127.0.0.1" if host == "localhost" else host  # where nothing listens on IPv6
        self.port = self._outer.get_exposed_port(self._image.port)
        return self._image.answers(self.host, self.port)

    def stop(self) -> None:
        self.resume()
        if self._state() == "running":
            self._container.stop(timeout=int(STOP_TIMEOUT_S))

    def kill(self) -> None:
        self.resume()  # the engine refuses to kill a paused container
        if self._state() == "running":
            self._container.kill()
            self._container.wait()

    def pause(self) -> None:
        if self._state() != "running":
            raise InvalidRequest(f"the server {self.name} does not run, so it cannot be paused: start it")
        self._container.pause()

    def resume(self) -> None:
        if self._state() == "paused":
            self._container.unpause()

    def wipe(self) -> None:
        if self._state() in ("running", "paused"):
            raise InvalidRequest(f"the server {self.name} runs, so it cannot be wiped: stop it")
        self._remove()

    def close(self) -> None:
        self._remove()
        atexit.unregister(self._at_exit)

    def _remove(self) -> None:
        if self._outer is not None:
            self._outer.stop()  # removes it, with its volumes, whatever its state
            self._outer = None

    def _at_exit(self) -> None:
        if os.getpid() == self._owner:
            self.close()
