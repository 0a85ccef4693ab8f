"""The data files of one task attempt: announced, created, counted; and the check that they are still wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import TypeVar

from lakelatch.errors import LakelatchError, WriteConflict
from lakelatch.heartbeat.beat import ensure_beating
from lakelatch.progress import count
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.transactions.conflicts.report import Work
from lakelatch.transactions.early.detection import EarlyDetection
from lakelatch.transactions.early.notes import note_work
from lakelatch.transactions.early.server_client import MarkerClient, ServerAddress, ServerLost
from lakelatch.transactions.early.strategies import MarkerStrategy
from lakelatch.transactions.markers.direct import Markers
from lakelatch.transactions.markers.files import marker_of
from lakelatch.transactions.markers.own_files import OwnFiles

T = TypeVar("T")
_MS_NS = 1_000_000


class TaskFiles:
    """A context manager around one task attempt, whose name no other attempt has.

    Without early detection a file is announced when it is created. With it, it can be announced long before, and an
    attempt of a write that has lost ends at once: when it enters, when it announces, and while it is `watched`.
    """

    def __init__(
        self,
        storage: Storage,
        instant: str,
        attempt: str,
        early: EarlyDetection | None = None,
        system: System = REAL_SYSTEM,
        server: ServerAddress | None = None,
        own: OwnFiles | None = None,
    ) -> None:
        self._storage = storage
        self._instant = instant
        self._attempt = attempt
        self._early = early
        self._system = system
        self._markers = Markers(storage, instant)
        self._own = own  # where the transaction's own process is at work, and no task
        self._client = MarkerClient(server, system) if server is not None else None
        self._strategy: MarkerStrategy | None = None
        self._announced: set[tuple[str, str]] = set()
        self._open = ExitStack()
        self._work = Work()
        self._began_ns = system.monotonic_ns()
        self._counted_ns = self._began_ns
        self._next_look_ns = self._began_ns

    @property
    def early(self) -> bool:
        """Whether files should be announced as soon as their names are known."""
        return self._early is not None or self._client is not None

    def __enter__(self) -> TaskFiles:
        if self._client is not None:
            self._open.callback(self._client.close)
        if self._early is not None:
            self._strategy = self._open.enter_context(self._early.open(self._system, self._client))
            self._next_look_ns = self._began_ns + self._early.settings.delay_ms * _MS_NS
            try:
                self._strategy.ensure_not_lost()
            except BaseException:
                self._open.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open:
            if self._strategy is not None and (error is None or isinstance(error, WriteConflict)):
                self._note()

    def watched(self, items: Iterable[T]) -> Iterator[T]:
        """The same items, for as long as the write has not lost and has not ended."""
        for item in items:
            self.look()
            yield item

    def look(self) -> None:
        """Checks whether to go on, if it is time for that again. Errors: `WriteConflict`, `TransactionEnded`."""
        now_ns = self._system.monotonic_ns()
        if self._early is None or self._strategy is None or now_ns < self._next_look_ns:
            return
        self._next_look_ns = now_ns + self._early.settings.period_ms * _MS_NS
        self._strategy.ensure_not_lost()
        ensure_beating(self._storage, self._instant)

    def announce(self, partition: str, name: str) -> None:
        """Announces a data file, once. Errors: `WriteConflict`, `TransactionEnded`."""
        self.announce_all([(partition, name)])

    def announce_all(self, files: Iterable[tuple[str, str]]) -> None:
        """Announces the data files of one step, each a partition and a name, once. Errors as above."""
        new = [file for file in dict.fromkeys(files) if file not in self._announced]
        if not new:
            return
        if self._strategy is not None:
            self._strategy.announce_all(new)
        else:
            self._announce_plainly(new)
        self._announced.update(new)

    def _announce_plainly(self, files: list[tuple[str, str]]) -> None:
        """Without early detection: through the marker server, or directly if there is none or it cannot be reached."""
        if self._own is not None:
            self._own.announce_all(files)
            return
        if self._client is not None:
            try:
                answer = self._client.ask([marker_of(partition, name) for partition, name in files])
            except ServerLost:
                pass
            else:
                if answer.ended is not None:
                    raise answer.ended
                return
        for partition, name in files:
            self._markers.announce(partition, name)

    def create(self, partition: str, name: str, data: bytes, rows: int) -> int:
        """Makes a data file, after announcing it; returns the milliseconds that this attempt has spent on it.

        A transaction's own process makes it at its commit, or before.
        """
        self.look()
        if self._own is not None:
            self._own.create(partition, name, data)
        else:
            self.announce(partition, name)
            self._markers.place_data_file(partition, name, data)
        return self._count(rows, len(data))

    def create_once(
        self, partition: str, name: str, rows: Callable[[], int], put: Callable[[], int]
    ) -> tuple[int, int]:
        """Makes a data file that is the same in all attempts, after announcing it; returns its size, and as `create`.

        `put` leaves one that is there as it is, and returns the size; afterwards `rows` returns its number of rows.
        """
        self.look()
        self.announce(partition, name)
        size_bytes = put()
        return size_bytes, self._count(rows(), size_bytes)

    def ensure_wanted(self) -> None:
        """Errors: `TransactionEnded` if the write has ended."""
        ensure_beating(self._storage, self._instant)

    def _count(self, rows: int, size_bytes: int) -> int:
        spent_ms = self._spent_ms()
        self._work += Work(rows, size_bytes, spent_ms)
        count(rows, files=1)
        return spent_ms

    def _spent_ms(self) -> int:
        """Milliseconds since the last call, so that all of them add up to the attempt's time."""
        spent_ms = (self._system.monotonic_ns() - self._counted_ns) // _MS_NS
        self._counted_ns += spent_ms * _MS_NS
        return spent_ms

    def _note(self) -> None:
        try:
            note_work(self._storage, self._instant, self._attempt, self._work + Work(task_ms=self._spent_ms()))
        except LakelatchError:  # a number less in an error's text
            return
