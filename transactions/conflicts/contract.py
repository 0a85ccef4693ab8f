"""The contract of conflict strategies, and the writes that they are shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import (
    COMPLETED_ACTIONS,
    SERVICES_THAT_ADD_A_SLICE,
    SERVICES_THAT_REPLACE,
    WRITE_ACTIONS,
)
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.log.whole_timeline import read_commit
from lakelatch.timeline.metadata import FileGroup


@dataclass(frozen=True)
class OtherWrite:
    """Another write: one that has completed, ours (from the log) or a Java writer's (from its file), or one at work.

    `time` is its completion, or, if it is `inflight`, when its marker was made; `slot` is 0 where no slot names it.
    """

    instant: str
    action: str
    operation_type: str
    file_groups: frozenset[FileGroup]
    writer: str = ""
    slot: int = 0
    time: str = ""
    inflight: bool = False


@dataclass(frozen=True)
class Contender:
    """The transaction that is to be checked. `action` is the pending one's name, as `clustering`."""

    instant: str
    action: str
    file_groups: frozenset[FileGroup]


@dataclass(frozen=True)
class Conflict:
    """The write that wins, and the contender's file groups that it touches."""

    winner: OtherWrite
    file_groups: frozenset[FileGroup]


class Others(ABC):
    """The other writes, as a strategy sees them. Nothing is read before a method is called."""

    @abstractmethod
    def completed(self) -> Sequence[OtherWrite]:
        """Writes that completed since the contender began, also those that were pending then, by completion."""

    @abstractmethod
    def inflight(self, groups: Collection[FileGroup]) -> Sequence[OtherWrite]:
        """Live writes, no table services, that have announced files of these groups, by requested time.

        Groups are compared as the strategy does (`ConflictStrategy.group_part`).
        """


class ConflictStrategy(ABC):
    """Decides whether a transaction conflicts with other writes. Made without arguments, shared by threads.

    `equal_start_length`: file ids of equal parts begin with this many equal characters. 0 promises nothing, and makes
    checks of many writers' markers slower.
    """

    equal_start_length: ClassVar[int] = 0

    def group_part(self, file_id: str) -> str:
        """The part of a file id that has to be equal for two writes to conflict."""
        return file_id

    @abstractmethod
    def find(self, contender: Contender, others: Others) -> Conflict | None:
        """The first conflict in order of completion, or None."""

    def common(self, groups: Iterable[FileGroup], other: Iterable[FileGroup]) -> frozenset[FileGroup]:
        """Those of the groups that conflict with any of the others."""
        parts = {(partition, self.group_part(file_id)) for partition, file_id in other}
        return frozenset(group for group in groups if (group[0], self.group_part(group[1])) in parts)


def completed_writes(storage: Storage, events: list[Event], foreign: list[Instant]) -> list[OtherWrite]:
    """The writes among the log's events, and those of completed files that no slot names (Java writers')."""
    operations = {**SERVICES_THAT_ADD_A_SLICE, **SERVICES_THAT_REPLACE}
    writes = [
        OtherWrite(
            event.instant,
            COMPLETED_ACTIONS[event.action],
            operations.get(event.action, ""),
            event.file_groups,
            event.writer,
            event.number,
            event.time,
        )
        for event in events
        if event.kind == COMPLETE and COMPLETED_ACTIONS[event.action] in WRITE_ACTIONS
    ]
    for instant in foreign:
        metadata = read_commit(storage, instant)  # it may have been archived since it was listed
        groups = metadata.file_groups() | metadata.replaced_file_groups()
        writes.append(
            OtherWrite(
                instant.requested, instant.action, metadata.operation_type, groups, time=instant.completion or ""
            )
        )
    return sorted(writes, key=lambda write: write.time)
