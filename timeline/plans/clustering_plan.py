"""The plan of a clustering as Hudi writes it (HoodieRequestedReplaceMetadata), ours and Java's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakelatch.storage.contract import path_below
from lakelatch.timeline.actions import CLUSTER
from lakelatch.timeline.records import Record, encode
from lakelatch.timeline.schemas import REQUESTED_REPLACE_METADATA

SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
LAYOUT = "hoodie.layout.optimize.strategy"
# No class of Java's, so that no Java writer carries the plan out: its files would be a bucket's second file group.
_EXECUTION = "lakelatch.ClusteringExecutionStrategy"


@dataclass(frozen=True)
class ClusteringGroup:
    """One file slice that is clustered: its base file (None if there is none) and log files, as names without folder.

    What is `joined` becomes one file group together with the next one: Hudi's input group has several slices then.
    """

    partition: str
    file_id: str
    base_file: str | None
    delta_files: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    joined: bool = False


@dataclass(frozen=True)
class ClusteringPlan(Record):
    """The content of a requested clustering. `params` is how rows are sorted, under Hudi's keys.

    `extra` holds further facts for executors and for cancellations. `root` is the table's URI, since Hudi writes whole
    paths here.
    """

    KIND = "a clustering plan"
    NEEDED = ("clusteringPlan",)

    groups: tuple[ClusteringGroup, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    root: str = ""

    def to_avro(self) -> bytes:
        """A container file of one record; the same plan gives the same bytes."""
        strategy = {"strategyClassName": _EXECUTION, "strategyParams": dict(self.params), "version": 1}
        plan = {
            "inputGroups": [self._input(groups) for groups in self.sets()],
            "strategy": strategy,
            "extraMetadata": dict(self.extra),
            "version": 1,
            "preserveHoodieMetadata": True,
        }
        record = {"operationType": CLUSTER, "clusteringPlan": plan, "extraMetadata": dict(self.extra), "version": 1}
        return encode(REQUESTED_REPLACE_METADATA, record)

    def sets(self) -> list[tuple[ClusteringGroup, ...]]:
        """The groups by the file group that they become."""
        found: list[tuple[ClusteringGroup, ...]] = []
        joined = False
        for group in self.groups:
            found.append((*found.pop(), group) if joined else (group,))
            joined = group.joined
        return found

    def _input(self, groups: Sequence[ClusteringGroup]) -> dict[str, Any]:
        metrics: dict[str, float] = {}
        for name, value in (pair for group in groups for pair in group.metrics.items()):
            metrics[name] = metrics.get(name, 0.0) + value
        slices = [self._slice(group) for group in groups]
        return {"slices": slices, "metrics": metrics, "numOutputFileGroups": 1, "extraMetadata": {}, "version": 1}

    def _slice(self, group: ClusteringGroup) -> dict[str, Any]:
        def path(name: str) -> str:
            return f"{self.root}/{path_below(group.partition, name)}" if self.root else name

        return {
            "dataFilePath": "" if group.base_file is None else path(group.base_file),  # Java asks whether it is empty
            "deltaFilePaths": [path(name) for name in group.delta_files],
            "fileId": group.file_id,
            "partitionPath": group.partition,
            "bootstrapFilePath": "",
            "version": 1,
        }

    @classmethod
    def _of(cls, record: Mapping[str, Any]) -> ClusteringPlan:
        plan = record["clusteringPlan"]
        if not plan:
            raise ValueError("it is the request of another replace commit")
        groups = tuple(
            ClusteringGroup(
                partition=one.get("partitionPath") or "",
                file_id=one["fileId"],
                base_file=_name(one.get("dataFilePath")) or None,
                delta_files=tuple(map(_name, one.get("deltaFilePaths") or ())),
                metrics=group.get("metrics") or {},
                joined=one is not group["slices"][-1],
            )
            for group in plan["inputGroups"] or ()
            for one in group["slices"] or ()
        )
        params = (plan.get("strategy") or {}).get("strategyParams") or {}
        extra = {**(plan.get("extraMetadata") or {}), **(record.get("extraMetadata") or {})}
        return cls(groups, params, extra)


def _name(path: str | None) -> str:
    return (path or "").rpartition("/")[2]
