"""Times for one table's instants: fresh, above a floor, and claimed where a name hangs on them."""

from __future__ import annotations

from lakelatch.errors import Unavailable
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import Beat
from lakelatch.locks.lease import Lease
from lakelatch.storage.contract import Storage
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timegen.instant_time import to_instant, to_ms

_CLAIMS_MAX = 10_000


class InstantClock:
    """Turns a generator's milliseconds into instants, and makes sure that no two instants share a requested time.

    The generator stands on the lock service, which may forget or lie. So a requested time is claimed by creating its
    heartbeat file, put-if-absent: of two writers that were given the same time, one takes another.
    """

    def __init__(self, storage: Storage, generator: TimeGenerator) -> None:
        self._storage = storage
        self._generator = generator

    def next(self, above: str, held: Lease | None) -> str:
        """A time above all that were handed out and above `above` ("" for none)."""
        return to_instant(self._generator.next(to_ms(above) if above else 0, held))

    def claim(self, above: str, beat: Beat, held: Lease | None) -> tuple[str, Heartbeat]:
        """A requested time that nobody else has or will have, with its heartbeat, which is not started."""
        for _ in range(_CLAIMS_MAX):
            above = self.next(above, held)
            heartbeat = Heartbeat(self._storage, above, beat)
            if heartbeat.claim():
                return above, heartbeat
        raise Unavailable(f"{_CLAIMS_MAX} instant times in a row were taken by others: look at the time generator")
