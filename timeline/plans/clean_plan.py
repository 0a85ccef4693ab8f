"""A clean as Hudi writes it: its plan, which names every file to remove, and its metadata once it has completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakelatch.storage.contract import path_below
from lakelatch.timeline.instant import COMPLETED, Instant
from lakelatch.timeline.records import Record, encode, text, texts
from lakelatch.timeline.schemas import CLEAN_METADATA, CLEANER_PLAN

_VERSION = 2
_OWN_FOLDER = ".hoodie"


@dataclass(frozen=True)
class CleanPlan(Record):
    """The content of a requested clean: names of files by partition, and the earliest write whose state is kept.

    `earliest` is None where the plan does not say. Any executor copies `extra` into the completed clean.
    """

    KIND = "a clean's plan"
    NEEDED = ("policy", "filePathsToBeDeletedPerPartition")

    files: Mapping[str, tuple[str, ...]]
    policy: str
    earliest: Instant | None = None
    last_completed: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files' paths in the table."""
        return tuple(path_below(partition, name) for partition, names in self.files.items() for name in names)

    def to_avro(self, root: str) -> bytes:
        """`root` is the table's URI, since Hudi's plans have whole paths."""
        earliest = self.earliest
        action = None
        if earliest is not None:
            state = earliest.state.upper()
            action = {"timestamp": earliest.requested, "action": earliest.action, "state": state}
        record: dict[str, Any] = {
            "earliestInstantToRetain": action,
            "lastCompletedCommitTimestamp": self.last_completed,
            "policy": self.policy,
            "filesToBeDeletedPerPartition": {},
            "version": _VERSION,
            "filePathsToBeDeletedPerPartition": {
                partition: [
                    {"filePath": f"{root}/{path_below(partition, name)}", "isBootstrapBaseFile": False}
                    for name in names
                ]
                for partition, names in self.files.items()
            },
            "partitionsToBeDeleted": [],
            "extraMetadata": dict(self.extra),
        }
        return encode(CLEANER_PLAN, record)

    @classmethod
    def _of(cls, record: Mapping[str, Any]) -> CleanPlan:
        files: dict[str, tuple[str, ...]] = {}
        for partition, infos in (record["filePathsToBeDeletedPerPartition"] or {}).items():
            own = (info["filePath"] for info in infos if not info.get("isBootstrapBaseFile"))
            files[text(partition)] = tuple(map(_name, own))
        for partition, paths in (record.get("filesToBeDeletedPerPartition") or {}).items():  # as older writers do
            files.setdefault(text(partition), tuple(map(_name, paths)))
        for partition in files:
            if partition.split("/")[0] == _OWN_FOLDER or ".." in partition.split("/") or partition.startswith("/"):
                raise ValueError(f"{partition!r} is no partition")
        first = record.get("earliestInstantToRetain")
        earliest = None
        if first:
            state = text(first["state"]).lower()
            completion = "" if state == COMPLETED else None
            earliest = Instant(text(first["timestamp"]), text(first["action"]), state, completion)
        return cls(
            files,
            text(record["policy"]),
            earliest,
            text(record.get("lastCompletedCommitTimestamp")),
            texts(record.get("extraMetadata")),
        )


@dataclass(frozen=True)
class CleanMetadata:
    """The content of a completed clean: its plan, every file of which is gone, and how long that took."""

    clean: str
    plan: CleanPlan
    took_ms: int = 0

    def to_avro(self) -> bytes:
        partitions = {
            partition: {
                "partitionPath": partition,
                "policy": self.plan.policy,
                "deletePathPatterns": list(names),
                "successDeleteFiles": list(names),
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, names in self.plan.files.items()
        }
        record = {
            "startCleanTime": self.clean,
            "timeTakenInMillis": self.took_ms,
            "totalFilesDeleted": sum(len(names) for names in self.plan.files.values()),
            "earliestCommitToRetain": "" if self.plan.earliest is None else self.plan.earliest.requested,
            "lastCompletedCommitTimestamp": self.plan.last_completed,
            "partitionMetadata": partitions,
            "version": _VERSION,
            "bootstrapPartitionMetadata": {},
            "extraMetadata": dict(self.plan.extra),
        }
        return encode(CLEAN_METADATA, record)


def _name(path: Any) -> str:
    name = text(path).rpartition("/")[2]
    if name in ("", ".", "..", _OWN_FOLDER):
        raise ValueError(f"{path!r} is no data file")
    return name
