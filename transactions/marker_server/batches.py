"""Writes one instant's markers into MARKERS files, many with one put, and says of each whether it counts.

A marker counts when the file with it is on the storage *and* the instant was still open after that: the same order as
for direct markers, with one check for all markers of a batch. Each batch makes a file of its own, which is never put
again: a put whose answer was lost may arrive after later ones, and would take their markers back.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from lakelatch.errors import LakelatchError, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.storage.conditional_puts import create_own
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.system import System
from lakelatch.timeline.metadata import FileGroup
from lakelatch.transactions.early.concurrent_writers import file_id_of
from lakelatch.transactions.markers.direct import Markers
from lakelatch.transactions.markers.files import INFIX, MARKERS_FOLDER, SERVER_TYPE, TYPE_FILE


@dataclass(frozen=True)
class _Waiting:
    markers: tuple[str, ...]
    done: Future[None]


class MarkerBatches:
    """Threads may share it. `files_at_once` MARKERS files at most are made at the same time.

    A batch is written when fewer are under way and `interval_ms` have passed; all that comes meanwhile goes along.
    """

    def __init__(self, storage: Storage, instant: str, files_at_once: int, interval_ms: int, system: System) -> None:
        self._storage = storage
        self._folder = f"{MARKERS_FOLDER}/{instant}"
        self._markers = Markers(storage, instant)
        self._interval_s = interval_ms / 1000
        self._system = system
        self._pool = ThreadPoolExecutor(files_at_once, thread_name_prefix=f"markers-{instant}")
        self._guard = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._made: set[str] = set()
        self._idle = files_at_once
        self._next_index = 0
        self._typed = False

    def submit(self, markers: Sequence[str]) -> Future[None]:
        """Done when all of them count. Errors: `TransactionEnded`; `Unavailable`, after which they may be there."""
        done: Future[None] = Future()
        with self._guard:
            if self._made.issuperset(markers):
                done.set_result(None)
                return done
            self._waiting.append(_Waiting(tuple(markers), done))
            if not self._idle:  # a thread that is writing takes more when it is done
                return done
            self._idle -= 1
        try:
            self._pool.submit(self._work)
        except RuntimeError:
            self._fail_waiting()
        return done

    def close(self) -> None:
        """Waits for what is being written; the rest fails as `Unavailable`."""
        self._pool.shutdown(wait=True)
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        with self._guard:
            left, self._waiting = self._waiting, []
        for waiting in left:
            waiting.done.set_exception(Unavailable("the marker server has been closed"))

    def _work(self) -> None:
        while True:
            if self._interval_s:
                self._system.sleep(self._interval_s)
            with self._guard:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._idle += 1
                    return
            self._resolve(batch)

    def _resolve(self, batch: list[_Waiting]) -> None:
        markers = list(dict.fromkeys(marker for waiting in batch for marker in waiting.markers))
        try:
            path = self._write(markers)
            failpoint("mark.after")
            self._markers.ensure_taking(path)
        except BaseException as error:
            cause = error if isinstance(error, LakelatchError) else Unavailable(f"markers were not written: {error!r}")
            for waiting in batch:
                waiting.done.set_exception(cause)
            return
        with self._guard:
            self._made.update(markers)
        for waiting in batch:
            waiting.done.set_result(None)

    def _write(self, markers: list[str]) -> str:
        if not self._typed:
            with suppress(PutUnknown):  # Java Hudi looks at it, we do not; the next batch writes it then
                self._storage.put_if_absent(f"{self._folder}/{TYPE_FILE}", SERVER_TYPE.encode())
                self._typed = True
        content = "".join(f"{marker}\n" for marker in markers).encode()
        while True:
            with self._guard:
                path, self._next_index = f"{self._folder}/MARKERS{self._next_index}", self._next_index + 1
            if create_own(self._storage, path, content, self._system):
                return path


def group_of(marker: str) -> FileGroup:
    """Partition and file id of a marker's data file."""
    partition, _, name = marker.rpartition("/")
    return partition, file_id_of(name.rpartition(INFIX)[0])
