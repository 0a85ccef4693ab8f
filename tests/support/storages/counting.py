"""A storage that counts what an object store would be asked: each request, and how many wait for another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from lakelatch.storage import MemoryStorage
from lakelatch.storage.contract import FileStatus, Listing

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One request: what was asked, of which path, and in which step, counted from 1."""

    operation: str
    path: str
    step: int

    def __str__(self) -> str:
        return f"{self.step:3} {self.operation:14} {self.path}"


class CountingStorage(MemoryStorage):
    """What an object store would be asked.

    Each call of the contract is one request, and so is a walk, which is one flat listing there; a folder is removed by
    a listing and one request for all that it has.
    """

    listed_at_once = 1000

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[Call] = []
        self._step = 0
        self._in_thread = False
        self._counts = True
        self._act: tuple[str, str, Callable[[], None]] | None = None

    def before(self, operation: str, path: str, act: Callable[[], None]) -> None:
        """Does this once, right before the next such call."""
        self._act = operation, path, act

    def forget(self) -> None:
        """Counts from here."""
        self.calls.clear()
        self._step = 0

    @property
    def steps(self) -> int:
        """The longest chain of requests of which each waited for the one before it."""
        return max((call.step for call in self.calls), default=0)

    def story(self) -> str:
        return "\n".join(map(str, self.calls))

    def read(self, path: str) -> bytes:
        self._note("read", path)
        return super().read(path)

    def stat(self, path: str) -> FileStatus:
        self._note("stat", path)
        return super().stat(path)

    def list(self, folder: str) -> Listing:
        self._note("list", folder)
        return super().list(folder)

    def walk(self, folder: str) -> Iterator[str]:
        self._note("walk", folder)
        with self._uncounted():
            return iter(list(super().walk(folder)))

    def first_paths(self, folder: str) -> tuple[Sequence[str], bool]:
        paths = list(self.walk(folder))
        return paths[: self.listed_at_once], len(paths) < self.listed_at_once

    def delete_folder(self, folder: str) -> None:
        paths = list(self.walk(folder))
        if paths:
            self._note("delete_folder", folder)
        with self._uncounted():
            for path in paths:
                super().delete(path)

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        if self._in_thread:  # of its own, and those do not wait for each other
            return [request() for request in requests]
        before, answers, last = self._step, [], self._step
        for number, request in enumerate(requests):
            self._step, self._in_thread = before, number > 0
            try:
                answers.append(request())
            finally:
                self._in_thread = False
            last = max(last, self._step)
        self._step = last
        return answers

    def delete_at_once(self, paths: Sequence[str]) -> None:
        if paths:
            self._note("delete_at_once", paths[0])
        with self._uncounted():
            for path in paths:
                super().delete(path)

    def put(self, path: str, data: bytes) -> None:
        self._note("put", path)
        super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._note("put_if_absent", path)
        return super().put_if_absent(path, data)

    def delete(self, path: str) -> None:
        self._note("delete", path)
        super().delete(path)

    def _note(self, operation: str, path: str) -> None:
        if self._act is not None and self._act[:2] == (operation, path):
            (_, _, act), self._act = self._act, None
            act()
        if self._counts:
            self._step += 1
            self.calls.append(Call(operation, path, self._step))

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        counted, self._counts = self._counts, False
        try:
            yield
        finally:
            self._counts = counted
