"""An object store that is made up: in memory, with each request counted, and as far away as it is told to be."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.planning import DistantStore

from lakelatch.storage.contract import FileStatus, Listing
from lakelatch.system import REAL_SYSTEM


class DistantTable(DistantStore):
    """Where changes are as far away as reads. A walk is one listing, and many objects are removed at once."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._inside = threading.local()

    def read(self, path: str) -> bytes:
        with self._request():
            return super().read(path)

    def stat(self, path: str) -> FileStatus:
        with self._request():
            return super().stat(path)

    def list(self, folder: str) -> Listing:
        with self._request():
            return super().list(folder)

    def walk(self, folder: str) -> Iterator[str]:
        with self._request():
            return iter(list(super().walk(folder)))

    def put(self, path: str, data: bytes) -> None:
        with self._request():
            super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._request():
            return super().put_if_absent(path, data)

    def delete(self, path: str) -> None:
        with self._request():
            super().delete(path)

    def delete_folder(self, folder: str) -> None:
        self.delete_at_once(list(self.walk(folder)))

    def delete_at_once(self, paths: Sequence[str]) -> None:
        if paths:
            with self._request():
                for path in paths:
                    super().delete(path)

    def _ask(self) -> None:
        """Nothing: the request around it has been counted."""

    @contextmanager
    def _request(self) -> Iterator[None]:
        """Counts a call, but for those that are made for another one."""
        if getattr(self._inside, "a_call", False):
            yield
            return
        with self._count:
            self.requests += 1
        if self.distance_s:
            REAL_SYSTEM.sleep(self.distance_s)
        self._inside.a_call = True
        try:
            yield
        finally:
            self._inside.a_call = False
