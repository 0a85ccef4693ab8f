"""The cost of a write conflict, and the table's list of recent ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakelatch.errors import LakelatchError, WriteConflict
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.telemetry import CONFLICTS, EARLY, LOST_SIZE, LOST_TIME, Labels, record
from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.transactions.conflicts.contract import Conflict

CONFLICTS_FOLDER = ".hoodie/.lakelatch/conflicts"
CONFLICTS_KEPT = 100
_GROUPS_KEPT = 20
_log = logging.getLogger("lakelatch.transactions")


@dataclass(frozen=True)
class Work:
    """The work that tasks have done for a transaction; `task_ms` is the sum of their times."""

    rows: int = 0
    size_bytes: int = 0
    task_ms: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.rows + other.rows, self.size_bytes + other.size_bytes, self.task_ms + other.task_ms)

    @classmethod
    def of(cls, metadata: CommitMetadata) -> Work:
        """The work by a commit's own counts, which have no times."""
        rows = sum(stat.num_writes + stat.num_deletes for stat in metadata.stats)
        return cls(rows, sum(stat.total_write_bytes for stat in metadata.stats))


def write_conflict(instant: str, conflict: Conflict, time_lost_s: float, work: Work, early: bool) -> WriteConflict:
    """The error of the write that is aborted."""
    winner = conflict.winner
    return WriteConflict.of(
        instant,
        winner.instant,
        winner.action,
        conflict.file_groups,
        time_lost_s,
        winner_writer=winner.writer,
        inflight=winner.inflight,
        early=early,
        seen_slot=winner.slot,
        seen_time=winner.time,
        rows_lost=work.rows,
        bytes_lost=work.size_bytes,
        task_s_lost=work.task_ms / 1000,
    )


def record_loss(storage: Storage, writer: str, conflict: WriteConflict, labels: Labels) -> None:
    """Adds a loss to the list, and removes the oldest of too many. Never fails: the abort matters more."""
    details, groups = dict(conflict.details), conflict.file_groups
    labels = {**labels, EARLY: bool(details.get("early"))}
    record(CONFLICTS, 1, labels)
    record(LOST_TIME, details.get("time_lost_s") or 0, labels)
    record(LOST_SIZE, details.get("bytes_lost") or 0, labels)
    details.update(writer=writer, file_groups=groups[:_GROUPS_KEPT], file_group_count=len(groups))
    instant = str(details.get("instant", ""))
    try:
        storage.put(f"{CONFLICTS_FOLDER}/{instant}", checksummed_json(details))
        names = sorted(storage.names(CONFLICTS_FOLDER))
        for name in names[: max(len(names) - CONFLICTS_KEPT, 0)]:
            storage.delete(f"{CONFLICTS_FOLDER}/{name}")
    except LakelatchError as error:
        _log.warning("the conflict of instant %s is not kept for `lakelatch conflicts`: %s", instant, error)


def shown_loss(conflict: WriteConflict) -> dict[str, str | float]:
    """What a span says of a conflict: who won, and what was lost."""
    names = "instant", "winner", "winner_action", "winner_writer", "time_lost_s", "rows_lost", "bytes_lost"
    found = {f"lakelatch.{name}": conflict.details[name] for name in names if conflict.details.get(name) is not None}
    return {**found, "lakelatch.file_groups": len(conflict.file_groups)}


@dataclass(frozen=True)
class Loss:
    """One entry of the list; the fields are those of `WriteConflict`."""

    instant: str
    writer: str
    winner: str
    winner_action: str
    winner_writer: str
    early: bool
    inflight: bool
    seen_slot: int
    seen_time: str
    file_groups: tuple[FileGroup, ...]
    file_group_count: int
    time_lost_s: float
    rows_lost: int
    bytes_lost: int
    task_s_lost: float

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Loss:
        return cls(
            instant=str(values["instant"]),
            writer=str(values["writer"]),
            winner=str(values["winner"]),
            winner_action=str(values["winner_action"]),
            winner_writer=str(values["winner_writer"]),
            early=bool(values["early"]),
            inflight=bool(values["inflight"]),
            seen_slot=int(values["seen_slot"]),
            seen_time=str(values["seen_time"]),
            file_groups=tuple((str(partition), str(file_id)) for partition, file_id in values["file_groups"]),
            file_group_count=int(values["file_group_count"]),
            time_lost_s=float(values["time_lost_s"]),
            rows_lost=int(values["rows_lost"]),
            bytes_lost=int(values["bytes_lost"]),
            task_s_lost=float(values["task_s_lost"]),
        )


def recent_losses(storage: Storage, limit: int = CONFLICTS_KEPT) -> list[Loss]:
    """The last conflicts, by the requested times of the aborted writes; what cannot be read is left out."""
    found = (read_loss(storage, name) for name in loss_names(storage)[-limit:])
    return [loss for loss in found if loss is not None]


def loss_names(storage: Storage) -> list[str]:
    """The requested times of the aborted writes in the list, in order."""
    return sorted(storage.names(CONFLICTS_FOLDER))


def read_loss(storage: Storage, name: str) -> Loss | None:
    """One entry of the list, None if it cannot be read, or is gone."""
    try:
        values = open_checksummed_json(storage.read(f"{CONFLICTS_FOLDER}/{name}"))
        if values is None:
            raise ValueError("its checksum is wrong, or missing")
        return Loss.from_json(values)
    except (NotFound, ValueError, KeyError, TypeError) as error:
        _log.warning("the entry %s/%s cannot be read: %s", CONFLICTS_FOLDER, name, error)
        return None
