"""Lock services that break their promises, as real ones do: a failover that loses state, a session that ends early."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.contract import exchange, wait_until
from lakelatch.testing.servers.redis import LocalRedis
from lakelatch.torture.nemesis.nemesis import Nemesis

_SYNC_TIMEOUT_S = 10.0
_MISSED_LEASES = 0.5
_PATIENCE_S = 3.0


def replica_promoted(nemesis: Nemesis) -> None:
    """Redis fails over to a replica that lacks the last writes: leases, tokens and times of a second are forgotten."""
    master = nemesis.locks.server
    if master is None or nemesis.busy("server"):
        return
    link = TcpProxy(master.host, master.port)
    folder = nemesis.locks.folder.with_name(f"redis-{REAL_SYSTEM.new_id()[:8]}")
    replica = LocalRedis(folder)
    replica.start()
    exchange(replica.host, replica.port, f"REPLICAOF {link.host} {link.port}\r\n".encode())
    if not wait_until(lambda: _in_sync(replica), _SYNC_TIMEOUT_S):
        link.close()
        replica.close()
        return
    link.cut()
    missed_s = nemesis.place.lease_s * _MISSED_LEASES

    def promote() -> None:
        link.close()
        exchange(replica.host, replica.port, b"REPLICAOF NO ONE\r\n")
        nemesis.locks.replace_server(replica)

    nemesis.begin("replica_promoted", "server", promote, missed_s, detail=json.dumps({"missed_s": missed_s}))


def _in_sync(replica: Server) -> bool:
    return b"master_link_status:up" in exchange(replica.host, replica.port, b"INFO replication\r\n")


def session_expired(nemesis: Nemesis) -> None:
    """ZooKeeper ends the session of a client that holds or waits for a lock, and that does not learn it at once."""
    server = nemesis.locks.server
    if server is None or nemesis.busy("server"):
        return

    def expire() -> None:
        _expire_one(nemesis, f"{server.host}:{server.port}")

    nemesis.threads.append(REAL_SYSTEM.start_thread(expire, "expire"))


def _expire_one(nemesis: Nemesis, hosts: str) -> None:
    from kazoo.client import KazooClient  # installed where ZooKeeper is used
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    looking = KazooClient(hosts, timeout=_PATIENCE_S)
    try:
        looking.start(_PATIENCE_S)
        owners = sorted(set(_owners(looking, "/")) - {(looking.client_id or (0, b""))[0]})
        if not owners:
            return
        owner = nemesis.draw.choice(owners)
        same = KazooClient(hosts, timeout=_PATIENCE_S, client_id=(owner, password_of(owner)))
        try:
            same.start(_PATIENCE_S)
            if same.client_id is not None and same.client_id[0] == owner:
                nemesis.begin("session_expired", "server", lambda: None, 0)  # before others can be granted anything
        finally:
            same.stop()  # which ends the session for all clients in it
            same.close()
    except (KazooException, KazooTimeoutError):
        return
    finally:
        looking.stop()
        looking.close()


def _owners(client: Any, path: str) -> Iterator[int]:
    """The sessions that own ephemeral nodes."""
    for name in client.get_children(path):
        inner = f"{path.rstrip('/')}/{name}"
        if inner == "/zookeeper":
            continue
        found = client.exists(inner)
        if found is not None and found.ephemeralOwner:
            yield found.ephemeralOwner
        elif found is not None and found.numChildren:
            yield from _owners(client, inner)


def password_of(session: int) -> bytes:
    """The password of a session, as ZooKeeper's server draws it: from java.util.Random, whose seed is the session."""
    mask = (1 << 48) - 1
    state = ((session ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    password = b""
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += ((state >> 16) & 0xFFFFFFFF).to_bytes(4, "little")
    return password


HALF_BROKEN: dict[str, Callable[[Nemesis], None]] = {
    "replica_promoted": replica_promoted,
    "session_expired": session_expired,
}
