"""A table as its files tell it: the commit log, the timeline, and the rows of each commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import fastavro

from lakelatch.errors import CorruptTable
from lakelatch.torture.log_reading import Row, read_rows

TIMELINE = ".hoodie/timeline"
LOG = ".hoodie/.lakelatch/log"
WRITES = ("commit", "deltacommit", "replacecommit")
COMPLETED_AS = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
REWRITES = ("COMPACT", "LOG_COMPACT")


@dataclass(frozen=True)
class Commit:
    """One completed write: what its file says. `paths` are its data files, relative to the table."""

    name: str
    instant: str
    completion: str
    action: str
    operation: str
    groups: tuple[tuple[str, str], ...]
    paths: tuple[str, ...]

    @property
    def is_rewrite(self) -> bool:
        """Whether it repeats rows of others, as a compaction does."""
        return self.operation in REWRITES


@dataclass(frozen=True)
class Operation:
    """What a compaction plan says of one file group; paths are relative to the table."""

    partition: str
    file_id: str
    base: str | None
    logs: tuple[str, ...]


class TableFiles:
    """One look at a table that nobody writes to any more. `damage` collects what cannot even be read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damage: list[str] = []
        self.slots = self._slots()
        folder = root / TIMELINE
        names = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
        self.timeline = [name for name in names if name[:14].isdigit()]
        self.ended = sorted((name for name in self.timeline if "_" in name), key=completion_of)
        self.begun: dict[str, set[str]] = {}  # actions by requested time, of all that was ever begun
        for name in self.timeline:
            if "_" not in name:
                start, first, *_ = name.split(".")
                self.begun.setdefault(start, set()).add("commit" if first == "inflight" else first)
        self.commits = [commit for name in self.ended if (commit := self._commit(name)) is not None]
        self.by_instant = {commit.instant: commit for commit in self.commits}
        self._rows: dict[str, list[Row]] = {}

    @property
    def pending(self) -> dict[str, set[str]]:
        """Actions by requested time, of all that has begun and not ended."""
        ended = {requested_of(name) for name in self.ended}
        return {start: actions for start, actions in self.begun.items() if start not in ended}

    @cached_property
    def live_slots(self) -> list[dict[str, Any]]:
        """Slots that must be there: those at and above the watermark of the last one."""
        watermark = self.slots[-1]["watermark"] if self.slots else 0
        return [slot for slot in self.slots if slot["number"] >= watermark]

    @cached_property
    def written(self) -> list[tuple[Commit, list[Row]]]:
        """Each commit that brought rows of its own, with those rows, by completion time."""
        return [
            (commit, [row for path in commit.paths for row in self.rows(path)])
            for commit in self.commits
            if not commit.is_rewrite
        ]

    @cached_property
    def instants_of_works(self) -> dict[str, dict[str, list[Row]]]:
        """By work and instant: the rows that committed log files hold of it."""
        found: dict[str, dict[str, list[Row]]] = {}
        for commit, rows in self.written:
            for row in rows:
                found.setdefault(row.work, {}).setdefault(commit.instant, []).append(row)
        return found

    def rows(self, path: str) -> list[Row]:
        """The rows of a data file; none for one that is missing or damaged, which then is in `damage`."""
        if path not in self._rows:
            try:
                self._rows[path] = read_rows(self.root, path)
            except (CorruptTable, OSError) as error:
                self._rows[path] = []
                if not isinstance(error, FileNotFoundError):
                    self.damage.append(str(error))
        return self._rows[path]

    def plan(self, instant: str, action: str = "compaction") -> list[Operation]:
        """What a plan says; nothing if its file is missing or damaged."""
        record = self._avro(f"{instant}.{action}.requested")
        found = []
        for operation in (record or {}).get("operations") or ():
            partition = operation["partitionPath"] or ""
            prefix = f"{partition}/" if partition else ""
            base = operation["dataFilePath"]
            logs = tuple(prefix + name for name in operation["deltaFilePaths"])
            found.append(Operation(partition, operation["fileId"], prefix + base if base else None, logs))
        return found

    def rolled_back(self) -> Iterator[tuple[str, str]]:
        """(name of the rollback, requested time of its victim), of every completed rollback."""
        for name in self.ended:
            if name.endswith(".rollback"):
                for victim in (self._avro(name) or {}).get("commitsRollback") or ():
                    yield name, victim

    def data_files(self) -> dict[str, int]:
        """Sizes by path of everything that lies in the partitions, but for the files that say they are partitions."""
        found = {}
        for path in self.root.rglob("*"):
            inside = path.relative_to(self.root)
            if inside.parts[0] != ".hoodie" and path.is_file() and path.name != ".hoodie_partition_metadata":
                found[inside.as_posix()] = path.stat().st_size
        return found

    def _slots(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted((self.root / LOG).glob("*.json")):
            try:
                slot = json.loads(path.read_bytes())
                found.append({**slot, "number": int(slot["number"]), "watermark": int(slot["watermark"])})
            except (ValueError, KeyError, TypeError) as error:
                self.damage.append(f"slot {path.name} cannot be read: {error}")
        return found

    def _commit(self, name: str) -> Commit | None:
        action = name.rpartition(".")[2]
        if action not in WRITES:
            return None
        record = self._avro(name) or {}
        stats = [stat for found in (record.get("partitionToWriteStats") or {}).values() for stat in found]
        groups = tuple((stat["partitionPath"] or "", stat["fileId"]) for stat in stats)
        operation = record.get("operationType") or ""
        paths = tuple(stat["path"] for stat in stats)
        return Commit(name, requested_of(name), completion_of(name), action, operation, groups, paths)

    def _avro(self, name: str) -> Any:
        """The one record of a timeline file, or None."""
        path = self.root / TIMELINE / name
        try:
            with path.open("rb") as file:
                (record,) = fastavro.reader(file)
        except Exception as error:  # the library raises whatever the bytes provoke
            problem = f"{name} cannot be read: {type(error).__name__}: {error}"
            if problem not in self.damage:
                self.damage.append(problem)
            return None
        return record


def requested_of(name: str) -> str:
    """The requested time in a completed file's name."""
    return name.partition("_")[0]


def completion_of(name: str) -> str:
    """The completion time in a completed file's name."""
    return name.partition("_")[2].partition(".")[0]
