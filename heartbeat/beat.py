"""The writer's side: beats at an interval, and knows when it may count as dead."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

from lakelatch.errors import TransactionEnded, Unavailable
from lakelatch.heartbeat.contract import Beat, heartbeat_path, task_beats_folder
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

    def take_over(self, patience: int = 1) -> None:
        """The first beat on a claim whose owner died, or that others go on with; they get `patience` times as long."""
        settings = self._beat.settings
        settings = replace(settings, tolerable_misses=settings.tolerable_misses * patience)
        self._storage.put(heartbeat_path(self._instant), replace(self._beat, settings=settings).to_bytes(0))

    def start(self) -> None:
        """Starts the thread; call it once, after `claim` or on a claim of another process of the same transaction."""
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{self._instant}", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """One beat now. A claim that is gone is not made again, and one that another has taken over is left alone."""
        with self._guard:
            if self._stopped.is_set():
                return
            if not self._owns_claim():
                self._stopped.set()
                return
            self._count += 1
            self._storage.put(heartbeat_path(self._instant), self._beat.to_bytes(self._count))

    def _owns_claim(self) -> bool:
        try:
            found = Beat.from_bytes(self._storage.read(heartbeat_path(self._instant)))
        except NotFound:
            return False
        return found is not None and found.operation_id == self._beat.operation_id

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


class TaskHeartbeat:
    """Beats of one task attempt, for a transaction whose driver lives only at its beginning and its end.

    They go to a file of the attempt's own. A task never writes the claim: a beat that was paused could bring back the
    claim of an instant that has been committed meanwhile, and with it the right to make files.
    """

    def __init__(self, storage: Storage, instant: str, attempt: str, interval_ms: int) -> None:
        self._storage = storage
        self._path = f"{task_beats_folder(instant)}/{attempt}"
        self._interval_s = interval_ms / 1000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"task-heartbeat-{instant}", daemon=True)

    def start(self) -> None:
        """Beats at once, and then at the interval."""
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=self._interval_s)

    def _run(self) -> None:
        while True:
            with suppress(Unavailable):
                self._storage.put(self._path, b"")
            if self._stopped.wait(self._interval_s):
                return


def ensure_beating(storage: Storage, instant: str) -> None:
    """Raises `TransactionEnded` if the instant's claim is gone: it has been committed, aborted or rolled back."""
    try:
        storage.stat(heartbeat_path(instant))
    except NotFound:
        raise TransactionEnded(
            f"instant {instant} has ended elsewhere (its heartbeat is gone), so nothing more is written for it",
            instant=instant,
        ) from None
