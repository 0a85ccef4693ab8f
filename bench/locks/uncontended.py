"""Acquire and release with nobody else around: ours, the fewest calls that could do it, and the peers, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection

from bench.harness import Result
from bench.locks.common import (
    BACKENDS,
    LEASE_S,
    REDIS_SYNCED,
    Contender,
    NotHere,
    Place,
    main,
    open_place,
    print_table,
)
from bench.locks.peers import adapters_for, open_contender
from bench.locks.turns import Line, Round, Worker, beside_floor, call_for, fastest, print_lines, serve, take_turns

_BACKENDS = (*BACKENDS, REDIS_SYNCED)
_FULL, _QUICK = (60, 0.04), (12, 0.03)  # rounds, and seconds of each: short, so that neighbours see the same machine
_GOALS = {"redis": 1.3, REDIS_SYNCED: 1.3, "zookeeper": 1.3, "etcd": 1.3, "filesystem": 25.0}


def run(quick: bool = False, backends: Sequence[str] = _BACKENDS) -> list[Result]:
    results = []
    for backend in backends:
        try:
            with open_place(backend) as place:
                results += _measure(place, *(_QUICK if quick else _FULL))
        except NotHere as error:
            print_table(f"{backend}: acquire and release", (), [], [f"{backend}: {error}"])
    return results


def _measure(place: Place, rounds: int, round_s: float) -> list[Result]:
    adapters, left_out = adapters_for(place.backend, "alone")
    with ExitStack() as stack:
        lines = [Line(adapter.name, adapter.kind, Worker(_work, adapter.name, place)) for adapter in adapters]
        take_turns(stack, lines, rounds, round_s, left_out)
    print_lines(f"{place.label}: acquire and release", lines, left_out)
    return _results(place.label, lines)


def _work(connection: Connection, name: str, place: Place) -> None:
    serve(connection, lambda: open_contender(place, name, "alone", "alone", LEASE_S), _round)


def _round(contender: Contender, message: tuple[float, int]) -> Round:
    def take_and_give_back() -> None:
        if not contender.acquire(30):
            raise NotHere("a free lock was not granted")
        contender.release()

    return call_for(take_and_give_back, message)


def _results(backend: str, lines: Sequence[Line]) -> list[Result]:
    ours, floor, second, peer = (fastest(lines, kind) for kind in ("ours", "floor", "second floor", "peer"))
    if ours is None or floor is None:
        return []
    note, peer_ms = "", None
    if second is not None:
        note += f"; {ours.ratio(second):.2f} x {second.name}"
    if peer is not None:
        note += f"; {ours.ratio(peer):.2f} x {peer.name}, the fastest peer"
        peer_ms = round(peer.median_ms, 4)
    return [beside_floor(f"locks_uncontended_{backend}", ours, floor, _GOALS.get(backend), peer_ms, note)]


if __name__ == "__main__":
    main(run, _BACKENDS)
