"""What the logs of a slice change, kept beside the table as a file: an overlay of the slice's base file.

It has the rows with keys in the logs, merged, and says which rows of the base file have such keys. Who reads the rest
of the base file and the overlay has the rows of the slice, and merges nothing.

An overlay is named by all that it is made of, and these files never change: so whoever finds one by its name may use
it, however old it is, and two that are made at once say the same. It is a cache: any reader makes it, no writer knows
of it, and a clean removes it with the base file. Where others have removed the base file, whoever makes overlays does.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from lakelatch.engine.read.rows.tasks import ReadTask, packed_for
from lakelatch.engine.read.superseded import Superseded
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import CorruptTable, LakelatchError
from lakelatch.format.base_files import open_base_file
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.slice import read_changed, superseded_of
from lakelatch.format.parquet import parquet_file_of
from lakelatch.storage.checksums import json_object
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System

if TYPE_CHECKING:
    from lakelatch.engine.read.plan import ReadPlan

OVERLAYS_FOLDER = ".hoodie/.lakelatch/overlays"
#: So many overlays of one base file are made: each write into its slice calls for another one.
OF_ONE_BASE_MAX = 16
_FOOTER = "lakelatch.overlay"
_FORMAT = 1
_DIGITS = 32
_KEPT_MAX = 256
_END_BYTES = 128 * 1024  # of a file, in which its footer is likely to be
_TASK_BYTES = 64 * 1024 * 1024  # of base files, of which the record keys are read
_SWEPT_MIN = 16  # others, of which whoever makes overlays looks whether their base files are there
_WAIT_MIN_S, _WAIT_MAX_S = 60, 86_400  # until what could not be made is tried again, twice as long each time
_log = logging.getLogger("lakelatch.engine")
#: Tables in which this process could not make them: when it tries again, and for how long it has waited then.
_waits: dict[str, tuple[int, int]] = {}


@dataclass(frozen=True, eq=False)
class Overlay:
    """An overlay that is there: how many rows it has, and which rows of the base file it stands for.

    `base_path` is "" in those that do not say it.
    """

    path: str
    count: int
    superseded: Superseded
    base_path: str


def overlay_path(table: OpenedTable, found: FileSlice) -> str:
    """The path in the table of the overlay of a slice, as this table's columns and order of rows make it."""
    config = table.config
    order = [config.merge_mode, config.ordering_field]
    parts = [_FORMAT, found.base_path, found.log_files, table.full_avro_schema, order]
    return f"{OVERLAYS_FOLDER}/{_digest(found.base_path or '')}-{_digest(json.dumps(parts))}.parquet"


def ensure_overlays(
    plan: ReadPlan,
    executor: Executor,
    cores: int | None,
    of_use: Callable[[], bool] = lambda: True,
    system: System = REAL_SYSTEM,
) -> list[Overlay] | None:
    """The overlays of all slices of a plan, which have base files; tasks make missing ones, if they are `of_use`.

    None if one can be neither read nor made, for which there may be many reasons: then others say what is wrong.
    """
    table, storage = plan.table, plan.table.storage
    paths = [overlay_path(table, found) for found in plan.slices]
    try:
        there = {f"{OVERLAYS_FOLDER}/{name}" for name in storage.names(OVERLAYS_FOLDER)}
        missing = [found for found, path in zip(plan.slices, paths, strict=True) if path not in there]
        if missing and not (of_use() and _make(table, missing, there, executor, cores, system)):
            return None
        return list(storage.together(*(partial(_read, storage, path) for path in paths)))
    except LakelatchError as error:
        _log.warning("%s: overlays are not used, and logs are merged: %s", storage.uri, error)
        return None


def remove_overlays(storage: Storage, removed: Iterable[str]) -> None:
    """Removes the overlays of base files, of whose paths some are `removed`; raises nothing.

    Other users' readers may have made them, and whoever cleans perhaps may not remove these. They are read no more.
    """
    bases = {_digest(path) for path in removed if path.endswith(".parquet")}
    try:
        for name in storage.names(OVERLAYS_FOLDER) if bases else ():
            if name.partition("-")[0] in bases:
                storage.delete(f"{OVERLAYS_FOLDER}/{name}")
    except LakelatchError as error:
        _log.warning("%s: overlays of files that were removed are left: %s", storage.uri, error)


def _make(
    table: OpenedTable,
    slices: Sequence[FileSlice],
    there: Collection[str],
    executor: Executor,
    cores: int | None,
    system: System,
) -> bool:
    """Whether there are overlays of these slices now."""
    storage = table.storage
    before = Counter(path.rpartition("/")[2].partition("-")[0] for path in there)
    again_ns, wait_s = _waits.get(storage.uri, (0, 0))
    now_ns = system.monotonic_ns()
    if now_ns < again_ns or any(before[_digest(one.base_path or "")] >= OF_ONE_BASE_MAX for one in slices):
        return False
    tasks = packed_for(storage, slices, cores, _TASK_BYTES)
    made = executor.map(_MakeOverlays(table, tuple(slices)), tasks, OverlaysMade, "lakelatch: logs are merged once")
    failed = {one.error for one in made} - {""}
    if failed:
        wait_s = min(max(_WAIT_MIN_S, 2 * wait_s), _WAIT_MAX_S)
        _waits[storage.uri] = (now_ns + wait_s * 1_000_000_000, wait_s)
        _log.warning(
            "%s: overlays cannot be made, and this process does not try again for %s s: %s", storage.uri, wait_s, failed
        )
        return False
    _waits.pop(storage.uri, None)
    _sweep(storage, there, max(_SWEPT_MIN, 2 * len(slices)), system)
    return True


def _sweep(storage: Storage, there: Collection[str], count: int, system: System) -> None:
    """Removes overlays without a base file, among so many that are drawn; raises nothing.

    More are looked at than were made, so that of those that are left few can be of no use.
    """

    def sweep(path: str) -> None:
        try:
            base_path = _read(storage, path).base_path
            if base_path and not storage.exists(base_path):
                storage.delete(path)
        except LakelatchError as error:
            _log.info("%s: %s is left, of whose base file nothing is known: %s", storage.uri, path, error)

    drawn = sorted(there, key=lambda _: system.random())[:count]
    storage.together(*(partial(sweep, path) for path in drawn))


@dataclass(frozen=True)
class OverlaysMade:
    """The report of a task: what was in its way, or ""."""

    error: str


@dataclass(frozen=True)
class _MakeOverlays:
    """Makes those of some slices, in a task."""

    table: OpenedTable
    slices: tuple[FileSlice, ...]

    def __call__(self, task: ReadTask, token: str) -> OverlaysMade:
        try:
            for index in task.indexes:
                self._make(self.slices[index])
        except LakelatchError as error:
            return OverlaysMade(error.message)
        return OverlaysMade("")

    def _make(self, found: FileSlice) -> None:
        table, storage = self.table, self.table.storage
        path, schema = overlay_path(table, found), table.full_schema
        size = storage.stat(found.base_path or "").size_bytes
        superseded = Superseded.of(size, superseded_of(storage, found, schema))
        says = json.dumps({"base": found.base_path, "base_bytes": size, "superseded": superseded.to_text()})
        rows = read_changed(storage, found, schema, table.config, schema.names)
        with parquet_file_of(schema, rows, lambda: {_FOOTER: says}, path, options=table.base_files) as file:
            storage.create_from_file(path, file)


@lru_cache(maxsize=_KEPT_MAX)  # an overlay never changes
def _read(storage: Storage, path: str) -> Overlay:
    """Errors: `CorruptTable` for a file that was not written as this overlay, and those of the storage."""
    file = open_base_file(storage, path, (), end_bytes=_END_BYTES)
    values = json_object(file.footer.get(_FOOTER.encode(), b"")) if file.checksummed else None
    try:
        if values is None:
            raise ValueError("its checksum is missing, or what it stands for")
        superseded = Superseded.from_text(int(values["base_bytes"]), values["superseded"])
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise CorruptTable(f"{path} is no overlay ({error}): remove it, nothing is lost", path=path) from error
    return Overlay(path, file.count, superseded, str(values.get("base") or ""))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
