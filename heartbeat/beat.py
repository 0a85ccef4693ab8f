"""The writer's side: beats at an interval, and knows when it may count as dead."""

from __future__ import annotations

import threading

from lakelatch.errors import TransactionEnded, Unavailable
from lakelatch.heartbeat.contract import Beat, heartbeat_path
from lakelatch.storage.contract import NotFound, Storage


class Heartbeat:
    """Beats for one instant from a daemon thread until `stop`.

    A failed beat is tried again at the next interval. Whether the writer still counts as alive is not for it to say:
    a commit asks the log.
    """

    def __init__(self, storage: Storage, instant: str, beat: Beat) -> None:
        self._storage = storage
        self._instant = instant
        self._beat = beat
        self._count = 0
        self._stopped = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def claim(self) -> bool:
        """The first beat; False if somebody else has claimed this instant time."""
        return self._storage.put_if_absent(heartbeat_path(self._instant), self._beat.to_bytes(0))

    def take_over(self) -> None:
        """The first beat on a claim whose owner died."""
        self._storage.put(heartbeat_path(self._instant), self._beat.to_bytes(0))

    def start(self) -> None:
        """Starts the thread; call it once, after `claim` or on a claim of another process of the same transaction."""
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{self._instant}", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """One beat now. A beat whose file is gone is not made again: somebody has ended this transaction."""
        with self._guard:
            if self._stopped.is_set():
                return
            if not self._storage.exists(heartbeat_path(self._instant)):
                self._stopped.set()
                return
            self._count += 1
            self._storage.put(heartbeat_path(self._instant), self._beat.to_bytes(self._count))

    def stop(self) -> None:
        """Ends the thread, so that no beat is under way any more; the file stays."""
        self._stopped.set()
        with self._guard:
            pass
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._beat.settings.interval_ms / 1000)

    def _run(self) -> None:
        while not self._stopped.wait(self._beat.settings.interval_ms / 1000):
            try:
                self.beat()
            except Unavailable:
                continue


def ensure_beating(storage: Storage, instant: str) -> None:
    """Raises `TransactionEnded` if the instant's claim is gone: it has been committed, aborted or rolled back."""
    try:
        storage.stat(heartbeat_path(instant))
    except NotFound:
        raise TransactionEnded(
            f"instant {instant} has ended elsewhere (its heartbeat is gone), so nothing more is written for it",
            instant=instant,
        ) from None
