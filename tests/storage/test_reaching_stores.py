"""How a store is reached: own certificates, proxies, addresses by path; and what is refused where it means nothing."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage import open_storage
from lakelatch.storage.contract import Storage
from lakelatch.storage.options import StorageOptions
from lakelatch.testing.servers import HttpProxy, Server, TcpProxy
from lakelatch.testing.servers.reach import place_options
from lakelatch.testing.servers.seaweedfs import BUCKET

SECRET = "very-secret"


def opened(server: Server | HttpProxy, path: str, **changed: str) -> Storage:
    changes = {f"lakelatch.storage.{key}": value for key, value in {"timeout_s": "5", **changed}.items()}
    return open_storage(path, StorageOptions.from_options({**place_options(server), **changes}))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody has signed, with its key beside it."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return folder / "ca.pem"


@pytest.fixture
def tls_port(seaweedfs_server: Server, certificate: Path) -> Iterator[int]:
    """Where the object store answers with TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_serve, args=(listening, context, seaweedfs_server), daemon=True).start()
        yield listening.getsockname()[1]


def _serve(listening: socket.socket, context: ssl.SSLContext, server: Server) -> None:
    with suppress(OSError):
        while True:
            threading.Thread(target=_pass_on, args=(listening.accept()[0], context, server), daemon=True).start()


def _pass_on(accepted: socket.socket, context: ssl.SSLContext, server: Server) -> None:
    with (
        suppress(OSError),
        context.wrap_socket(accepted, server_side=True) as client,
        socket.create_connection((server.host, server.port)) as behind,
    ):
        threading.Thread(target=_copy, args=(behind, client.sendall), daemon=True).start()
        _copy(client, behind.sendall)


def _copy(source: socket.socket, send: Callable[[bytes], object]) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            send(data)


def test_a_store_with_a_certificate_of_its_own(
    seaweedfs_server: Server, tls_port: int, certificate: Path, tmp_path: Path
) -> None:
    place = {"endpoint_url": f"https://localhost:{tls_port}", "allow_http": "false"}
    storage = opened(seaweedfs_server, f"s3://{BUCKET}/{tmp_path.name}", **place, ca_file=str(certificate))
    assert storage.put_if_absent("a", b"1") is True and storage.read("a") == b"1"
    with pytest.raises((InvalidRequest, Unavailable)) as told:
        opened(seaweedfs_server, f"s3://{BUCKET}/{tmp_path.name}", **place).read("a")
    assert "lakelatch.storage.ca_file" in str(told.value)


def test_certificates_that_are_none(seaweedfs_server: Server, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, match in (("empty", "holds no certificate in PEM"), ("nowhere", r"cannot be read \(No such file")):
        storage = opened(seaweedfs_server, f"s3://{BUCKET}/x", ca_file=str(tmp_path / name))
        with pytest.raises(InvalidRequest, match=f"lakelatch.storage.ca_file=.*{name}.*{match}"):
            storage.read("a")


def test_requests_go_by_a_proxy(seaweedfs_server: Server, tmp_path: Path) -> None:
    """The name of the store leads nowhere but by the proxy."""
    with closing(TcpProxy(seaweedfs_server.host, seaweedfs_server.port)) as proxy:
        place = {"endpoint_url": "http://store.invalid:80", "proxy_url": f"http://{proxy.host}:{proxy.port}"}
        storage = opened(seaweedfs_server, f"s3://{BUCKET}/{tmp_path.name}", **place)
        assert storage.put_if_absent("a", b"1") is True and storage.read("a") == b"1"
        assert opened(seaweedfs_server, f"s3://{BUCKET}/{tmp_path.name}").read("a") == b"1"


def test_a_proxys_password_is_in_no_text(seaweedfs_server: Server) -> None:
    for address in (f"http://me:{SECRET}@127.0.0.1:1", f"me:{SECRET}@127.0.0.1:1"):
        values = {"lakelatch.storage.proxy_url": address}
        storage = opened(seaweedfs_server, f"s3://{BUCKET}/x", proxy_url=address)
        assert SECRET not in f"{storage!r} {StorageOptions.from_options(values)!r}"
        with pytest.raises((InvalidRequest, Unavailable)) as told:
            storage.read("a")
        assert SECRET not in str(told.value)


def test_a_bucket_is_asked_for_by_path(seaweedfs_server: Server, tmp_path: Path) -> None:
    with closing(HttpProxy(seaweedfs_server.host, seaweedfs_server.port)) as proxy:
        opened(proxy, f"s3://{BUCKET}/{tmp_path.name}").put("a", b"1")
        assert [one.path for one in proxy.requests] == [f"/{BUCKET}/{tmp_path.name}/a"]


@pytest.mark.parametrize(
    ("path", "option", "value"),
    [
        ("gs://bucket/t", "endpoint_url", "https://host"),
        ("gs://bucket/t", "region", "eu"),
        ("gs://bucket/t", "allow_http", "true"),
        ("gs://bucket/t", "access_key_id", "me"),
        ("gs://bucket/t", "secret_access_key", SECRET),
        ("abfss://container@account.dfs.core.windows.net/t", "region", "eu"),
    ],
)
def test_an_option_that_means_nothing_at_a_store_is_refused(path: str, option: str, value: str) -> None:
    scheme = path.partition(":")[0]
    with pytest.raises(InvalidRequest, match=f"lakelatch.storage.{option} means nothing at {scheme}://") as told:
        open_storage(path, StorageOptions.from_options({f"lakelatch.storage.{option}": value}))
    assert SECRET not in str(told.value)
