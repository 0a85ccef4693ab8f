"""The writer's side: beats at an interval, and knows when it may count as dead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from lakelatch.errors import TransactionEnded, Unavailable
from lakelatch.heartbeat.contract import SHORTEST_EXPIRY_MS, STORAGE, Beat, heartbeat_path, task_beats_folder
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.system import REAL_SYSTEM, System, Thread

_OWN_SHARE = 0.9  # of the time after which others count a writer as dead


class Heartbeat:
    """Beats for one instant from a daemon thread until `stop`; most end before the first beat, and need no thread.

    A failed beat is tried again at the next interval. Whether the writer still counts as alive is not for it to say:
    a commit asks the log.
    """

    def __init__(self, storage: Storage, instant: str, beat: Beat, system: System = REAL_SYSTEM) -> None:
        self._storage = storage
        self._instant = instant
        self._beat = beat
        self._count = 0
        self._system = system
        self._stopped = system.new_event()
        self._guard = system.new_lock()
        self._thread: Thread | None = None

    def claim(self) -> bool:
        """The first beat; False if another writer has claimed this instant time."""
        return self._storage.put_if_absent(heartbeat_path(self._instant), self._beat.to_bytes(0))

    def take_over(self, patience: int = 1) -> None:
        """The first beat on a claim whose owner died, or that others go on with; they get `patience` times as long."""
        settings = self._beat.settings
        settings = replace(settings, tolerable_misses=settings.tolerable_misses * patience)
        self._storage.put(heartbeat_path(self._instant), replace(self._beat, settings=settings).to_bytes(0))

    def start(self) -> None:
        """Has it beat from one interval on; call it once, after `claim` or on a claim of its own transaction's."""
        interval_s = self._beat.settings.interval_ms / 1000
        self._thread = self._system.start_thread(self._run, f"heartbeat-{self._instant}", interval_s)

    def beat(self) -> None:
        """One beat now. A claim that is gone is not made again, and one that another has taken over is left alone."""
        with self._guard:
            if self._stopped.is_set():
                return
            if not self.owns_claim():
                self._stopped.set()
                return
            self._count += 1
            self._storage.put(heartbeat_path(self._instant), self._beat.to_bytes(self._count))

    def owns_claim(self) -> bool:
        """Whether the instant is still this transaction's."""
        try:
            found = Beat.from_bytes(self._storage.read(heartbeat_path(self._instant)))
        except NotFound:
            return False
        return found is not None and found.operation_id == self._beat.operation_id

    def stop(self) -> None:
        """Ends the thread, so that no beat is under way any more; the file stays, also as the proof of nothing."""
        self._stopped.set()
        with self._guard:
            pass
        if self._thread is not None:
            self._thread.join(timeout=self._beat.settings.interval_ms / 1000)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with suppress(Unavailable):
                self.beat()
            self._stopped.wait(self._beat.settings.interval_ms / 1000)


@contextmanager
def stopped_on_error(heartbeat: Heartbeat) -> Iterator[None]:
    """A heartbeat that is never started must not seem alive: a lease would, for as long as its process lives."""
    try:
        yield
    except BaseException:
        heartbeat.stop()
        raise


class TaskHeartbeat:
    """Beats of one task attempt, for a transaction whose driver lives only at its beginning and its end.

    They go to a file of the attempt's own. A task never writes the claim: a beat that was paused could bring back the
    claim of an instant that has been committed meanwhile, and with it the right to make files.
    """

    def __init__(
        self, storage: Storage, instant: str, attempt: str, interval_ms: int, system: System = REAL_SYSTEM
    ) -> None:
        self._storage = storage
        self._path = f"{task_beats_folder(instant)}/{attempt}"
        self._interval_s = interval_ms / 1000
        self._name = f"task-heartbeat-{instant}"
        self._system = system
        self._stopped = system.new_event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Beats at once, and then at the interval."""
        self._thread = self._system.start_thread(self._run, self._name)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=self._interval_s)

    def _run(self) -> None:
        while True:
            with suppress(Unavailable):
                self._storage.put(self._path, b"")
            if self._stopped.wait(self._interval_s):
                return


def ensure_beating(storage: Storage, instant: str, now_path: str | None = None) -> None:
    """Raises `TransactionEnded` if the instant's claim is gone: it has been committed, aborted or rolled back.

    `now_path` is a file that was made a moment ago. By its time, which is the storage's own, a writer whose beats have
    stopped learns it before others may count it as dead.
    """
    ended = why_not_beating(storage, instant, now_path)
    if ended is not None:
        raise ended


def why_not_beating(storage: Storage, instant: str, now_path: str | None = None) -> TransactionEnded | None:
    """The error that `ensure_beating` would raise."""
    paths = [heartbeat_path(instant), *([now_path] if now_path is not None else [])]
    try:
        modified_ms, *now_ms = (one.modified_ms for one in storage.together(*(partial(storage.stat, p) for p in paths)))
        if not now_ms or not _is_late(storage, instant, now_ms[0] - modified_ms):
            return None
    except NotFound:
        return TransactionEnded(
            f"instant {instant} has ended elsewhere (its heartbeat is gone), so nothing more is written for it",
            instant=instant,
        )
    return TransactionEnded(
        f"the heartbeat of instant {instant} has stopped, and others may count its writer as dead, so nothing more is "
        "written for it: look why the driver could not beat, or raise hoodie.client.heartbeat.interval_in_ms",
        instant=instant,
    )


def _is_late(storage: Storage, instant: str, age_ms: int) -> bool:
    """Whether a beat of this age is so old that others will soon count its writer as dead, if they do not yet."""
    if age_ms <= SHORTEST_EXPIRY_MS * _OWN_SHARE:
        return False
    beat = Beat.from_bytes(storage.read(heartbeat_path(instant)))
    if beat is None or beat.proof != STORAGE or age_ms <= beat.settings.expiry_ms * _OWN_SHARE:
        return False
    return not storage.list(task_beats_folder(instant)).files  # tasks that beat for it look after themselves
