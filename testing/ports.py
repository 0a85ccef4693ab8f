"""Ports of loopback for servers, of which no two processes of a machine choose the same."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import threading
from pathlib import Path

from lakelatch.errors import Unavailable
from lakelatch.system import REAL_SYSTEM, System

_PORT_MIN = 10_000
_guard = threading.Lock()
_claimed: set[int] = set()
_claims: list[int] = []  # the open file of claims; closing it would give all of them up


def free_port(system: System = REAL_SYSTEM) -> int:
    """A port of loopback that is free now; this process has it for as long as it lives.

    A server listens a moment after its port was chosen, and again after each restart: another process that chooses
    meanwhile would find it free. It is not one that the kernel gives to outgoing connections: a client that retries on
    such a port while its server is down can end up connected to itself, and the server cannot come back.
    """
    with _guard:
        for _ in range(1000):
            port = _PORT_MIN + int(system.random() * (_ephemeral_min() - _PORT_MIN))
            if port not in _claimed and _claim(port) and _is_free(port):
                return port
    raise Unavailable("no free port was found on 127.0.0.1 in 1000 attempts: end what occupies them")


def _claim(port: int) -> bool:
    """Locks one byte of a file that all processes of this user share; the kernel lets go of it when one ends."""
    if not _claims:
        path = Path(tempfile.gettempdir()) / f"lakelatch-ports-{os.getuid()}"
        _claims.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.lockf(_claims[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _claimed.add(port)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _ephemeral_min() -> int:
    try:
        found = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        found = 0
    return found if found > _PORT_MIN + 1000 else 32_768
