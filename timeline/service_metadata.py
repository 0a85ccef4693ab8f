"""What completed cleans, rollbacks and restores say of the files and instants that they took away."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import fastavro

from lakelatch.errors import CorruptTable
from lakelatch.storage.checksums import verify_checksum

T = TypeVar("T")


def read_rolled_back(data: bytes, path: str) -> frozenset[str]:
    """Requested times of the instants that a completed rollback or restore has undone. Errors: `CorruptTable`."""
    return _read(data, path, "a rollback's metadata", _rolled_back)


def read_cleaned(data: bytes, path: str) -> Mapping[str, tuple[str, ...]]:
    """Names of the files that a completed clean has removed, by partition. Errors: `CorruptTable`."""
    return _read(data, path, "a clean's metadata", _cleaned)


def _rolled_back(record: Mapping[str, Any]) -> frozenset[str]:
    if "commitsRollback" in record:
        return frozenset(map(str, record["commitsRollback"] or ()))
    return frozenset(map(str, record["instantsToRollback"] or ()))


def _cleaned(record: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    # Older writers give whole paths.
    return {
        str(partition): tuple(str(file).rpartition("/")[2] for file in found["successDeleteFiles"] or ())
        for partition, found in (record["partitionMetadata"] or {}).items()
    }


def _read(data: bytes, path: str, what: str, take: Callable[[Mapping[str, Any]], T]) -> T:
    verify_checksum(data, path)
    try:
        (record,) = fastavro.reader(io.BytesIO(data))
        return take(record)  # type: ignore[arg-type]
    except Exception as error:  # the library raises whatever the bytes provoke
        raise CorruptTable(
            f"{path} holds {len(data)} bytes that are not {what} ({error!r}): restore it from a copy", path=path
        ) from error
