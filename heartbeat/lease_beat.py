"""Heartbeats that are leases of the lock provider: the service itself notices that the writer is gone."""

from __future__ import annotations

import logging
from dataclasses import replace

from lakelatch.errors import LakelatchError, LockTimeout
from lakelatch.heartbeat.beat import Heartbeat, stopped_on_error
from lakelatch.heartbeat.contract import LEASE, STORAGE, Beat, heartbeat_key
from lakelatch.locks.contract import LockProvider
from lakelatch.locks.lease import Lease
from lakelatch.storage.contract import Storage

_log = logging.getLogger("lakelatch.heartbeat")


class LeaseHeartbeat(Heartbeat):
    """The claim is a file all the same; after it nothing is written. The lease comes first, and goes last.

    The lock provider renews it together with its other leases. If it was lost, because the service could not be reached
    for longer than the lease time, and the instant was not rolled back, it is taken again at the next interval.
    """

    def __init__(self, storage: Storage, instant: str, beat: Beat, provider: LockProvider) -> None:
        super().__init__(storage, instant, replace(beat, proof=LEASE), provider.scope.system)
        self._provider = provider
        self._key = heartbeat_key(instant)
        self._lease: Lease | None = None

    def claim(self) -> bool:
        if not self._take():
            return False
        with stopped_on_error(self):
            claimed = super().claim()
        if not claimed:
            self._release()
        return claimed

    def take_over(self, patience: int = 1) -> None:
        """With patience, for a transaction that is handed over: no lease outlives its process, so the file must do."""
        if patience > 1:
            self._beat = replace(self._beat, proof=STORAGE)
            super().take_over(patience)
            self._release()
        else:
            self._take()
            with stopped_on_error(self):
                super().take_over()

    def beat(self) -> None:
        with self._guard:
            if self._stopped.is_set():
                return
            if not self.owns_claim():
                self._stopped.set()
                self._release()
            elif self._lease is None or not self._lease.valid():
                self._take_again()

    def stop(self) -> None:
        super().stop()
        self._release()

    def _take_again(self) -> None:
        lost = self._lease
        if self._take():
            if lost is not None:
                _log.warning("a heartbeat's lease was lost, and is taken again: %s", lost.lost_because)
            super().beat()  # which also says again where to look

    def _take(self) -> bool:
        try:
            self._lease = self._provider.acquire(self._key, 0)
        except LockTimeout:
            return False
        return True

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                lease.release()
            except LakelatchError as error:  # it ends by itself; a commit that is done must not seem to have failed
                _log.warning("the lease of a heartbeat was not released, and ends with its session: %s", error)
