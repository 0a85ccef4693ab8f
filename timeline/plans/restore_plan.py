"""A restore, planned and completed: Hudi's HoodieRestorePlan and HoodieRestoreMetadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakelatch.timeline.metadata import RollbackMetadata
from lakelatch.timeline.records import Record, encode, text
from lakelatch.timeline.schemas import RESTORE_METADATA, RESTORE_PLAN


@dataclass(frozen=True)
class RestorePlan(Record):
    """The content of a requested restore: (requested time, action) of each instant to undo, in that order, and the
    instant to go back to."""

    KIND = "a restore plan"
    NEEDED = ("instantsToRollback",)

    instants: tuple[tuple[str, str], ...]
    to: str

    @property
    def requested_times(self) -> frozenset[str]:
        return frozenset(instant for instant, _ in self.instants)

    def to_avro(self) -> bytes:
        record = {"instantsToRollback": _infos(self.instants), "version": 2, "savepointToRestoreTimestamp": self.to}
        return encode(RESTORE_PLAN, record)

    @classmethod
    def _of(cls, record: Mapping[str, Any]) -> RestorePlan:
        found = record["instantsToRollback"] or ()
        instants = tuple((text(one["commitTime"]), text(one["action"])) for one in found)
        return cls(instants, text(record.get("savepointToRestoreTimestamp")))


@dataclass(frozen=True)
class RestoreMetadata:
    """The content of a completed restore: what each rollback within it has removed."""

    restore: str
    rollbacks: tuple[RollbackMetadata, ...]
    duration_ms: int = 0

    def to_avro(self) -> bytes:
        record = {
            "startRestoreTime": self.restore,
            "timeTakenInMillis": self.duration_ms,
            "instantsToRollback": [one.instant for one in self.rollbacks],
            "hoodieRestoreMetadata": {one.instant: [one.record()] for one in self.rollbacks},
            "version": 1,
            "restoreInstantInfo": _infos((one.instant, one.action) for one in self.rollbacks),
        }
        return encode(RESTORE_METADATA, record)


def _infos(instants: Any) -> list[dict[str, str]]:
    return [{"commitTime": instant, "action": action} for instant, action in instants]
