"""Reads the metadata of completed cleans, rollbacks, restores and savepoints: the files and instants that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakelatch.timeline.records import decode


def read_rolled_back(data: bytes, path: str) -> frozenset[str]:
    """Requested times of the instants that a completed rollback or restore has undone. Errors: `CorruptTable`."""
    return decode(data, path, "a rollback's metadata", (), _rolled_back)


def read_undone(data: bytes, path: str) -> tuple[tuple[str, str], ...]:
    """The instants that a completed rollback or restore has undone, in that order: (requested time, action).

    Actions are empty where its writer has not named them. Errors: `CorruptTable`.
    """
    return decode(data, path, "a rollback's metadata", (), _undone)


def read_cleaned(data: bytes, path: str) -> Mapping[str, tuple[str, ...]]:
    """Names of the files that a completed clean has removed, or found gone, by partition. Errors: `CorruptTable`."""
    return decode(data, path, "a clean's metadata", ("partitionMetadata",), _cleaned)


def read_earliest_retained(data: bytes, path: str) -> str:
    """The requested time from which on a completed clean kept everything, "" if it went by versions.

    Errors: `CorruptTable`.
    """
    return decode(data, path, "a clean's metadata", (), lambda record: str(record.get("earliestCommitToRetain") or ""))


def read_clean_extra(data: bytes, path: str) -> Mapping[str, str]:
    """The extra metadata of a completed clean's plan. Errors: `CorruptTable`."""
    return decode(data, path, "a clean's metadata", (), lambda record: dict(record["extraMetadata"] or {}))


def read_savepointed(data: bytes, path: str) -> Mapping[str, frozenset[str]]:
    """Names of the files that a completed savepoint keeps, by partition. Errors: `CorruptTable`."""
    return decode(data, path, "a savepoint's metadata", (), _savepointed)


def read_undone_partitions(data: bytes, path: str) -> frozenset[str]:
    """The partitions in which a completed rollback or restore has found files. Errors: `CorruptTable`."""
    return decode(data, path, "a rollback's metadata", (), _undone_partitions)


def _savepointed(record: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
    return {
        str(partition): frozenset(str(file).rpartition("/")[2] for file in found["savepointDataFile"] or ())
        for partition, found in (record["partitionMetadata"] or {}).items()
    }


def _undone_partitions(record: Mapping[str, Any]) -> frozenset[str]:
    if "commitsRollback" in record:
        return frozenset(map(str, record["partitionMetadata"] or ()))
    rollbacks = (one for found in (record["hoodieRestoreMetadata"] or {}).values() for one in found or () if one)
    return frozenset(partition for one in rollbacks for partition in _undone_partitions(one))


def _rolled_back(record: Mapping[str, Any]) -> frozenset[str]:
    if "commitsRollback" in record:
        return frozenset(map(str, record["commitsRollback"] or ()))
    return frozenset(map(str, record["instantsToRollback"] or ()))


def _undone(record: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    is_rollback = "commitsRollback" in record
    infos = record.get("instantsRollback" if is_rollback else "restoreInstantInfo") or ()
    actions = {str(one["commitTime"]): str(one["action"] or "") for one in infos}
    times = map(str, record["commitsRollback" if is_rollback else "instantsToRollback"] or ())
    return tuple((time, actions.get(time, "")) for time in dict.fromkeys((*times, *actions)))


def _cleaned(record: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    # Older writers give whole paths. Java counts files as failed that an earlier run of the clean has removed.
    return {
        str(partition): tuple(
            dict.fromkeys(
                str(file).rpartition("/")[2]
                for files in (found["successDeleteFiles"], found.get("failedDeleteFiles"))
                for file in files or ()
            )
        )
        for partition, found in (record["partitionMetadata"] or {}).items()
    }
