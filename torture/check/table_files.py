"""A table read from its files: the commit log, the timeline, and the rows of each commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakelatch.errors import CorruptTable
from lakelatch.torture.check.archived import read_archived
from lakelatch.torture.check.files import avro_record
from lakelatch.torture.check.log_reading import Row, read_rows

TIMELINE = ".hoodie/timeline"
LOG = ".hoodie/.lakelatch/log"
WRITES = ("commit", "deltacommit", "replacecommit")
COMPLETED_AS = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
SERVICES = frozenset(COMPLETED_AS)
REWRITES = ("COMPACT", "LOG_COMPACT", "CLUSTER")
PLANNED_AS = {done: planned for planned, done in COMPLETED_AS.items()}


@dataclass(frozen=True)
class Commit:
    """One completed write, by its file. `paths` are its data files, relative to the table.

    `replaced` has the file ids that it replaced, by partition.
    """

    name: str
    instant: str
    completion: str
    action: str
    operation: str
    groups: tuple[tuple[str, str], ...]
    paths: tuple[str, ...]
    replaced: Mapping[str, tuple[str, ...]]
    extra: Mapping[str, str]

    @property
    def is_rewrite(self) -> bool:
        """Whether it repeats rows of others, as a compaction does."""
        return self.operation in REWRITES

    @property
    def replaced_groups(self) -> set[tuple[str, str]]:
        """The file groups that it replaced: partition and file id."""
        return {(partition, file_id) for partition, ids in self.replaced.items() for file_id in ids}


@dataclass(frozen=True)
class Operation:
    """One file group of a compaction plan; paths are relative to the table."""

    partition: str
    file_id: str
    base: str | None
    logs: tuple[str, ...]


class TableFiles:
    """The files of a table that is not written to any more. `damage` collects the files that cannot be read.

    `every_slot` says that slots are removed in order and never come back, as on a storage that does not fail: then
    those below the watermark that are still there count as well. `kept` has data files that services have removed.
    `decisions` are those of transactions over several tables, by name, from all tables that have any.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        every_slot: bool = False,
        kept: Mapping[str, bytes] | None = None,
        decisions: Mapping[str, bytes] | None = None,
    ) -> None:
        self.files, self.every_slot, self.kept, self._decisions = files, every_slot, kept or {}, decisions or {}
        self.damage: list[str] = []
        names = sorted(self.below(TIMELINE))
        # A savepoint has the time of the commit that it keeps, and goes when it is given up.
        self.timeline = [name for name in names if name[:14].isdigit() and ".savepoint" not in name]
        # Cancelled plans: their terminal state counts neither as an end nor as pending.
        self.aborted = {name.partition(".")[0] for name in self.timeline if name.endswith(".aborted")}
        self.archived = {one.name: one for one in read_archived(files, self.damage)}
        active = {name for name in self.timeline if "_" in name}
        self.ended = sorted(active | self.archived.keys(), key=completion_of)
        self.begun: dict[str, set[str]] = {}  # actions by requested time, of all that was ever begun
        for name in self.timeline:
            start, first, *_ = name.split(".")
            if "_" not in name and start not in self.aborted:
                self.begun.setdefault(start, set()).add("commit" if first == "inflight" else first)
        self.plans: dict[str, bytes] = {}  # of what was archived
        for one in self.archived.values():
            self.begun.setdefault(one.instant, set()).add(
                PLANNED_AS.get(one.action, one.action) if one.plan else one.action
            )
            if one.plan:
                self.plans[one.instant] = one.plan
        self._rows: dict[str, list[Row]] = {}

    @cached_property
    def commits(self) -> list[Commit]:
        """Completed writes, by completion time."""
        return [commit for name in self.ended if (commit := self._commit(name)) is not None]

    @cached_property
    def by_instant(self) -> dict[str, Commit]:
        """Completed writes, by requested time."""
        return {commit.instant: commit for commit in self.commits}

    @property
    def pending(self) -> dict[str, set[str]]:
        """Actions by requested time, of all that has begun and not ended."""
        ended = {requested_of(name) for name in self.ended}
        return {start: actions for start, actions in self.begun.items() if start not in ended | self.aborted}

    @cached_property
    def archived_instants(self) -> set[str]:
        """Requested times of what is in the history."""
        return {one.instant for one in self.archived.values()}

    @cached_property
    def first_active(self) -> str:
        """The requested time of the first completed write on the active timeline."""
        active = (name for name in self.timeline if "_" in name and name.rpartition(".")[2] in WRITES)
        return min(map(requested_of, active), default="")

    @cached_property
    def cancelled(self) -> set[str]:
        """Requested times of plans that have ended as cancelled."""
        return self.aborted | {slot["target"] for slot in self.slots if slot["kind"] == "abort"}

    @cached_property
    def live_slots(self) -> list[dict[str, Any]]:
        """Slots that must be there: those at and above the watermark of the last one."""
        if self.every_slot:
            return self.slots
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
                data = self.files.get(path) or self.kept.get(path)
                self._rows[path] = read_rows(data, path) if data is not None else []
            except CorruptTable as error:
                self._rows[path] = []
                self.damage.append(str(error))
        return self._rows[path]

    def plan(self, instant: str) -> list[Operation]:
        """The operations of a compaction's plan; none if its file is missing or damaged."""
        record = self._avro(f"{instant}.compaction.requested")
        found = []
        for operation in (record or {}).get("operations") or ():
            partition = operation["partitionPath"] or ""
            prefix = f"{partition}/" if partition else ""
            base = operation["dataFilePath"]
            logs = tuple(prefix + name for name in operation["deltaFilePaths"])
            found.append(Operation(partition, operation["fileId"], prefix + base if base else None, logs))
        return found

    def clustering(self, instant: str) -> list[Operation]:
        """The operations of a clustering's plan; none if its file is missing or damaged."""
        record = self._avro(f"{instant}.clustering.requested") or {}
        found = []
        for group in (record.get("clusteringPlan") or {}).get("inputGroups") or ():
            for one in group["slices"] or ():
                partition = one["partitionPath"] or ""
                prefix = f"{partition}/" if partition else ""
                base = one["dataFilePath"].rpartition("/")[2]
                logs = tuple(prefix + path.rpartition("/")[2] for path in one["deltaFilePaths"] or ())
                found.append(Operation(partition, one["fileId"], prefix + base if base else None, logs))
        return found

    @cached_property
    def cleaned(self) -> dict[str, str]:
        """The requested time of the clean that removed a file, by the file's path."""
        found: dict[str, str] = {}
        for name in self.ended:
            if name.endswith(".clean"):
                for partition, one in ((self._avro(name) or {}).get("partitionMetadata") or {}).items():
                    for path in one["deletePathPatterns"]:
                        found.setdefault(f"{partition}/{path}" if partition else path, requested_of(name))
        return found

    def content(self, name: str) -> bytes | None:
        """The content of a timeline file, also of one that was archived."""
        found = self.files.get(f"{TIMELINE}/{name}")
        if found is None and name in self.archived:
            return self.archived[name].metadata
        if found is None and name.endswith(("compaction.requested", "clustering.requested")):
            return self.plans.get(name.partition(".")[0])
        return found

    def rolled_back(self) -> Iterator[tuple[str, str]]:
        """(name of the rollback, requested time of its victim), of every completed rollback."""
        for name in self.ended:
            if name.endswith(".rollback"):
                for victim in (self._avro(name) or {}).get("commitsRollback") or ():
                    yield name, victim

    def data_files(self) -> dict[str, int]:
        """Sizes by path of everything that lies in the partitions, but for the files that say they are partitions."""
        return {
            path: len(data)
            for path, data in self.files.items()
            if not path.startswith(".hoodie/") and path.rpartition("/")[2] != ".hoodie_partition_metadata"
        }

    def below(self, folder: str) -> list[str]:
        """The names of the files that lie directly in a folder."""
        prefix = f"{folder}/"
        names = (path[len(prefix) :] for path in self.files if path.startswith(prefix))
        return [name for name in names if "/" not in name]

    @cached_property
    def slots(self) -> list[dict[str, Any]]:
        """The events of the commit log, by slot number and time. Those of one slot have its number.

        A prepared event that was aborted is one that nobody has to heed.
        """
        found = self._stored_slots
        behind = {slot["number"]: slot for slot in reversed(found)}
        aborted = {
            slot["number"]
            for slot in found
            if slot.get("decision") and not self._counts(slot, behind.get(slot["number"] + 1))
        }
        return [
            {**slot, "kind": "withdraw", "operation_id": f"{slot['operation_id']}-{slot['number']}"}
            if slot["number"] in aborted
            else slot
            for slot in found
        ]

    @property
    def undecided(self) -> dict[str, Any] | None:
        """The prepared event of the last slot, if nobody has decided whether it counts."""
        last = self._stored_slots[-1] if self._stored_slots else {}
        return last if last.get("decision") and last["decision"] not in self._decisions else None

    def _counts(self, slot: Mapping[str, Any], following: Mapping[str, Any] | None) -> bool:
        """Whether a prepared event counts: the slot behind it says so, or else its decision."""
        if following is not None:
            return not following.get("after_aborted")
        decision = self._decisions.get(slot["decision"])
        return decision is not None and bool(json.loads(decision)["commits"])

    @cached_property
    def _stored_slots(self) -> list[dict[str, Any]]:
        found = []
        for name in sorted(name for name in self.below(LOG) if name.endswith(".json")):
            try:
                slot = json.loads(self.files[f"{LOG}/{name}"])
                for event in slot.get("events", [slot]):
                    found.append({**event, "number": int(slot["number"]), "watermark": int(event["watermark"])})
            except (ValueError, KeyError, TypeError) as error:
                self.damage.append(f"slot {name} cannot be read: {error}")
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
        gone = {part: tuple(ids) for part, ids in (record.get("partitionToReplaceFileIds") or {}).items()}
        extra = record.get("extraMetadata") or {}
        return Commit(name, requested_of(name), completion_of(name), action, operation, groups, paths, gone, extra)

    def _avro(self, name: str) -> Any:
        """The one record of a timeline file, or None."""
        try:
            data = self.content(name)
            if data is None:
                raise ValueError("it is not there")
            return avro_record(data)
        except Exception as error:  # the library raises whatever the bytes provoke
            problem = f"{name} cannot be read: {type(error).__name__}: {error}"
            if problem not in self.damage:
                self.damage.append(problem)
            return None


def requested_of(name: str) -> str:
    """The requested time in a completed file's name."""
    return name.partition("_")[0]


def completion_of(name: str) -> str:
    """The completion time in a completed file's name."""
    return name.partition("_")[2].partition(".")[0]
