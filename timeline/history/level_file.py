"""What one level file of the history says: its instants, and the bytes of their metadata where somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable
from lakelatch.storage.contract import Storage
from lakelatch.timeline.history.manifest import SIZE_UNKNOWN, LevelFile
from lakelatch.timeline.timeline import COMPLETED, Instant

METADATA, PLAN = "metadata", "plan"  # columns
_TIMES = ("instantTime", "completionTime", "action")
_INDEXES_MAX = 512
_CONTENTS_MAX = 8  # level files of higher levels are large, and are read for their metadata one after another


@dataclass(frozen=True)
class ArchivedInstant:
    """A completed instant that an archiver has taken off the active timeline, and the level file that has it.

    A delta commit that `has_plan` is a log compaction.
    """

    instant: Instant
    file: LevelFile
    has_plan: bool = False

    @property
    def requested(self) -> str:
        return self.instant.requested

    @property
    def completion(self) -> str:
        return self.instant.completion or ""

    @property
    def action(self) -> str:
        return self.instant.action


@lru_cache(maxsize=_INDEXES_MAX)  # a level file never changes
def read_index(storage: Storage, file: LevelFile) -> Mapping[str, ArchivedInstant]:
    """The instants of a level file by requested time. Errors: `NotFound`, and `CorruptTable` with the file's path."""
    rows = _read(storage.read(file.path), file, (*_TIMES, PLAN))
    columns = [*(rows[name].to_pylist() for name in _TIMES), rows[PLAN].is_valid().to_pylist()]
    found: dict[str, ArchivedInstant] = {}
    for requested, completion, action, has_plan in zip(*columns, strict=True):
        if not requested or not action:
            raise CorruptTable(
                f"{file.path} holds an instant {requested!r} of action {action!r}: restore it from a copy",
                path=file.path,
            )
        # Tables that were upgraded from layout 1 have instants whose completion nobody noted down.
        instant = Instant(requested, action, COMPLETED, completion or requested)
        found[requested] = ArchivedInstant(instant, file, has_plan)
    return found


def read_bytes(storage: Storage, archived: ArchivedInstant, column: str) -> bytes | None:
    """What an instant has in the column METADATA or PLAN. Errors: `NotFound` and `CorruptTable`, as above."""
    return _contents(storage, archived.file, column).get(archived.requested)


@lru_cache(maxsize=_CONTENTS_MAX)
def _contents(storage: Storage, file: LevelFile, column: str) -> Mapping[str, bytes | None]:
    rows = _read(storage.read(file.path), file, ("instantTime", column))
    return dict(zip(rows["instantTime"].to_pylist(), rows[column].to_pylist(), strict=True))


def _read(data: bytes, file: LevelFile, columns: tuple[str, ...]) -> Any:
    if file.size_bytes not in (SIZE_UNKNOWN, len(data)):
        raise CorruptTable(
            f"{file.path} has {len(data)} bytes, and the manifest says {file.size_bytes}: restore it from a copy",
            path=file.path,
        )
    try:
        rows = pq.ParquetFile(pa.BufferReader(data)).read(columns=list(columns))
        rows.validate(full=True)
        if rows.column_names != list(columns):
            raise ValueError(f"its columns are {', '.join(rows.column_names)}")
        return rows
    except Exception as error:  # the library raises whatever the bytes provoke
        raise CorruptTable(
            f"{file.path} is no level file of the history ({error}): restore it from a copy", path=file.path
        ) from error
