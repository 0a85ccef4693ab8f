"""What the nemesis does: one function for each kind of fault. A new kind is a function more, under its name.

Each says what it did by `nemesis.begin`, or nothing if there was nothing to harm. Those that take a while to come about
(a client has to run into a failpoint) are noted when they have.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from lakelatch.errors import Unavailable
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server
from lakelatch.torture.nemesis.nemesis import SERVICE_ROLES, Nemesis, Running
from lakelatch.torture.settings import LYING

_WRITERS = ("transfer", "append", "compact")
_ALL_WHO_PUT = (*_WRITERS, *SERVICE_ROLES)
_READERS = ("tail", "snapshot")
_CLOCK_STEPS_MS = (-3_600_000, -60_000, -1500, 800, 30_000, 3_600_000)
_BALLAST = "ballast"

FAULTS: dict[str, Callable[[Nemesis], None]] = {}
ON_SERVERS = frozenset(
    (
        "locks_cut",
        "locks_cut_to_server",
        "locks_cut_to_client",
        "locks_answers_lost",
        "locks_reset",
        "locks_swizzled",
        "server_paused",
        "server_restarted",
        "server_killed",
        "server_forgets",
    )
)

ONLY_ON = {"replica_promoted": "redis", "session_expired": "zookeeper"}


def fault(function: Callable[[Nemesis], None]) -> Callable[[Nemesis], None]:
    """Makes a function one of the kinds of fault, under its name."""
    FAULTS[function.__name__] = function
    return function


def applies(kind: str, nemesis: Nemesis) -> bool:
    """Whether there is anything in this round that such a fault could harm."""
    if kind in ON_SERVERS:
        return nemesis.locks.server is not None
    if kind in ("lease_taken_away", "forked_holder"):  # a lock that lies says nothing true of copies, either
        return nemesis.place.provider != LYING
    if kind in ONLY_ON:
        return nemesis.place.provider == ONLY_ON[kind]
    return nemesis.on_memory_disk if kind == "disk_full" else True


def _lasts_s(nemesis: Nemesis, least: float, most: float) -> float:
    """In lease times."""
    return nemesis.place.lease_s * (least + (most - least) * nemesis.draw.random())


# -- clients ----------------------------------------------------------------------------------------------------------


def _armed(nemesis: Nemesis, action: str) -> None:
    running = nemesis.pick(*_WRITERS)
    if running is not None:
        nemesis.arm(running, action, f"armed {action}")


@fault
def stop_at_step(nemesis: Nemesis) -> None:
    """A client stops at a named step until others have given it up, then goes on."""
    _armed(nemesis, "stop")


@fault
def kill_at_step(nemesis: Nemesis) -> None:
    _armed(nemesis, "kill")


@fault
def raise_at_step(nemesis: Nemesis) -> None:
    _armed(nemesis, "raise")


@fault
def paused(nemesis: Nemesis) -> None:
    """Anywhere, for less or for more than its lease."""
    running = nemesis.pick()
    if running is not None:
        _pause(nemesis, running, "paused", 0.2, 2.5)


def _pause(nemesis: Nemesis, running: Running, kind: str, least: float, most: float) -> None:
    running.harmed = kind
    running.signal(signal.SIGSTOP)

    def wake() -> None:
        running.harmed = ""
        running.signal(signal.SIGCONT)

    nemesis.begin(kind, running.client, wake, _lasts_s(nemesis, least, most))


@fault
def killed(nemesis: Nemesis) -> None:
    running = nemesis.pick()
    if running is not None:
        running.signal(signal.SIGKILL)
        nemesis.kill(running, "killed")


# -- services ---------------------------------------------------------------------------------------------------------


def _of_role(role: str) -> None:
    """The rows of those who keep the table: harmed at their own steps, and anywhere."""

    def at_step(action: str) -> Callable[[Nemesis], None]:
        def harm(nemesis: Nemesis) -> None:
            running = nemesis.pick(role)
            if running is not None:
                nemesis.arm(running, action, f"armed {action}")

        return harm

    def pause(nemesis: Nemesis) -> None:
        running = nemesis.pick(role)
        if running is not None:
            _pause(nemesis, running, f"{role}_paused", 1.2, 3)

    def kill(nemesis: Nemesis) -> None:
        running = nemesis.pick(role)
        if running is not None:
            running.signal(signal.SIGKILL)
            nemesis.kill(running, f"{role}_killed")

    for action in ("stop", "kill", "raise"):
        FAULTS[f"{role}_{action}_at_step"] = at_step(action)
    FAULTS[f"{role}_paused"] = pause
    FAULTS[f"{role}_killed"] = kill


for _role in SERVICE_ROLES:
    _of_role(_role)


@fault
def other_settings(nemesis: Nemesis) -> None:
    """A client is killed, and comes back with a lease time and heartbeats that differ from all others'."""
    running = nemesis.pick(*_WRITERS)
    if running is not None:
        running.signal(signal.SIGKILL)
        lease_s = nemesis.place.lease_s * nemesis.draw.choice((0.75, 1.5))
        nemesis.kill(running, "other_settings", f"lease of {lease_s:g} s", lease_s)


@fault
def forked_holder(nemesis: Nemesis) -> None:
    """A holder of the table's lease forks; its child must not be able to do anything with it."""
    running = nemesis.pick(*_WRITERS)
    if running is not None:
        running.tell("fork")  # and it tells when it has


@fault
def clock_stepped(nemesis: Nemesis) -> None:
    running = nemesis.pick(*_ALL_WHO_PUT)
    if running is not None:
        _clock(nemesis, running, "clock_stepped", nemesis.draw.choice(_CLOCK_STEPS_MS), 1.0)


@fault
def clock_drifts(nemesis: Nemesis) -> None:
    running = nemesis.pick(*_ALL_WHO_PUT)
    if running is not None:
        _clock(nemesis, running, "clock_drifts", 0, nemesis.draw.choice((0.5, 0.9, 1.1, 2.0)))


def _clock(nemesis: Nemesis, running: Running, kind: str, offset_ms: int, rate: float) -> None:
    running.harmed = kind
    running.tell("clock", values={"offset_ms": offset_ms, "rate": rate})

    def right() -> None:
        running.harmed = ""
        running.tell("clock", values={"offset_ms": 0, "rate": 1.0})

    nemesis.begin(kind, running.client, right, _lasts_s(nemesis, 1, 4), f"{offset_ms} ms, times {rate:g}")


# -- storage ----------------------------------------------------------------------------------------------------------


def _under(nemesis: Nemesis, kind: str, least: float, most: float, **rates: float) -> None:
    puts = "late" in rates or "lost_after" in rates
    running = nemesis.pick(
        *(_ALL_WHO_PUT if puts else (*_ALL_WHO_PUT, *_READERS))
    )  # a job of Spark opens its own storage
    if running is not None:
        running.harmed = kind
        running.tell("storage", values=rates)

        def clear() -> None:
            running.harmed = ""
            running.tell("storage", values={name: type(value)(0) for name, value in rates.items()})

        nemesis.begin(kind, running.client, clear, _lasts_s(nemesis, least, most))


@fault
def storage_cut(nemesis: Nemesis) -> None:
    """A client reaches nothing of the table."""
    _under(nemesis, "storage_cut", 0.3, 2, cut=True)


@fault
def storage_slow(nemesis: Nemesis) -> None:
    """Each call to the storage takes up to a tenth of a lease time."""
    _under(nemesis, "storage_slow", 1, 3, slow_s=0.1 * nemesis.place.lease_s)


@fault
def storage_fails(nemesis: Nemesis) -> None:
    """One call in ten fails, and says so."""
    _under(nemesis, "storage_fails", 1, 3, unavailable=0.1)


@fault
def storage_answers_lost(nemesis: Nemesis) -> None:
    """Puts, or the answers to them, get lost."""
    _under(nemesis, "storage_answers_lost", 1, 3, lost_before=0.08, lost_after=0.08)


@fault
def storage_late(nemesis: Nemesis) -> None:
    """Puts arrive after their caller gave them up."""
    _under(nemesis, "storage_late", 1, 3, late=0.1)


@fault
def disk_full(nemesis: Nemesis) -> None:
    """No byte more fits beside the table; what is under way ends in the middle."""
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


def _way_cut(nemesis: Nemesis, kind: str, to_server: bool, to_client: bool) -> None:
    running = nemesis.pick(*_ALL_WHO_PUT)
    way = nemesis.locks.ways.get(running.client) if running else None
    if running is not None and way is not None:
        running.harmed = kind
        way.cut(to_server, to_client)

        def heal() -> None:
            running.harmed = ""
            way.heal()

        nemesis.begin(kind, running.client, heal, _lasts_s(nemesis, 0.5, 2.5))


@fault
def locks_cut(nemesis: Nemesis) -> None:
    _way_cut(nemesis, "locks_cut", True, True)


@fault
def locks_cut_to_server(nemesis: Nemesis) -> None:
    _way_cut(nemesis, "locks_cut_to_server", True, False)


@fault
def locks_cut_to_client(nemesis: Nemesis) -> None:
    """Requests arrive, and their answers do not."""
    _way_cut(nemesis, "locks_cut_to_client", False, True)


@fault
def locks_answers_lost(nemesis: Nemesis) -> None:
    """The next answers to a client do not arrive."""
    running = nemesis.pick(*_ALL_WHO_PUT)
    way = nemesis.locks.ways.get(running.client) if running else None
    if running is not None and way is not None:
        way.lose_answers(nemesis.draw.choice((1, 2, 5)))
        nemesis.begin("locks_answers_lost", running.client, lambda: way.lose_answers(0), _lasts_s(nemesis, 0.5, 1))


@fault
def locks_reset(nemesis: Nemesis) -> None:
    """All connections to the lock server are reset."""
    for way in nemesis.locks.ways.values():
        way.reset()
    nemesis.begin("locks_reset", "server", lambda: None, 0)


@fault
def locks_swizzled(nemesis: Nemesis) -> None:
    """All ways are cut one by one, and healed one by one in another order."""
    if nemesis.busy("server") or any(kind.kind.startswith("locks_cut") for kind in nemesis.faults):
        return
    clients = list(nemesis.locks.ways)
    nemesis.draw.shuffle(clients)
    for number, client in enumerate(clients):
        way = nemesis.locks.ways[client]
        nemesis.later(number * 0.1, way.cut)
    last_s = len(clients) * 0.1
    nemesis.draw.shuffle(clients)
    for number, client in enumerate(clients):
        way = nemesis.locks.ways[client]
        nemesis.later(last_s + _lasts_s(nemesis, 0.3, 0.6) + number * 0.1, way.heal)
    nemesis.begin("locks_swizzled", "server", nemesis.locks.heal_ways, 2 * last_s + _lasts_s(nemesis, 0.7, 0.8))


@fault
def lease_taken_away(nemesis: Nemesis) -> None:
    """Somebody breaks the table's lease, whoever holds it, and others get it while the holder goes on."""

    def take() -> None:  # which waits for the holder to give way
        if nemesis.locks.take_away(nemesis.place):
            nemesis.begin("lease_taken_away", "server", lambda: None, 0)

    nemesis.threads.append(REAL_SYSTEM.start_thread(take, "break"))


def _idle_server(nemesis: Nemesis) -> Server | None:
    """The lock server, if nothing is being done to it."""
    return None if nemesis.busy("server") else nemesis.locks.server


@fault
def server_paused(nemesis: Nemesis) -> None:
    server = _idle_server(nemesis)
    if server is not None:
        server.pause()
        nemesis.begin("server_paused", "server", server.resume, _lasts_s(nemesis, 0.2, 1.5))


@fault
def server_restarted(nemesis: Nemesis) -> None:
    server = _idle_server(nemesis)
    if server is not None:
        server.stop()
        nemesis.begin("server_restarted", "server", server.start, _lasts_s(nemesis, 0.1, 0.5))


@fault
def server_killed(nemesis: Nemesis) -> None:
    server = _idle_server(nemesis)
    if server is not None:
        server.kill()
        nemesis.begin("server_killed", "server", server.start, _lasts_s(nemesis, 0.1, 1.5))


@fault
def server_forgets(nemesis: Nemesis) -> None:
    """It comes back without anything that it had promised to keep: leases, tokens, times."""
    server = _idle_server(nemesis)
    if server is not None:
        server.kill()
        server.wipe()
        nemesis.begin("server_forgets", "server", server.start, _lasts_s(nemesis, 0.1, 0.5))


def remove_memory_disk(folder: Path) -> None:
    """Takes away what `memory_disk` put there, if it did."""
    if folder.is_mount() and subprocess.run(["umount", str(folder)], check=False).returncode:
        raise Unavailable(f"{folder} is a disk in memory that cannot be unmounted now: end who uses it, and try again")


def memory_disk(folder: Path, size_mib: int) -> bool:
    """Puts a small disk in memory at a folder, if this process may."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
