"""The faults that the nemesis injects: a function, or a row of a table, for each kind, under its name.

Each records itself by `nemesis.begin`, or does nothing if there was nothing to harm. Those that take a while to happen
(a client has to reach a failpoint) are recorded when they do.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from lakelatch.errors import Unavailable
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server
from lakelatch.torture.nemesis.nemesis import OWN_ROWS, Nemesis, Running
from lakelatch.torture.settings import LYING

_WRITERS = ("transfer", "append", "compact")
_ALL_WHO_PUT = (*_WRITERS, *OWN_ROWS)
_WITH_STORAGE = (*_ALL_WHO_PUT, "tail", "snapshot", "cut")  # a job of Spark opens its own
_CLOCK_STEPS_MS = (-3_600_000, -60_000, -1500, 800, 30_000, 3_600_000)
_BALLAST = "ballast"

Harm: TypeAlias = Callable[[Nemesis], None]
OnServer: TypeAlias = Callable[[Server], None]
HarmClient: TypeAlias = Callable[[Nemesis, Running], None]

FAULTS: dict[str, Harm] = {}
ON_SERVERS = set[str]()  # kinds that need a lock server
ONLY_ON = {"replica_promoted": "redis", "session_expired": "zookeeper"}


def fault(harm: Harm) -> Harm:
    """Makes a function one of the kinds of fault, under its name."""
    FAULTS[harm.__name__] = harm
    return harm


def server_fault(harm: Harm) -> Harm:
    """As `fault`, for one that needs a lock server."""
    ON_SERVERS.add(harm.__name__)
    return fault(harm)


def on_client(kind: str, *roles: str) -> Callable[[HarmClient], HarmClient]:
    """Makes a function a kind of fault that a client in good health suffers, one of these roles if there are any."""

    def register(harm: HarmClient) -> HarmClient:
        def harm_one(nemesis: Nemesis) -> None:
            running = nemesis.pick(*roles)
            if running is not None:
                harm(nemesis, running)

        FAULTS[kind] = harm_one
        return harm

    return register


def applies(kind: str, nemesis: Nemesis) -> bool:
    """Whether there is anything in this round that such a fault could harm."""
    if kind in ON_SERVERS:
        return nemesis.locks.server is not None
    if kind in ("lease_taken_away", "forked_holder"):  # a lock that lies says nothing true of copies, either
        return nemesis.place.provider != LYING
    if kind in ONLY_ON:
        return nemesis.place.provider == ONLY_ON[kind]
    if kind == "table_hangs" or kind.startswith("move_"):
        return nemesis.place.tables > 1
    return nemesis.on_memory_disk if kind == "disk_full" else True


def _lasts_s(nemesis: Nemesis, least: float, most: float) -> float:
    """In lease times."""
    return nemesis.place.lease_s * (least + (most - least) * nemesis.draw.random())


# -- clients ----------------------------------------------------------------------------------------------------------


def _client_faults(prefix: str, at_steps: Sequence[str], anywhere: Sequence[str], least: float, most: float) -> None:
    """Clients are stopped, killed or failed at a named step, and paused or killed anywhere."""
    for action in ("stop", "kill", "raise"):
        on_client(f"{prefix}{action}_at_step", *at_steps)(partial(_arm, action=action))
    on_client(f"{prefix}paused", *anywhere)(partial(_pause, kind=f"{prefix}paused", least=least, most=most))
    on_client(f"{prefix}killed", *anywhere)(partial(_kill, kind=f"{prefix}killed"))


def _arm(nemesis: Nemesis, running: Running, action: str) -> None:
    nemesis.arm(running, action, f"armed {action}")


def _pause(nemesis: Nemesis, running: Running, kind: str, least: float, most: float) -> None:
    running.signal(signal.SIGSTOP)
    nemesis.harm(running, kind, partial(running.signal, signal.SIGCONT), _lasts_s(nemesis, least, most))


def _kill(nemesis: Nemesis, running: Running, kind: str, detail: str = "", lease_s: float | None = None) -> None:
    running.signal(signal.SIGKILL)
    nemesis.kill(running, kind, detail, lease_s)


_client_faults("", _WRITERS, (), 0.2, 2.5)
for _role in OWN_ROWS:
    _client_faults(f"{_role}_", (_role,), (_role,), 1.2, 3)


@on_client("other_settings", *_WRITERS)
def other_settings(nemesis: Nemesis, running: Running) -> None:
    """A client is killed, and comes back with a lease time and heartbeats that differ from all others'."""
    lease_s = nemesis.place.lease_s * nemesis.draw.choice((0.75, 1.5))
    _kill(nemesis, running, "other_settings", f"lease of {lease_s:g} s", lease_s)


@on_client("forked_holder", *_WRITERS)
def forked_holder(nemesis: Nemesis, running: Running) -> None:
    """A holder of the table's lease forks; its child must not be able to do anything with it."""
    running.tell("fork")  # and it reports when it has


@on_client("clock_stepped", *_ALL_WHO_PUT)
def clock_stepped(nemesis: Nemesis, running: Running) -> None:
    _clock(nemesis, running, "clock_stepped", nemesis.draw.choice(_CLOCK_STEPS_MS), 1.0)


@on_client("clock_drifts", *_ALL_WHO_PUT)
def clock_drifts(nemesis: Nemesis, running: Running) -> None:
    _clock(nemesis, running, "clock_drifts", 0, nemesis.draw.choice((0.5, 0.9, 1.1, 2.0)))


def _clock(nemesis: Nemesis, running: Running, kind: str, offset_ms: int, rate: float) -> None:
    running.tell("clock", values={"offset_ms": offset_ms, "rate": rate})
    right = partial(running.tell, "clock", values={"offset_ms": 0, "rate": 1.0})
    nemesis.harm(running, kind, right, _lasts_s(nemesis, 1, 4), f"{offset_ms} ms, times {rate:g}")


# -- storage ----------------------------------------------------------------------------------------------------------

# By kind: the clients, the least and the greatest duration in lease times, and what goes wrong, by the lease time.
_STORAGE_FAULTS: Mapping[str, tuple[Sequence[str], float, float, Callable[[float], Mapping[str, float]]]] = {
    "storage_cut": (_WITH_STORAGE, 0.3, 2, lambda _: {"cut": True}),
    "storage_slow": (_WITH_STORAGE, 1, 3, lambda lease_s: {"slow_s": 0.1 * lease_s}),
    "storage_fails": (_WITH_STORAGE, 1, 3, lambda _: {"unavailable": 0.1}),
    "storage_answers_lost": (_ALL_WHO_PUT, 1, 3, lambda _: {"lost_before": 0.08, "lost_after": 0.08}),
    "storage_late": (_ALL_WHO_PUT, 1, 3, lambda _: {"late": 0.1}),
}


def _storage_fails(nemesis: Nemesis, running: Running, kind: str) -> None:
    _, least, most, rates_of = _STORAGE_FAULTS[kind]
    rates = rates_of(nemesis.place.lease_s)
    running.tell("storage", values=rates)
    none = {name: type(value)(0) for name, value in rates.items()}
    nemesis.harm(running, kind, partial(running.tell, "storage", values=none), _lasts_s(nemesis, least, most))


for _kind in _STORAGE_FAULTS:
    on_client(_kind, *_STORAGE_FAULTS[_kind][0])(partial(_storage_fails, kind=_kind))


@fault
def table_hangs(nemesis: Nemesis) -> None:
    """The storage of one table answers nobody, at times for many leases; those of the others do."""
    table = nemesis.draw.randrange(nemesis.place.tables)
    if nemesis.hanging:
        return

    def turn(hangs: bool) -> None:
        (nemesis.hanging.add if hangs else nemesis.hanging.discard)(table)
        for running in nemesis.clients.values():
            running.tell("storage", values={"hangs": hangs}, table=table)

    turn(True)
    lasts_s = nemesis.place.lease_s * 0.5 * 60 ** nemesis.draw.random()
    nemesis.begin("table_hangs", f"table-{table}", partial(turn, False), lasts_s)


@fault
def disk_full(nemesis: Nemesis) -> None:
    """The table's disk is full; writes in progress end in the middle."""
    if nemesis.busy("disk"):
        return
    ballast = nemesis.place.table / _BALLAST
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65_536))
        except OSError:
            pass
    nemesis.begin("disk_full", "disk", lambda: ballast.unlink(missing_ok=True), _lasts_s(nemesis, 0.3, 1))


# -- locks ------------------------------------------------------------------------------------------------------------


def _cut_way(nemesis: Nemesis, running: Running, kind: str, to_server: bool, to_client: bool) -> None:
    way = nemesis.locks.ways.get(running.client)
    if way is not None:
        way.cut(to_server, to_client)
        nemesis.harm(running, kind, way.heal, _lasts_s(nemesis, 0.5, 2.5))


for _kind, _to_server, _to_client in (
    ("locks_cut", True, True),
    ("locks_cut_to_server", True, False),
    ("locks_cut_to_client", False, True),  # requests arrive, and their answers do not
):
    ON_SERVERS.add(_kind)
    on_client(_kind, *_ALL_WHO_PUT)(partial(_cut_way, kind=_kind, to_server=_to_server, to_client=_to_client))

ON_SERVERS.add("locks_answers_lost")


@on_client("locks_answers_lost", *_ALL_WHO_PUT)
def locks_answers_lost(nemesis: Nemesis, running: Running) -> None:
    """The next answers to a client do not arrive."""
    way = nemesis.locks.ways.get(running.client)
    if way is not None:
        way.lose_answers(nemesis.draw.choice((1, 2, 5)))
        nemesis.begin("locks_answers_lost", running.client, lambda: way.lose_answers(0), _lasts_s(nemesis, 0.5, 1))


@server_fault
def locks_reset(nemesis: Nemesis) -> None:
    """All connections to the lock server are reset."""
    for way in nemesis.locks.ways.values():
        way.reset()
    nemesis.begin("locks_reset", "server", lambda: None, 0)


@server_fault
def locks_swizzled(nemesis: Nemesis) -> None:
    """All connections are cut one by one, and healed one by one in another order."""
    if nemesis.busy("server") or any(one.kind.startswith("locks_cut") for one in nemesis.faults):
        return
    clients = list(nemesis.locks.ways)
    nemesis.draw.shuffle(clients)
    for number, client in enumerate(clients):
        nemesis.later(number * 0.1, nemesis.locks.ways[client].cut)
    last_s = len(clients) * 0.1
    nemesis.draw.shuffle(clients)
    for number, client in enumerate(clients):
        nemesis.later(last_s + _lasts_s(nemesis, 0.3, 0.6) + number * 0.1, nemesis.locks.ways[client].heal)
    nemesis.begin("locks_swizzled", "server", nemesis.locks.heal_ways, 2 * last_s + _lasts_s(nemesis, 0.7, 0.8))


@fault
def lease_taken_away(nemesis: Nemesis) -> None:
    """The table's lease is broken, and others get it while the holder goes on."""

    def take() -> None:  # which waits for the holder to give way
        if nemesis.locks.take_away(nemesis.draw.choice(nemesis.place.all_tables)):
            nemesis.begin("lease_taken_away", "server", lambda: None, 0)

    nemesis.threads.append(REAL_SYSTEM.start_thread(take, "break"))


def _forget(server: Server) -> None:
    """Ends a server, which will come back without the state that it had promised to keep: leases, tokens, times."""
    server.kill()
    server.wipe()


def _harm_server(nemesis: Nemesis, kind: str, harm: OnServer, heal: OnServer, least: float, most: float) -> None:
    server = nemesis.locks.server
    if server is not None and not nemesis.busy("server"):
        harm(server)
        nemesis.begin(kind, "server", lambda: heal(server), _lasts_s(nemesis, least, most))


for _kind, _harm, _heal, _least, _most in (
    ("server_paused", Server.pause, Server.resume, 0.2, 1.5),
    ("server_restarted", Server.stop, Server.start, 0.1, 0.5),
    ("server_killed", Server.kill, Server.start, 0.1, 1.5),
    ("server_forgets", _forget, Server.start, 0.1, 0.5),
):
    ON_SERVERS.add(_kind)
    FAULTS[_kind] = partial(_harm_server, kind=_kind, harm=_harm, heal=_heal, least=_least, most=_most)


def remove_memory_disk(folder: Path) -> None:
    """Unmounts the disk that `memory_disk` put there, if it did."""
    if folder.is_mount() and subprocess.run(["umount", str(folder)], check=False).returncode:
        raise Unavailable(f"{folder} is a disk in memory that cannot be unmounted now: end what uses it, and try again")


def memory_disk(folder: Path, size_mib: int) -> bool:
    """Puts a small disk in memory at a folder, if this process may."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
