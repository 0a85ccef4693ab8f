"""Which completed events a transaction may not commit beside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

FileGroup = tuple[str, str]  # partition, file id

_SERVICES_THAT_ADD_A_SLICE = ("COMPACT", "LOG_COMPACT")


@dataclass(frozen=True)
class CompletedWrite:
    """A write that completed since a transaction began, ours (from the log) or a Java writer's (from its file)."""

    instant: str
    action: str
    operation_type: str
    file_groups: frozenset[FileGroup]


@dataclass(frozen=True)
class Conflict:
    """The write that completed first, and the file groups that both touched."""

    winner: CompletedWrite
    file_groups: frozenset[FileGroup]


class ConflictStrategy(ABC):
    """Decides whether a transaction's file groups can be committed after others completed meanwhile."""

    @abstractmethod
    def find(self, touched: frozenset[FileGroup], completed: Iterable[CompletedWrite]) -> Conflict | None:
        """The first conflict in order of completion, or None."""


class SimpleConflictStrategy(ConflictStrategy):
    """File groups must not intersect. A compaction is none: what completes after its plan is in the next slice."""

    def find(self, touched: frozenset[FileGroup], completed: Iterable[CompletedWrite]) -> Conflict | None:
        for write in completed:
            if write.operation_type in _SERVICES_THAT_ADD_A_SLICE:
                continue
            common = touched & write.file_groups
            if common:
                return Conflict(write, common)
        return None


class NonBlockingConflictStrategy(ConflictStrategy):
    """Only replaced file groups conflict: everything else is settled by ordering values when it is read."""

    def find(self, touched: frozenset[FileGroup], completed: Iterable[CompletedWrite]) -> Conflict | None:
        replacing = (write for write in completed if write.action == "replacecommit")
        return SimpleConflictStrategy().find(touched, replacing)
