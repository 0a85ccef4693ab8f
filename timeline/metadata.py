"""Records of timeline files, one in each Avro container file: commit metadata, compaction plans, rollbacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from lakelatch.timeline.actions import CLUSTER, REPLACING_OPERATIONS
from lakelatch.timeline.records import Record, encode, number, text, texts
from lakelatch.timeline.schemas import (
    COMMIT_METADATA,
    COMPACTION_PLAN,
    REPLACE_COMMIT_METADATA,
    ROLLBACK_METADATA,
    ROLLBACK_PLAN,
)

FileGroup: TypeAlias = tuple[str, str]  # partition, file id
SCHEMA_KEY = "schema"
WRITER_KEY = "lakelatch.writer"
CALLED_KEY = "lakelatch.operation"  # of a change that Hudi has no operation for
BEFORE_KEY = "lakelatch.before"  # instants that the same slot of the log commits before this one, if files come at once
CHANGES_KEY = (
    "lakelatch.changes"  # of a commit with others behind it in its slot, of one transaction: all their instants
)
_REPLACING = (*(operation.upper() for operation in REPLACING_OPERATIONS), CLUSTER)


@dataclass(frozen=True)
class WriteStat:
    """One file of a commit. `path` is relative to the table; counts are rows, sizes bytes.

    `previous_commit` is None for the first file of a group (Hudi stores the text "null"). Event times are whatever
    unit the ordering field has.
    """

    partition: str
    file_id: str
    path: str
    previous_commit: str | None = None
    num_writes: int = 0
    num_inserts: int = 0
    num_update_writes: int = 0
    num_deletes: int = 0
    total_write_bytes: int = 0
    file_size_bytes: int = 0
    total_log_records: int = 0
    total_log_files: int = 0
    total_updated_records_compacted: int = 0
    log_version: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    previous_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None

    def to_avro(self) -> dict[str, Any]:
        """The record of Hudi's HoodieWriteStat."""
        return {
            "fileId": self.file_id,
            "path": self.path,
            "prevCommit": self.previous_commit or "null",
            "numWrites": self.num_writes,
            "numDeletes": self.num_deletes,
            "numUpdateWrites": self.num_update_writes,
            "totalWriteBytes": self.total_write_bytes,
            "totalWriteErrors": 0,
            "partitionPath": self.partition,
            "totalLogRecords": self.total_log_records,
            "totalLogFiles": self.total_log_files,
            "totalUpdatedRecordsCompacted": self.total_updated_records_compacted,
            "numInserts": self.num_inserts,
            "totalLogBlocks": 0,
            "totalCorruptLogBlock": 0,
            "totalRollbackBlocks": 0,
            "fileSizeInBytes": self.file_size_bytes,
            "logVersion": self.log_version,
            "logOffset": 0 if self.log_version is not None else None,
            "baseFile": self.base_file,
            "logFiles": None if self.log_files is None else list(self.log_files),
            "prevBaseFile": self.previous_base_file,
            "minEventTime": self.min_event_time,
            "maxEventTime": self.max_event_time,
            "totalLogFilesCompacted": self.total_log_files,
            "totalLogReadTimeMs": 0,
            "totalLogSizeCompacted": 0,
            "numUpdates": 0,
        }

    @classmethod
    def from_avro(cls, partition: str, record: Mapping[str, Any]) -> WriteStat:
        logs = record.get("logFiles")
        return cls(
            partition=text(partition),
            file_id=text(record.get("fileId")),
            path=text(record.get("path")),
            previous_commit=None if record.get("prevCommit") == "null" else record.get("prevCommit"),
            num_writes=number(record.get("numWrites")),
            num_inserts=number(record.get("numInserts")),
            num_update_writes=number(record.get("numUpdateWrites")),
            num_deletes=number(record.get("numDeletes")),
            total_write_bytes=number(record.get("totalWriteBytes")),
            file_size_bytes=record.get("fileSizeInBytes") or 0,
            total_log_records=record.get("totalLogRecords") or 0,
            total_log_files=record.get("totalLogFiles") or record.get("totalLogFilesCompacted") or 0,
            total_updated_records_compacted=record.get("totalUpdatedRecordsCompacted") or 0,
            log_version=record.get("logVersion"),
            base_file=record.get("baseFile"),
            log_files=None if logs is None else tuple(logs),
            previous_base_file=record.get("prevBaseFile"),
            min_event_time=record.get("minEventTime"),
            max_event_time=record.get("maxEventTime"),
        )


def after(content: bytes, instants: Iterable[str]) -> bytes:
    """The bytes of a commit that says which instants its slot commits before it."""
    commit = CommitMetadata.from_avro(content)
    return replace(commit, extra={**commit.extra, BEFORE_KEY: ",".join(instants)}).to_avro()


@dataclass(frozen=True)
class CommitMetadata(Record):
    """A completed commit, delta commit or replace commit.

    `extra["schema"]` is the table's Avro schema without meta columns: readers need it on every commit. `replaced`
    holds, by partition, the file ids that a replace commit took away; a partition without any may be named as well.
    """

    KIND = "commit metadata"
    NEEDED = ("partitionToWriteStats", "operationType")

    stats: tuple[WriteStat, ...]
    operation_type: str
    extra: Mapping[str, str] = field(default_factory=dict)
    compacted: bool = False
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """The operation in capitals, as Hudi's are; UPDATE and MERGE as well, which Hudi does not have."""
        return self.extra.get(CALLED_KEY, "").upper() or self.operation_type

    @property
    def schema(self) -> str | None:
        return self.extra.get(SCHEMA_KEY)

    def file_groups(self) -> frozenset[FileGroup]:
        """(partition, file id) of every file written."""
        return frozenset((stat.partition, stat.file_id) for stat in self.stats)

    def replaced_file_groups(self) -> frozenset[FileGroup]:
        """(partition, file id) of every file group that a replace commit took away."""
        return frozenset((partition, file_id) for partition, ids in self.replaced.items() for file_id in ids)

    def to_avro(self) -> bytes:
        by_partition: dict[str, list[dict[str, Any]]] = {}
        for stat in self.stats:
            by_partition.setdefault(stat.partition, []).append(stat.to_avro())
        record = {
            "partitionToWriteStats": ("map", by_partition),  # else the library validates all of it to find its branch
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra),
            "version": 1,
            "operationType": self.operation_type,
        }
        if not self.replaced and self.operation_type not in _REPLACING:
            return encode(COMMIT_METADATA, record)
        record["partitionToReplaceFileIds"] = {partition: list(ids) for partition, ids in self.replaced.items()}
        return encode(REPLACE_COMMIT_METADATA, record)

    @classmethod
    def _of(cls, record: Mapping[str, Any]) -> CommitMetadata:
        stats = [
            WriteStat.from_avro(partition, stat)
            for partition, found in (record["partitionToWriteStats"] or {}).items()
            for stat in found
        ]
        replaced = record.get("partitionToReplaceFileIds") or {}
        return cls(
            stats=tuple(stats),
            operation_type=text(record["operationType"]),
            extra=texts(record.get("extraMetadata")),
            compacted=bool(record.get("compacted")),
            replaced={text(partition): tuple(map(text, ids)) for partition, ids in replaced.items()},
        )


@dataclass(frozen=True)
class CompactionOperation:
    """One file group to compact: its base file (None if there is none yet) and log files, as names without folder."""

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    delta_files: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CompactionPlan(Record):
    """The content of a requested compaction. `extra` holds further facts for its executors."""

    KIND = "a compaction plan"
    NEEDED = ("operations",)

    operations: tuple[CompactionOperation, ...]
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_groups(self) -> frozenset[FileGroup]:
        """Partition and file id of each."""
        return frozenset((one.partition, one.file_id) for one in self.operations)

    def to_avro(self) -> bytes:
        operations = [
            {
                "baseInstantTime": operation.base_instant,
                "deltaFilePaths": list(operation.delta_files),
                "dataFilePath": operation.base_file,
                "fileId": operation.file_id,
                "partitionPath": operation.partition,
                "metrics": dict(operation.metrics),
            }
            for operation in self.operations
        ]
        extra = dict(self.extra)
        record = {"operations": operations, "extraMetadata": extra, "version": 2, "preserveHoodieMetadata": True}
        return encode(COMPACTION_PLAN, record)

    @classmethod
    def _of(cls, record: Mapping[str, Any]) -> CompactionPlan:
        return cls(
            tuple(
                CompactionOperation(
                    partition=text(operation.get("partitionPath")),
                    file_id=text(operation["fileId"]),
                    base_instant=text(operation["baseInstantTime"]),
                    base_file=text(operation.get("dataFilePath")) or None,
                    delta_files=tuple(map(text, operation.get("deltaFilePaths") or ())),
                    metrics=operation.get("metrics") or {},
                )
                for operation in record["operations"] or ()
            ),
            texts(record.get("extraMetadata")),
        )


@dataclass(frozen=True)
class RollbackPlan(Record):
    """The content of a requested rollback: the instant to undo, and the known paths of its files in the table."""

    KIND = "a rollback plan"
    NEEDED = ("instantToRollback",)

    instant: str
    action: str
    files: tuple[str, ...]

    def to_avro(self) -> bytes:
        by_partition = _by_partition(self.files)
        requests = [
            {"partitionPath": partition, "fileId": None, "latestBaseInstant": None, "filesToBeDeleted": files}
            for partition, files in by_partition.items()
        ]
        target = {"commitTime": self.instant, "action": self.action}
        record = {"instantToRollback": target, "RollbackRequests": requests, "version": 1}
        return encode(ROLLBACK_PLAN, record)

    @classmethod
    def _of(cls, record: Mapping[str, Any]) -> RollbackPlan:
        target = record["instantToRollback"]
        if not target:
            raise ValueError("it names no instant")
        files = [
            f"{partition}/{name}" if partition else name  # Java writes whole paths, from its own point of view
            for request in record["RollbackRequests"] or ()
            for partition in (text(request["partitionPath"]),)
            for name in (text(path).rpartition("/")[2] for path in request["filesToBeDeleted"] or ())
        ]
        return cls(text(target["commitTime"]), text(target["action"]), tuple(files))


@dataclass(frozen=True)
class RollbackMetadata:
    """The content of a completed rollback."""

    rollback: str
    instant: str
    action: str
    deleted: tuple[str, ...]

    def to_avro(self) -> bytes:
        return encode(ROLLBACK_METADATA, self.record())

    def record(self) -> dict[str, Any]:
        """The Avro record, which a restore's metadata contains as well."""
        partitions = {
            partition: {"partitionPath": partition, "successDeleteFiles": files, "failedDeleteFiles": []}
            for partition, files in _by_partition(self.deleted).items()
        }
        return {
            "startRollbackTime": self.rollback,
            "timeTakenInMillis": 0,
            "totalFilesDeleted": len(self.deleted),
            "commitsRollback": [self.instant],
            "partitionMetadata": partitions,
            "version": 1,
            "instantsRollback": [{"commitTime": self.instant, "action": self.action}],
        }


def _by_partition(paths: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(path.rpartition("/")[0], []).append(path)
    return found
