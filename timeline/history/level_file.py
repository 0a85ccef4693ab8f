"""One level file of the history: its instants, and the bytes of their metadata on demand.

A large one is not read whole: its footer says which row groups can match, and of those only the needed columns are
read. A level file never changes, so a process reads each part once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelatch.errors import CorruptTable, LakelatchError
from lakelatch.range_file import RangeFile
from lakelatch.storage.contract import Storage
from lakelatch.timeline.history.manifest import SIZE_UNKNOWN, LevelFile
from lakelatch.timeline.instant import COMPLETED, Instant

METADATA, PLAN = "metadata", "plan"  # columns
_TIMES = ("instantTime", "completionTime", "action")
_FILES_MAX = 512
_SMALL_MAX = 64
_GROUPS_MAX = 1024
_CONTENTS_MAX = 8  # metadata is large, and is read one after another
_WHOLE_MAX_BYTES = 64 * 1024  # of a file that is read at once
_GREATEST = "\U0010ffff"
_STRING = '["null",{"type":"string","avro.java.string":"String"}],"default":null}'
_AVRO_SCHEMA = (
    '{"type":"record","name":"HoodieLSMTimelineInstant","namespace":"org.apache.hudi.avro.model","fields":['
    f'{{"name":"instantTime","type":{_STRING},{{"name":"completionTime","type":{_STRING},'
    f'{{"name":"action","type":{_STRING},{{"name":"metadata","type":["null","bytes"],"default":null}},'
    '{"name":"plan","type":["null","bytes"],"default":null},{"name":"version","type":"int","default":1}]}'
)
#: Large types, since a table of many of them may hold more than 2 GiB; parquet has one type for both.
LEVEL_FILE_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        (METADATA, pa.large_binary()),
        (PLAN, pa.large_binary()),
        pa.field("version", pa.int32(), nullable=False),
    ],
    metadata={"parquet.avro.schema": _AVRO_SCHEMA, "writer.model.name": "avro"},
)


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


def forget_all() -> None:
    """Clears this process's caches, so that it is like a new one."""
    for known in (_groups, _index, _actions, _contents, _whole):
        known.cache_clear()


def find_in(storage: Storage, file: LevelFile, requested: Collection[str]) -> dict[str, ArchivedInstant]:
    """The instants of these requested times in a level file. Errors: `NotFound`, `CorruptTable` with its path."""
    found: dict[str, ArchivedInstant] = {}
    for number, group in enumerate(_groups(storage, file)):
        if any(group.first <= one <= group.last for one in requested):
            rows = _index(storage, file, number)
            chosen = rows.filter(pc.is_in(rows["instantTime"], pa.array(list(requested), pa.string())))
            found.update((one.requested, one) for one in _instants(chosen, file))
    return found


def select_from(
    storage: Storage,
    file: LevelFile,
    actions: Collection[str] | None,
    after: str,
    until: str | None,
    planned_only: bool,
) -> Iterator[ArchivedInstant]:
    """Instants of a level file: of these actions, completed after a time and until another. Errors: as above."""
    for number, group in enumerate(_groups(storage, file)):
        if group.last_completion <= after or (until is not None and group.first_completion > until):
            continue
        if actions is not None and not any(group.least_action <= one <= group.greatest_action for one in actions):
            continue
        if planned_only and not group.has_plans:
            continue
        if actions is not None and _actions(storage, file, number, planned_only).isdisjoint(actions):
            continue
        rows = _index(storage, file, number)
        masks = []  # none for what the bounds say of all rows
        if group.first_completion <= after:
            masks.append(pc.greater(rows["completionTime"], after))
        if until is not None and group.last_completion > until:
            masks.append(pc.less_equal(rows["completionTime"], until))
        if actions is not None:
            masks.append(pc.is_in(rows["action"], pa.array(list(actions), pa.string())))
        if planned_only:
            masks.append(rows["has_plan"])
        yield from _instants(rows.filter(reduce(pc.and_, masks)) if masks else rows, file)


def read_bytes(storage: Storage, archived: ArchivedInstant, column: str) -> bytes | None:
    """The column METADATA or PLAN of an instant. Errors: `NotFound` and `CorruptTable`, as above."""
    for number, group in enumerate(_groups(storage, archived.file)):
        if group.first <= archived.requested <= group.last:
            contents = _contents(storage, archived.file, number, column)
            if archived.requested in contents:
                return contents[archived.requested]
    return None


def read_rows(storage: Storage, file: LevelFile) -> Any:
    """All of a level file, as a table of `LEVEL_FILE_SCHEMA`. Errors: `NotFound` and `CorruptTable`, as above."""
    with _Opened(storage, file) as opened:
        rows = opened.read(columns=LEVEL_FILE_SCHEMA.names).select(LEVEL_FILE_SCHEMA.names)
        rows.validate(full=True)
        return rows.cast(LEVEL_FILE_SCHEMA)


@dataclass(frozen=True)
class _Group:
    """The bounds of a row group's values by the footer; the widest ones where it has none."""

    first: str
    last: str
    first_completion: str
    last_completion: str
    least_action: str
    greatest_action: str
    has_plans: bool


@lru_cache(maxsize=_FILES_MAX)
def _groups(storage: Storage, file: LevelFile) -> tuple[_Group, ...]:
    with _Opened(storage, file) as opened:
        metadata = opened.metadata
        groups = []
        for number in range(metadata.num_row_groups):
            columns = [metadata.row_group(number).column(one) for one in range(metadata.row_group(number).num_columns)]
            by_name = {column.path_in_schema: column for column in columns}
            plans = by_name[PLAN].statistics
            has_plans = (
                plans is None or not plans.has_null_count or plans.null_count < metadata.row_group(number).num_rows
            )
            times, completions, actions = (_bounds(by_name[name]) for name in _TIMES)
            groups.append(_Group(*times, *completions, *actions, has_plans))
        return tuple(groups)


def _bounds(column: Any) -> tuple[str, str]:
    found = column.statistics
    if found is None or not found.has_min_max or not found.has_null_count or found.null_count:
        return "", _GREATEST
    # Long texts may be cut there; none of these is as long.
    return str(found.min), str(found.max)


@lru_cache(maxsize=_GROUPS_MAX)
def _index(storage: Storage, file: LevelFile, number: int) -> Any:
    """The instants of a row group, as a table of four columns."""
    has_plans = _groups(storage, file)[number].has_plans
    rows = _read(storage, file, number, (*_TIMES, PLAN) if has_plans else _TIMES)
    for name in ("instantTime", "action"):
        if rows[name].null_count or pc.any(pc.equal(rows[name], "")).as_py():
            raise CorruptTable(
                f"{file.path} holds an instant without {'its time' if name != 'action' else 'an action'}: restore it "
                "from a copy",
                path=file.path,
            )
    # Tables that were upgraded from layout 1 have instants without a completion time.
    known = pc.and_kleene(pc.is_valid(rows["completionTime"]), pc.not_equal(rows["completionTime"], ""))
    completions = pc.if_else(known, rows["completionTime"], rows["instantTime"])
    planned = pc.is_valid(rows[PLAN]) if has_plans else pa.array([False] * len(rows), pa.bool_())
    return pa.table([rows["instantTime"], completions, rows["action"], planned], names=[*_TIMES, "has_plan"])


@lru_cache(maxsize=2 * _GROUPS_MAX)
def _actions(storage: Storage, file: LevelFile, number: int, planned_only: bool) -> frozenset[str]:
    """The actions in a row group, or only of instants that have a plan: most queries end here."""
    rows = _index(storage, file, number)
    return frozenset(pc.unique((rows.filter(rows["has_plan"]) if planned_only else rows)["action"]).to_pylist())


def _instants(rows: Any, file: LevelFile) -> Iterator[ArchivedInstant]:
    for requested, completion, action, planned in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        yield ArchivedInstant(Instant(requested, action, COMPLETED, completion), file, planned)


@lru_cache(maxsize=_CONTENTS_MAX)
def _contents(storage: Storage, file: LevelFile, number: int, column: str) -> Mapping[str, bytes | None]:
    rows = _read(storage, file, number, ("instantTime", column))
    return dict(zip(rows["instantTime"].to_pylist(), rows[column].to_pylist(), strict=True))


def _read(storage: Storage, file: LevelFile, number: int, columns: tuple[str, ...]) -> Any:
    with _Opened(storage, file) as opened:
        rows = opened.read_row_group(number, columns=list(columns), use_threads=False).select(list(columns))
        rows.validate(full=True)
        return rows


class _Opened:
    """Opens a level file as parquet for a block. Errors: `CorruptTable`, whatever is wrong with its bytes."""

    def __init__(self, storage: Storage, file: LevelFile) -> None:
        self._storage = storage
        self._file = file

    def __enter__(self) -> Any:
        path, size = self._file.path, self._file.size_bytes
        if SIZE_UNKNOWN < size <= _WHOLE_MAX_BYTES:
            data = _whole(self._storage, self._file)
            source: Any = pa.BufferReader(data)
            there = len(data)
        else:
            there = self._storage.stat(path).size_bytes
            source = pa.PythonFile(_Ranges(self._storage, path, there), mode="r")
        if size not in (SIZE_UNKNOWN, there):
            raise CorruptTable(
                f"{path} has {there} bytes, and the manifest says {size}: restore it from a copy", path=path
            )
        try:
            # Read by the caller's thread, with all that belongs to it: its spans, or a simulated clock.
            return pq.ParquetFile(source, pre_buffer=False)
        except LakelatchError:
            raise
        except Exception as error:
            raise self._damaged(error) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, LakelatchError):  # the library raises whatever
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> CorruptTable:
        path = self._file.path
        return CorruptTable(f"{path} is no level file of the history ({error}): restore it from a copy", path=path)


@lru_cache(maxsize=_SMALL_MAX)
def _whole(storage: Storage, file: LevelFile) -> bytes:
    return storage.read(file.path)


class _Ranges(RangeFile):
    """An object of the storage; nothing of it is cached."""

    def __init__(self, storage: Storage, path: str, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self._storage = storage
        self._path = path

    def part(self, start: int, size_bytes: int) -> bytes:
        return self._storage.read_range(self._path, start, size_bytes)
