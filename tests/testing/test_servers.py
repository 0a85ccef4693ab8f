"""That real servers keep, lose and forget data as they are told, whether they are processes or containers."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3
import obstore
import pytest
from kazoo.client import KazooClient
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.testing.servers import NAMES, Server, chosen, open_server
from lakelatch.testing.servers.containers import IMAGES
from lakelatch.testing.servers.contract import exchange, wait_until
from lakelatch.testing.servers.local import LocalServer
from lakelatch.testing.servers.seaweedfs import ACCESS_KEY, BUCKET, SECRET_KEY

PATIENCE_S = 30.0
SILENCE_S = 0.3
ROOT = Path(__file__).parents[2]

Values = Callable[[Server, str | None], str | None]
"""Puts a value (unless it is None) into its one place on a server, and gives what is there."""


def redis(server: Server, *words: str) -> bytes:
    return exchange(server.host, server.port, " ".join(words).encode() + b"\r\n")


def in_redis(server: Server, value: str | None) -> str | None:
    if value is not None:
        assert redis(server, "SET", "key", value) == b"+OK\r\n"
    answer = redis(server, "GET", "key")
    return None if answer == b"$-1\r\n" else answer.split(b"\r\n")[1].decode()


def in_zookeeper(server: Server, value: str | None) -> str | None:
    client = KazooClient(f"{server.host}:{server.port}")
    try:
        client.start(PATIENCE_S)
        if value is not None:
            client.create("/key", value.encode())
        found: bytes | None = client.get("/key")[0] if client.exists("/key") else None
        return None if found is None else found.decode()
    finally:
        client.stop()
        client.close()


def in_etcd(server: Server, value: str | None) -> str | None:
    def call(name: str, **given: str) -> Any:
        body = {key: base64.b64encode(text.encode()).decode() for key, text in given.items()}
        url = f"http://{server.host}:{server.port}/v3/kv/{name}"
        with urlopen(url, json.dumps(body).encode(), PATIENCE_S) as answer:
            return json.loads(answer.read())

    if value is not None:
        call("put", key="key", value=value)
    found = call("range", key="key").get("kvs")
    return base64.b64decode(found[0]["value"]).decode() if found else None


def in_dynamodb(server: Server, value: str | None) -> str | None:
    credentials = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    url = f"http://{server.host}:{server.port}"
    with closing(boto3.client("dynamodb", endpoint_url=url, region_name="us-east-1", **credentials)) as client:
        if value is not None:
            client.create_table(
                TableName="table",
                KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
            client.put_item(TableName="table", Item={"key": {"S": "key"}, "value": {"S": value}})
        if "table" not in client.list_tables()["TableNames"]:
            return None
        return str(client.get_item(TableName="table", Key={"key": {"S": "key"}})["Item"]["value"]["S"])


def bucket(server: Server) -> S3Store:
    return S3Store(
        BUCKET,
        endpoint=f"http://{server.host}:{server.port}",
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region="us-east-1",
        client_options={"allow_http": True},
    )


def in_seaweedfs(server: Server, value: str | None) -> str | None:
    store = bucket(server)
    if value is not None:
        obstore.put(store, "key", value.encode())
    names = [meta["path"] for batch in obstore.list(store) for meta in batch]
    return bytes(obstore.get(store, "key").bytes()).decode() if names else None


PLACES: dict[str, Values] = {
    "redis": in_redis,
    "zookeeper": in_zookeeper,
    "etcd": in_etcd,
    "dynamodb": in_dynamodb,
    "seaweedfs": in_seaweedfs,
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    opened: list[Server] = []

    def open_one(name: str) -> Server:
        opened.append(open_server(name, tmp_path))
        return opened[-1]

    yield open_one
    for server in opened:
        server.close()


@pytest.mark.parametrize("name", NAMES)
def test_data_survives_a_stop_and_a_kill_and_no_wipe(start: Callable[[str], Server], name: str) -> None:
    server, value_at = start(name), PLACES[name]
    place = server.host, server.port
    assert value_at(server, None) is None
    assert value_at(server, "value") == "value"
    server.kill()
    server.kill()
    server.start()
    server.start()
    assert value_at(server, None) == "value"
    with pytest.raises(InvalidRequest, match="stop it"):
        server.wipe()
    server.stop()
    with pytest.raises(ConnectionError), socket.create_connection((server.host, server.port), PATIENCE_S) as left:
        left.sendall(b"?")  # an engine's own proxy may still accept, and then resets
        assert left.recv(1)
    server.wipe()
    server.start()
    assert value_at(server, None) is None and (server.host, server.port) == place


def test_a_paused_server_is_silent_until_it_is_resumed(start: Callable[[str], Server]) -> None:
    server = start("redis")
    server.pause()
    with socket.create_connection((server.host, server.port), SILENCE_S) as connection:
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
        server.resume()
        connection.settimeout(PATIENCE_S)
        assert connection.recv(100) == b"+PONG\r\n"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_paused_server_can_be_ended(start: Callable[[str], Server], end: str) -> None:
    server = start("redis")
    server.pause()
    getattr(server, end)()
    assert redis(server, "PING") == b""
    with pytest.raises(InvalidRequest, match="start it"):
        server.pause()
    server.start()
    assert redis(server, "PING") == b"+PONG\r\n"


def test_seaweedfs_decides_conditional_puts(start: Callable[[str], Server]) -> None:
    store = bucket(start("seaweedfs"))

    def create(number: int) -> bool:
        try:
            obstore.put(store, "contended", str(number).encode(), mode="create")
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as crowd:
        created = list(crowd.map(create, range(8)))
    assert sum(created) == 1
    assert int(bytes(obstore.get(store, "contended").bytes())) == created.index(True)
    first = obstore.head(store, "contended")["e_tag"]
    obstore.put(store, "contended", b"second", mode={"e_tag": first})
    with pytest.raises(PreconditionError):
        obstore.put(store, "contended", b"third", mode={"e_tag": first})
    assert bytes(obstore.get(store, "contended").bytes()) == b"second"


class Failing(LocalServer):
    name = "failing"

    def command(self) -> list[str]:
        return ["sh", "-c", "echo why it failed; exit 3"]

    def answers(self) -> bool:
        return False


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    with closing(Failing(tmp_path)) as server, pytest.raises(Unavailable, match=r"(?s)status 3.*why it failed"):
        server.start()


STARTER = """
import sys, threading
from pathlib import Path
from lakelatch.testing.servers import open_server
servers = []
thread = threading.Thread(target=lambda: servers.append(open_server("redis", Path(sys.argv[1]), "local")))
thread.start()
thread.join()
print(servers[0].port, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_a_server_outlives_its_thread_but_not_its_process(tmp_path: Path, killed: bool) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        assert exchange("127.0.0.1", port, b"PING\r\n") == b"+PONG\r\n"
        if killed:
            os.kill(child.pid, signal.SIGKILL)
    assert wait_until(lambda: not exchange("127.0.0.1", port, b"PING\r\n"), PATIENCE_S)


@pytest.mark.parametrize("name, kind", [("rediss", "local"), ("redis", "docker")])
def test_a_slip_of_the_pen_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    with pytest.raises(InvalidRequest, match=r"redis, |LAKELATCH_TEST_SERVERS=docker"):
        open_server(name, tmp_path, kind)


def test_the_environment_chooses_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("local", "containers"):
        monkeypatch.setenv("LAKELATCH_TEST_SERVERS", kind)
        assert chosen() == kind
    monkeypatch.delenv("LAKELATCH_TEST_SERVERS")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert chosen() == "local"


def test_every_image_that_tests_ask_for_can_be_made() -> None:
    made = (ROOT / "tests" / "containers" / "build").read_text()
    assert sorted(IMAGES) == sorted(NAMES) == sorted(PLACES)
    for name, image in IMAGES.items():
        assert f"obtain {image.name} {name}" in made
        assert (ROOT / "tests" / "containers" / name / "Dockerfile").exists()
