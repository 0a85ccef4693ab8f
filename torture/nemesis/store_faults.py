"""Faults of an object store and of the requests to it; only in rounds whose table lies in one."""

from __future__ import annotations

from collections.abc import Callable

from lakelatch.torture.nemesis.nemesis import Nemesis

#: Kinds of faults by their names. All requests of a client suffer, those of a job of Spark as well.
OF_REQUESTS: dict[str, dict[str, float]] = {
    "store_cut": {"cut": True},
    "store_busy": {"unavailable": 0.3},
    "store_torn": {"torn": 0.1},
    "store_half_done": {"half_done": 0.1},
    "store_answers_lost": {"lost_before": 0.08, "lost_after": 0.08},
    "store_late": {"late": 0.1},
    "store_doubled": {"repeated": 0.3},
}
_SERVER = "store"


def _on_requests(kind: str) -> Callable[[Nemesis], None]:
    def harm(nemesis: Nemesis) -> None:
        running = nemesis.pick()
        way = nemesis.store.ways.get(running.client) if nemesis.store and running else None
        if running is not None and way is not None:
            way.rates.change(**OF_REQUESTS[kind])
            nemesis.harm(running, kind, way.heal, nemesis.place.lease_s * (1 + 2 * nemesis.draw.random()))

    return harm


def store_paused(nemesis: Nemesis) -> None:
    """The store does not answer for a while."""
    if nemesis.store is not None and not nemesis.busy(_SERVER):
        server = nemesis.store.server
        server.pause()
        nemesis.begin("store_paused", _SERVER, server.resume, nemesis.place.lease_s * nemesis.draw.random())


def store_killed(nemesis: Nemesis) -> None:
    """The store's process dies, and comes back with what it had acknowledged."""
    if nemesis.store is not None and not nemesis.busy(_SERVER):
        server = nemesis.store.server
        server.kill()
        nemesis.begin("store_killed", _SERVER, server.start, nemesis.place.lease_s * nemesis.draw.random())


ON_STORE: dict[str, Callable[[Nemesis], None]] = {
    **{kind: _on_requests(kind) for kind in OF_REQUESTS},
    "store_paused": store_paused,
    "store_killed": store_killed,
}
