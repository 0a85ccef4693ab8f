"""Avro schemas of Hudi's timeline files, field by field in Hudi's order (namespace org.apache.hudi.avro.model)."""

from __future__ import annotations

from typing import Any

import fastavro

_NAMESPACE = "org.apache.hudi.avro.model"
_STRING: dict[str, Any] = {"type": "string", "avro.java.string": "String"}


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": fields}


def _parsed(name: str, fields: list[dict[str, Any]]) -> Any:
    return fastavro.parse_schema(_record(name, fields))


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _strings(*names: str) -> list[dict[str, Any]]:
    return [_optional(name, _STRING) for name in names]


def _longs(*names: str) -> list[dict[str, Any]]:
    return [_optional(name, "long") for name in names]


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values, "avro.java.string": "String"}


def _version(default: int = 1) -> dict[str, Any]:
    return {"name": "version", "type": ["int", "null"], "default": default}


def _write_stat() -> dict[str, Any]:
    runtime = _record("HoodieRuntimeStats", _longs("totalScanTime", "totalCreateTime", "totalUpsertTime"))
    return _record(
        "HoodieWriteStat",
        [
            *_strings("fileId", "path", "prevCommit"),
            *_longs("numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "totalWriteErrors"),
            *_strings("partitionPath"),
            *_longs("totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted", "numInserts"),
            *_longs("totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes"),
            _optional("logVersion", "int"),
            *_longs("logOffset"),
            *_strings("baseFile"),
            _optional("logFiles", _array(_STRING)),
            _optional("cdcStats", _map("long")),
            *_strings("prevBaseFile"),
            *_longs("minEventTime", "maxEventTime"),
            _optional("runtimeStats", runtime),
            *_longs("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted"),
            *_strings("tempPath"),
            *_longs("numUpdates"),
        ],
    )


def _commit_fields() -> list[dict[str, Any]]:
    return [
        _optional("partitionToWriteStats", _map(_array(_write_stat()))),
        _optional("compacted", "boolean"),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
        *_strings("operationType"),
    ]


COMMIT_METADATA = _parsed("HoodieCommitMetadata", _commit_fields())

REPLACE_COMMIT_METADATA = _parsed(
    "HoodieReplaceCommitMetadata",
    [*_commit_fields(), _optional("partitionToReplaceFileIds", _map(_array(_STRING)))],
)

COMPACTION_PLAN = _parsed(
    "HoodieCompactionPlan",
    [
        _optional(
            "operations",
            _array(
                _record(
                    "HoodieCompactionOperation",
                    [
                        {"name": "baseInstantTime", "type": ["null", _STRING]},
                        _optional("deltaFilePaths", _array(_STRING)),
                        *_strings("dataFilePath"),
                        {"name": "fileId", "type": ["null", _STRING]},
                        *_strings("partitionPath"),
                        _optional("metrics", _map("double")),
                        *_strings("bootstrapFilePath"),
                    ],
                )
            ),
        ),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
        _optional(
            "strategy",
            _record(
                "HoodieCompactionStrategy",
                [*_strings("compactorClassName"), _optional("strategyParams", _map(_STRING)), _version()],
            ),
        ),
        {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
        _optional("missingSchedulePartitions", _array(_STRING)),
    ],
)

_INSTANT_INFO = _record(
    "HoodieInstantInfo", [{"name": "commitTime", "type": _STRING}, {"name": "action", "type": _STRING}]
)

ROLLBACK_PLAN = _parsed(
    "HoodieRollbackPlan",
    [
        _optional("instantToRollback", _INSTANT_INFO),
        _optional(
            "RollbackRequests",
            _array(
                _record(
                    "HoodieRollbackRequest",
                    [
                        {"name": "partitionPath", "type": _STRING},
                        *_strings("fileId", "latestBaseInstant"),
                        {"name": "filesToBeDeleted", "type": _array(_STRING), "default": []},
                        _optional("logBlocksToBeDeleted", _map("long")),
                    ],
                )
            ),
        ),
        _version(),
    ],
)

ROLLBACK_METADATA = _parsed(
    "HoodieRollbackMetadata",
    [
        {"name": "startRollbackTime", "type": _STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "commitsRollback", "type": _array(_STRING)},
        {
            "name": "partitionMetadata",
            "type": _map(
                _record(
                    "HoodieRollbackPartitionMetadata",
                    [
                        {"name": "partitionPath", "type": _STRING},
                        {"name": "successDeleteFiles", "type": _array(_STRING)},
                        {"name": "failedDeleteFiles", "type": _array(_STRING)},
                        _optional("rollbackLogFiles", _map("long")),
                        _optional("logFilesFromFailedCommit", _map("long")),
                    ],
                )
            ),
        },
        _version(),
        {"name": "instantsRollback", "type": _array(_INSTANT_INFO), "default": []},
    ],
)
