"""Places in a queue of ZooKeeper nodes: what their names and data say, also those of other clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakelatch.storage.checksums import json_object

_SEQUENCE = re.compile(r"(?:lock-|__r?lock__)(-?[0-9]{10})$|([0-9]{10})$")  # Curator's (and ours), kazoo's, any other
_REQUEST = re.compile(r"_c_([0-9a-f]{32})-lock-")
_HALF = 2**31  # sequences are signed numbers of 32 bits, and go on below zero after the greatest one


def place_for(request: str) -> str:
    """The name, without its sequence, of the node that a request makes: as Apache Curator's InterProcessMutex does."""
    return f"_c_{request}-lock-"


@dataclass(frozen=True)
class Head:
    """The first of a queue, and the nodes behind it."""

    node: str
    data: bytes
    stat: Any
    behind: Sequence[str]

    @property
    def owner(self) -> str:
        """The process that made the node, for people."""
        return owner_in(self.node, self.data)

    @property
    def lease_s(self) -> float:
        """The lease time of the session that made the node; 0 if another client did."""
        lease_s = self._about().get("lease_s")
        return float(lease_s) if isinstance(lease_s, int | float) else 0.0

    def _about(self) -> dict[str, Any]:
        return _about(self.node, self.data)


def owner_in(node: str, data: bytes) -> str:
    """The process that made a node, for people."""
    return str(_about(node, data).get("owner") or data.decode(errors="replace")[:100] or "unknown")


def _about(node: str, data: bytes) -> dict[str, Any]:
    return (json_object(data) or {}) if _REQUEST.match(node) else {}


def in_order(children: Iterable[str]) -> list[str]:
    """The nodes of a queue, of all clients, first come first; nodes that are no places in it are left out."""
    places = {}
    for child in children:
        match = _SEQUENCE.search(child)
        if match:
            places[child] = int(match.group(1) or match.group(2))
    if places and max(places.values()) - min(places.values()) > _HALF:
        places = {child: place % (2 * _HALF) for child, place in places.items()}
    return sorted(places, key=lambda child: places[child])


def request_of(node: str) -> str:
    """The request that made a node; of nodes of other clients, the name has to do."""
    match = _REQUEST.match(node)
    return match.group(1) if match else node
