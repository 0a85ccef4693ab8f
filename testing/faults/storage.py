"""A storage that fails as a fault plan says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import FileStatus, Listing, PutUnknown, Storage, SupportsSweep
from lakelatch.testing.faults.plan import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultPlan, ListedFaults, carry

__all__ = ["LOST_AFTER", "LOST_BEFORE", "UNAVAILABLE", "Fault", "FaultyStorage"]


class FaultyStorage(Storage):
    """Another storage behind injected faults: those of a plan, or of a list, drawn from a seed (`ListedFaults`).

    A lost answer is a `PutUnknown` to a put, and an `Unavailable` to a delete.
    """

    def __init__(
        self,
        behind: Storage,
        faults: FaultPlan | Iterable[Fault] = (),
        seed: int = 0,
        before: Callable[[str, str], None] | None = None,
    ) -> None:
        self.behind = behind
        self.plan = faults if isinstance(faults, FaultPlan) else ListedFaults(faults, seed, before)

    @property
    def uri(self) -> str:
        return self.behind.uri

    @property
    def failed(self) -> int:
        """How many calls of a list of faults have failed."""
        assert isinstance(self.plan, ListedFaults)
        return self.plan.failed

    def read(self, path: str) -> bytes:
        return carry(self.plan, "read", self.behind.read, (path,))

    def read_range(self, path: str, start: int, size_bytes: int) -> bytes:
        return carry(self.plan, "read", self.behind.read_range, (path, start, size_bytes))

    def read_end(self, path: str, size_bytes: int) -> tuple[bytes, int]:
        return carry(self.plan, "read", self.behind.read_end, (path, size_bytes))

    def stat(self, path: str) -> FileStatus:
        return carry(self.plan, "stat", self.behind.stat, (path,))

    def list(self, folder: str) -> Listing:
        return carry(self.plan, "list", self.behind.list, (folder,))

    def put(self, path: str, data: bytes) -> None:
        carry(self.plan, "put", self.behind.put, (path, data), PutUnknown)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return carry(self.plan, "put_if_absent", self.behind.put_if_absent, (path, data), PutUnknown)

    def delete(self, path: str) -> None:
        carry(self.plan, "delete", self.behind.delete, (path,), Unavailable)

    def sweep(self, older_than_s: float) -> int:
        return self.behind.sweep(older_than_s) if isinstance(self.behind, SupportsSweep) else 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.behind, self.plan)
