"""How etcd's provider gets on with its surroundings: forks, the end of a process, TLS, options, libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyetcd
import pytest

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.etcd.fork_gate import ForkGate
from lakelatch.locks.etcd.provider import EtcdLockProvider
from lakelatch.testing.conformance.in_processes import in_fork
from lakelatch.testing.conformance.lock_provider import SOON_S, waiting_for
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.contract import wait_until
from lakelatch.testing.servers.etcd import LocalEtcd
from lakelatch.testing.servers.reach import lock_options

URL = "hoodie.write.lock.etcd.url"
CLIENT = "hoodie.write.lock.etcd.client"
TIMEOUT_S = 60.0
opened: list[Any] = []

HOLD_AND_END = """
import faulthandler, os, sys, threading
faulthandler.dump_traceback_later(30, exit=True)  # who does not end says where it stands
from lakelatch.locks.contract import LockScope
from lakelatch.locks.etcd.provider import EtcdLockProvider

provider = EtcdLockProvider(LockScope(sys.argv[2], {"hoodie.write.lock.etcd.url": sys.argv[1]}))
lease = provider.acquire("table", 10)
threading.Thread(target=provider.acquire, args=("table", 1000), daemon=True).start()
while provider.holders()[0].waiting == 0:
    pass
print("waits", flush=True)
"""

LOOK = """
import os, threading

def watching():
    return "lakelatch-etcd-watches" in [thread.name for thread in threading.enumerate()]

# These hooks run in reverse order, so this shows what is left when the fork comes.
os.register_at_fork(before=lambda: print("still watching" if watching() else "at rest", flush=True))
"""

FORK = """
while not watching():
    pass
child = os.fork()
if child == 0:
    try:
        provider.acquire("other", 10)
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""

TRY_ONCE = """
import sys
from lakelatch.errors import Unavailable
from lakelatch.locks.contract import LockScope
from lakelatch.locks.etcd.provider import EtcdLockProvider

try:
    EtcdLockProvider(LockScope("file:///t", {"hoodie.write.lock.etcd.url": sys.argv[1]})).acquire("table", 0)
except Unavailable as error:
    print(error)
"""


def make_client(**settings: Any) -> Any:
    client = pyetcd.client(**settings)
    opened.append(client)
    return client


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.fixture
def make_provider(etcd_server: Server, tmp_path: Path) -> Callable[..., EtcdLockProvider]:
    options = lock_options(etcd_server, lease_s=3)
    return lambda **more: EtcdLockProvider(LockScope(f"file://{tmp_path}", {**options, **more}))


def test_a_forked_child_has_a_connection_of_its_own(
    make_provider: Callable[..., EtcdLockProvider], capfd: pytest.CaptureFixture[str]
) -> None:
    """While its parent holds one key, waits for it in another thread, and takes and releases a third without pause."""
    stop = threading.Event()

    def work() -> int:
        rounds = 0
        while not stop.is_set():
            parent.acquire("busy", SOON_S).release()
            rounds += 1
        return rounds

    def check() -> None:
        assert not lease.valid()
        own = make_provider()
        taken = own.acquire("child's", SOON_S)
        assert taken.valid() and {holder.key for holder in own.holders()} >= {"child's", TABLE_KEY}
        assert parent.acquire("another", SOON_S).release()
        assert taken.release()
        own.close()

    with closing(make_provider()) as parent, waiting_for() as start:
        lease = parent.acquire(TABLE_KEY, 1)
        waiter, worker = start(lambda: parent.acquire(TABLE_KEY, TIMEOUT_S)), start(work)
        assert wait_until(lambda: parent.holders(TABLE_KEY)[0].waiting == 1, SOON_S)
        for _ in range(10):
            assert in_fork(check)
        assert lease.valid() and not waiter.done()
        assert lease.release() and waiter.result(SOON_S).release()
        stop.set()
        assert worker.result(SOON_S) > 0
    assert capfd.readouterr().err == ""


def test_no_thread_is_inside_a_library_while_its_process_forks() -> None:
    inside: list[int] = []
    gate, stop, connected = ForkGate(), threading.Event(), Connected()

    def work() -> int:
        while not stop.is_set():
            with gate.passing():
                inside.append(0)
                connected.open = True
                stop.wait(0.001)
                inside.pop()
        return 0

    def check() -> None:
        assert inside == [] and not connected.open
        with gate.passing():
            pass

    gate.add(connected)
    with waiting_for() as start:
        workers = [start(work) for _ in range(4)]
        assert all(in_fork(check) for _ in range(10))
        stop.set()
        assert [worker.result(SOON_S) for worker in workers] == [0] * 4


class Connected:
    open = False

    def disconnect(self) -> None:
        self.open = False


@pytest.mark.parametrize("support", ["1", "0"])
def test_the_switch_of_grpc_for_forks(etcd_server: Server, tmp_path: Path, support: str) -> None:
    """With it off a child could only hang, and says so. In any case the stream of watches is closed before."""
    url = lock_options(etcd_server)[URL]
    ended = run(LOOK + HOLD_AND_END + FORK, url, f"file://{tmp_path}", GRPC_ENABLE_FORK_SUPPORT=support)
    assert ended.returncode == 0 and ended.stdout.startswith("waits\nat rest\n")
    assert ("GRPC_ENABLE_FORK_SUPPORT switched off" in ended.stdout) == (support == "0")


def test_a_process_ends_without_closing(
    make_provider: Callable[..., EtcdLockProvider], etcd_server: Server, tmp_path: Path
) -> None:
    ended = run(HOLD_AND_END, lock_options(etcd_server)[URL], f"file://{tmp_path}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "waits\n", "")
    with closing(make_provider()) as provider:
        assert provider.holders() == []


def tls_provider(url: str, **files: str) -> EtcdLockProvider:
    return EtcdLockProvider(
        LockScope("file:///t", {URL: url, **{f"hoodie.write.lock.etcd.{key}": file for key, file in files.items()}})
    )


def test_tls(tmp_path: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    files = [f"--cert-file={certificate}", f"--key-file={key}", f"--trusted-ca-file={certificate}"]
    server = LocalEtcd(tmp_path / "server", [*files, "--client-cert-auth"])
    server.start()
    try:
        place = f"https://localhost:{server.port}"
        pair = {"cert_cert": certificate, "cert_key": key}
        with closing(tls_provider(place, ca_cert=certificate, **pair)) as provider:
            assert provider.acquire(TABLE_KEY, 5).release()
        for more in ({"ca_cert": certificate}, pair):  # without a certificate of the client, without one to check by
            with closing(tls_provider(place, **more)) as provider, pytest.raises(Unavailable):
                provider.acquire(TABLE_KEY, 0.5)
        told = run(TRY_ONCE, place)
        assert "CERTIFICATE_VERIFY_FAILED" in told.stdout and told.stderr == ""  # gRPC's own lines would stand there
        provider = tls_provider(place, ca_cert="/nowhere.pem")
        with closing(provider), pytest.raises(InvalidRequest, match=r"etcd\.ca_cert cannot be read"):
            provider.acquire(TABLE_KEY, 0.5)
    finally:
        server.close()


def test_a_client_of_the_users_own(make_provider: Callable[..., EtcdLockProvider]) -> None:
    sys.modules["clients_of_a_test"] = sys.modules[__name__]
    try:
        with closing(make_provider(**{CLIENT: "clients_of_a_test:make_client"})) as provider:
            assert provider.acquire(TABLE_KEY, 5).release()
            assert [type(client) for client in opened] == [pyetcd.Etcd3Client]
        for wrong in ("clients_of_a_test:none", "no_such_module:client", "clients_of_a_test", ":"):
            with pytest.raises(InvalidRequest, match=r"etcd\.client=.*module:function"):
                make_provider(**{CLIENT: wrong})
        odd = make_provider(**{CLIENT: "builtins:dict"})
        with closing(odd), pytest.raises(InvalidRequest, match=r"gave a dict, which is no client of the etcd3 API"):
            odd.acquire(TABLE_KEY, 0)
    finally:
        del sys.modules["clients_of_a_test"]


def test_without_a_library_it_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "sys.modules.update(pyetcd=None, etcd3=None)\n"
        "from lakelatch.locks.contract import LockScope\n"
        "from lakelatch.locks.etcd.provider import EtcdLockProvider\n"
        "EtcdLockProvider(LockScope('file:///t', {'hoodie.write.lock.etcd.url': 'http://h'}))\n"
    )
    assert "LAKELATCH-INVALID" in (said := run(script).stderr) and "pip install 'lakelatch[etcd]'" in said


@pytest.mark.parametrize(
    "url", ["", "h:2379", "redis://h", "http://", "http://h:port", "http://h:1,", "http://u:secret@h", "http://h/path"]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"hoodie\.write\.lock\.etcd\.url") as caught:
        EtcdLockProvider(LockScope("file:///t", {URL: url}))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "more, said",
    [
        ({"username": "u"}, r"etcd\.username is given without .*etcd\.password"),
        ({"password": "p"}, r"etcd\.password is given without .*etcd\.username"),
        ({"cert_key": "k"}, r"etcd\.cert_key is given without .*etcd\.cert_cert"),
        ({"ca_cert": "c"}, r"etcd\.url is not for TLS: begin it with https"),
        ({"passwort": "p"}, r"etcd\.passwort is no option.*password"),
    ],
)
def test_options_that_do_not_fit_are_refused(more: dict[str, str], said: str) -> None:
    options = {URL: "http://h", **{f"hoodie.write.lock.etcd.{key}": value for key, value in more.items()}}
    with pytest.raises(InvalidRequest, match=said):
        EtcdLockProvider(LockScope("file:///t", options))
