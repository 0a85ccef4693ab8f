"""The plan of any table service that rewrites file groups, ours or Java's: its file groups and its policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import CLUSTERING, COMPACTION, LOG_COMPACTION
from lakelatch.timeline.instant import Instant, requested
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.timeline.records import decode

REWRITING_SERVICES = (COMPACTION, LOG_COMPACTION, CLUSTERING)


@dataclass(frozen=True)
class ServicePlan:
    """The part of a plan that concerns other processes: the file groups that it reads, and its policy."""

    instant: str
    action: str
    groups: frozenset[FileGroup]
    policy: PlanPolicy


def read_service_plan(storage: Storage, instant: str, action: str) -> ServicePlan:
    """The plan of a compaction, a log compaction or a clustering.

    Errors: `NotFound` if it is not on the timeline (any more), `CorruptTable` for what is no plan of this action.
    """
    path = requested(instant, action).path
    return service_plan(storage.read(path), instant, action, path)


def read_aborted_plan(storage: Storage, aborted: Instant) -> ServicePlan:
    """The plan of an instant that was cancelled; its terminal state repeats it. Errors: as above."""
    return service_plan(storage.read(aborted.path), aborted.requested, aborted.action, aborted.path)


def service_plan(data: bytes, instant: str, action: str, path: str = "") -> ServicePlan:
    """The plan that these bytes are. Errors: `CorruptTable`."""
    return decode(data, path, f"a plan of a {action}", (), partial(_plan_of, instant, action))


def _plan_of(instant: str, action: str, record: Mapping[str, Any]) -> ServicePlan:
    if action not in REWRITING_SERVICES:
        raise ValueError(f"a {action} rewrites no file groups")
    groups, extra = _clustering(record) if action == CLUSTERING else _compaction(record)
    policy = PlanPolicy.of(extra)
    if action == LOG_COMPACTION:  # a late file of it might be taken for the next plan's, which may have the same name
        policy = replace(policy, cancellable=False)
    return ServicePlan(instant, action, groups, policy)


def _compaction(record: Mapping[str, Any]) -> tuple[frozenset[FileGroup], dict[str, str]]:
    operations = record["operations"] or ()
    groups = frozenset((one.get("partitionPath") or "", str(one["fileId"])) for one in operations)
    return groups, dict(record.get("extraMetadata") or {})


def _clustering(record: Mapping[str, Any]) -> tuple[frozenset[FileGroup], dict[str, str]]:
    """Hudi has extra metadata in two places; ours has the same in both."""
    plan = record["clusteringPlan"] or {}
    slices = [one for group in plan.get("inputGroups") or () for one in group["slices"] or ()]
    groups = frozenset((one["partitionPath"] or "", str(one["fileId"])) for one in slices)
    return groups, {**(record.get("extraMetadata") or {}), **(plan.get("extraMetadata") or {})}
