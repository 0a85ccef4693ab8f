"""A holder that crashes, and one that is stopped for longer than its lease: who gets the lock, and who knows it.

**Takeover**: the holder gets SIGKILL while another process waits; counted from the signal to the grant, in lease times.
**Zombie**: the holder gets SIGSTOP for longer than its lease, then SIGCONT; counted from that signal to the first time
that the lock itself, without asking its server, says that it is no longer held. Until then the zombie believes it is.
Times of different processes are compared: on one machine they come from one clock (CLOCK_MONOTONIC on Linux).
"""

from __future__ import annotations

import os
import signal
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from bench.harness import Result
from bench.locks.common import BACKENDS, Contender, NotHere, Place, main, open_place, print_table, short
from bench.locks.peers import Adapter, adapters_for, open_contender
from bench.locks.turns import Worker, serve

from lakelatch.system import REAL_SYSTEM

_LEASE_S = 3.0
_PAIRS, _QUICK_PAIRS = 3, 1
_REST_S = 1.2  # between grant and signal, so that at least one renewal has come
_STOPPED_S = 1.5 * _LEASE_S
_DEADLINE_S = 4 * _LEASE_S
_WATCH_S = 3.0
_WATCH_STEP_S = 0.0002
_GUARD_STEP_S = 0.005
_GAP_S = 1.0  # so long a step means that the process was stopped
_GOAL_LEASES = 1.25  # the rest of the lease, and a look
_GOAL_KNOWS_MS = 10.0
_HEADERS = ("lock", "kind", "takeover after SIGKILL, in leases of 3 s", "each")
_ZOMBIE_HEADERS = ("lock", "kind", "granted to another meanwhile", "ms from SIGCONT to 'not held'", "'held' said since")


@dataclass
class _Pair:
    """`seen` is a file in which the holder writes down when its lock last said that it was held."""

    holder: Worker
    waiter: Worker
    seen: Path
    pid: int = 0


@dataclass
class _Line:
    adapter: Adapter
    pairs: list[_Pair]
    values: list[float | None] = field(default_factory=list)  # leases, or milliseconds; None: not in time
    granted: int = 0
    believed: int = 0
    lapsed: int = 0  # granted to another before the signal came, as the holder knew
    two_holders: int = 0  # granted to another before the signal came, and the holder said that it held it


@dataclass(frozen=True)
class _Watched:
    """What the holder saw of itself after it woke up; None: it never said 'not held'."""

    not_held_ns: int | None
    times_held: int


def run(quick: bool = False, backends: Sequence[str] = BACKENDS) -> list[Result]:
    results = []
    for backend in backends:
        try:
            with open_place(backend) as place:
                count = _QUICK_PAIRS if quick else _PAIRS
                results += _with_pairs(place, "takeover", count, _kill)
                results += _with_pairs(place, "zombie", count, _stop)
        except NotHere as error:
            print_table(f"{backend}: takeover", _HEADERS, [], [f"{backend}: {error}"])
    return results


def _with_pairs(
    place: Place, duty: str, count: int, measure: Callable[[str, list[_Line], list[str]], list[Result]]
) -> list[Result]:
    """All locks of a backend at once: they do nothing but wait."""
    adapters, left_out = adapters_for(place.backend, duty)
    with ExitStack() as stack:
        lines = [_Line(adapter, _start(stack, place, duty, adapter.name, count)) for adapter in adapters]
        for line in list(lines):
            try:
                for pair in line.pairs:
                    pair.holder.receive()
                    pair.waiter.receive()
                for pair in line.pairs:
                    pair.pid = pair.holder.ask(("take", _DEADLINE_S))
            except NotHere as error:
                lines.remove(line)
                left_out.append(f"{place.backend}: {line.adapter.name}: {error}")
        for pair in (pair for line in lines for pair in line.pairs):
            pair.waiter.send(("wait", _DEADLINE_S))
        return measure(place.backend, lines, left_out)


def _start(stack: ExitStack, place: Place, duty: str, name: str, count: int) -> list[_Pair]:
    pairs = []
    for number in range(count):
        holder, waiter = (Worker(_work, name, place, duty, f"{duty}-{number}") for _ in range(2))
        stack.callback(holder.end)
        stack.callback(waiter.end)
        pairs.append(_Pair(holder, waiter, _seen(place, name, f"{duty}-{number}")))
    return pairs


def _work(connection: Connection, name: str, place: Place, duty: str, key: str) -> None:
    def obey(contender: Contender, message: tuple[str, float]) -> object:
        return _obey(contender, message, _seen(place, name, key))

    serve(connection, lambda: open_contender(place, name, duty, key, _LEASE_S), obey)


def _seen(place: Place, name: str, key: str) -> Path:
    return Path(place.folder) / f"seen-{name}-{key}"


def _obey(contender: Contender, message: tuple[str, float], seen: Path) -> object:
    order, seconds = message
    if order == "guard":
        _guard(contender, seconds, seen)
        return None
    if order == "watch":
        return _watch(contender, seconds)
    if not contender.acquire(seconds):
        if order == "take":
            raise NotHere("a free lock was not granted")
        return None
    if order == "take":
        return os.getpid()
    got_ns = REAL_SYSTEM.monotonic_ns()
    contender.release()
    return got_ns


def _guard(contender: Contender, guard_s: float, seen: Path) -> None:
    """Writes down, again and again, when it held the lock for sure; ends by being killed."""
    system = REAL_SYSTEM
    began_ns = system.monotonic_ns()
    handle = os.open(seen, os.O_CREAT | os.O_WRONLY, 0o666)
    while (now_ns := system.monotonic_ns()) < began_ns + guard_s * 1e9:
        if contender.held():
            os.pwrite(handle, b"%020d" % now_ns, 0)
        system.sleep(_GUARD_STEP_S)


def _watch(contender: Contender, watch_s: float) -> _Watched:
    """Looks again and again, finds itself woken up from a stop, and looks on until the lock is not held, or in vain."""
    system = REAL_SYSTEM
    last_ns = system.monotonic_ns()
    woke_ns, times_held = None, 0
    while woke_ns is None or last_ns < woke_ns + watch_s * 1e9:
        held = contender.held()
        now_ns = system.monotonic_ns()
        if woke_ns is None and now_ns - last_ns > _GAP_S * 1e9:
            woke_ns = now_ns
        if woke_ns is not None:
            if not held:
                return _Watched(now_ns, times_held)
            times_held += 1
        last_ns = now_ns
        system.sleep(_WATCH_STEP_S)
    with suppress(Exception):  # so that who waits for a lock that does not expire is released
        contender.release()
    return _Watched(None, times_held)


def _kill(backend: str, lines: list[_Line], left_out: list[str]) -> list[Result]:
    for pair in (pair for line in lines for pair in line.pairs):
        pair.holder.send(("guard", _DEADLINE_S))
    REAL_SYSTEM.sleep(_REST_S)
    killed_ns = []
    for pair in (pair for line in lines for pair in line.pairs):
        killed_ns.append(REAL_SYSTEM.monotonic_ns())
        os.kill(pair.pid, signal.SIGKILL)
    times = iter(killed_ns)
    for line in list(lines):
        try:
            for pair in line.pairs:
                since_ns, got_ns = next(times), pair.waiter.receive()
                line.values.append(None if got_ns is None else (got_ns - since_ns) / 1e9 / _LEASE_S)
                line.lapsed += got_ns is not None and got_ns < since_ns
                line.two_holders += got_ns is not None and got_ns < int(pair.seen.read_text() or "0")
        except NotHere as error:
            lines.remove(line)
            left_out.append(f"{backend}: {line.adapter.name}: {error}")
    for line in lines:
        if line.lapsed:
            said = f"{line.adapter.name} was granted to another {line.lapsed} times before the signal"
            left_out.append(f"{said}, {line.two_holders} times while its holder said that it held it")
    rows = [(line.adapter.name, line.adapter.kind, _middle(line), _each(line)) for line in lines]
    print_table(f"{backend}: takeover", _HEADERS, rows, left_out)
    ours, peer = _ours(lines), _best(lines)
    if ours is None:
        return []
    worst = max((value if value is not None else _DEADLINE_S / _LEASE_S) for value in ours.values)
    note = f"each: {_each(ours)}; from SIGKILL {_REST_S:g} s after the grant"
    return [
        Result(
            f"locks_takeover_{backend}",
            round(worst, 3),
            "leases of 3 s, the longest",
            None,
            round(statistics.median(v for v in peer.values if v is not None), 3) if peer is not None else None,
            round(worst, 3),
            f"at most {_GOAL_LEASES:g} leases, and not before the signal",
            worst <= _GOAL_LEASES and not ours.lapsed,
            note + (f"; peer: {peer.adapter.name}" if peer is not None else ""),
        )
    ]


def _stop(backend: str, lines: list[_Line], left_out: list[str]) -> list[Result]:
    pairs = [pair for line in lines for pair in line.pairs]
    for pair in pairs:
        pair.holder.send(("watch", _WATCH_S))
    REAL_SYSTEM.sleep(_REST_S)
    for pair in pairs:
        os.kill(pair.pid, signal.SIGSTOP)
    REAL_SYSTEM.sleep(_STOPPED_S)
    for line in list(lines):
        try:
            for pair in line.pairs:
                _wake(line, pair)
        except NotHere as error:
            lines.remove(line)
            left_out.append(f"{backend}: {line.adapter.name}: {error}")
    rows = [
        (
            *(line.adapter.name, line.adapter.kind, f"{line.granted} of {len(line.pairs)}"),
            *(_each(line) if line.granted else f"{_each(line)} (nobody else had it)", f"{line.believed} times"),
        )
        for line in lines
    ]
    print_table(f"{backend}: zombie", _ZOMBIE_HEADERS, rows, left_out)
    ours, peer = _ours(lines), _best(lines)
    if ours is None or not ours.granted:
        return []  # a lock that is kept while its holder is stopped makes no zombies
    typical = statistics.median((value if value is not None else _WATCH_S * 1000) for value in ours.values)
    return [
        Result(
            f"locks_zombie_{backend}",
            round(typical, 2),
            "ms",
            None,
            round(statistics.median(v for v in peer.values if v is not None), 2) if peer is not None else None,
            None,
            f"at most {_GOAL_KNOWS_MS:g} ms after SIGCONT, and never 'valid' since",
            typical <= _GOAL_KNOWS_MS and ours.believed == 0,
            f"each: {_each(ours)}; said to be valid {ours.believed} times since"
            + (f"; peer: {peer.adapter.name}" if peer is not None else "; no peer says so within 3 s"),
        )
    ]


def _wake(line: _Line, pair: _Pair) -> None:
    continued_ns = REAL_SYSTEM.monotonic_ns()
    os.kill(pair.pid, signal.SIGCONT)
    watched = pair.holder.receive()
    got_ns = pair.waiter.receive()
    if got_ns is not None and got_ns < continued_ns:
        line.granted += 1
        line.believed += watched.times_held
    known = watched.not_held_ns
    line.values.append(None if known is None else (known - continued_ns) / 1e6)


def _ours(lines: Sequence[_Line]) -> _Line | None:
    return next((line for line in lines if line.adapter.kind == "ours"), None)


def _best(lines: Sequence[_Line]) -> _Line | None:
    """The peer with the least median, among those that came in time at all."""
    peers = [line for line in lines if line.adapter.kind == "peer" and None not in line.values]
    return min(peers, key=lambda line: statistics.median(v for v in line.values if v is not None), default=None)


def _middle(line: _Line) -> str:
    known = [value for value in line.values if value is not None]
    return short(statistics.median(known)) if known else ""


def _each(line: _Line) -> str:
    return ", ".join("never" if value is None else short(value) for value in line.values)


if __name__ == "__main__":
    main(run)
