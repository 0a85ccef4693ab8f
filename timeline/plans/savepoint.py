"""The files that a savepoint keeps: Hudi's HoodieSavepointMetadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakelatch.timeline.records import Record, encode, number, text
from lakelatch.timeline.schemas import SAVEPOINT_METADATA


@dataclass(frozen=True)
class SavepointMetadata(Record):
    """The content of a completed savepoint: the names of the files that it keeps, by partition."""

    KIND = "a savepoint's metadata"
    NEEDED = ("partitionMetadata",)

    by: str
    at_ms: int
    comment: str
    files: Mapping[str, tuple[str, ...]]

    def to_avro(self) -> bytes:
        partitions = {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in self.files.items()
        }
        record = {
            "savepointedBy": self.by,
            "savepointedAt": self.at_ms,
            "comments": self.comment,
            "partitionMetadata": partitions,
            "version": 1,
        }
        return encode(SAVEPOINT_METADATA, record)

    @classmethod
    def _of(cls, record: Mapping[str, Any]) -> SavepointMetadata:
        files = {
            text(partition): tuple(text(name).rpartition("/")[2] for name in found["savepointDataFile"] or ())
            for partition, found in (record["partitionMetadata"] or {}).items()
        }
        by, comment = text(record.get("savepointedBy")), text(record.get("comments"))
        return cls(by, number(record.get("savepointedAt")), comment, files)
