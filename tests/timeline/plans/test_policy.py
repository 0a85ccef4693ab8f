from __future__ import annotations

import io

import fastavro
import pytest

from lakelatch.engine.options.table_services.cancellation import CancellationOptions
from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.timeline.actions import CLEAN, CLUSTERING, COMPACTION, LOG_COMPACTION
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan
from lakelatch.timeline.plans.policy import PlanPolicy, parse_threshold
from lakelatch.timeline.plans.service_plan import service_plan

HOUR_MS = 3_600_000
POLICIES = [
    PlanPolicy(),
    PlanPolicy(True, after_hours=24.0),
    PlanPolicy(True, after_hours=0.5, in_part=True, planned_against="20260101000000000"),
    PlanPolicy(True, after_instants=50),
    PlanPolicy(True),
    PlanPolicy(planned_against="20260101000000000"),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_read_as_it_was_written(policy: PlanPolicy) -> None:
    assert PlanPolicy.of(policy.to_extra()) == policy


def test_a_plan_that_says_nothing_is_immutable() -> None:
    assert PlanPolicy.of({"cancellation-policy": "1 hours", "cancel-in-part": "true"}) == PlanPolicy(after_hours=1.0)
    assert not PlanPolicy.of({}).is_past(10**12, 10**6)


def test_the_threshold_is_of_hours_or_of_instants() -> None:
    hours = PlanPolicy(True, after_hours=24)
    assert not hours.is_past(24 * HOUR_MS, 10**6) and hours.is_past(24 * HOUR_MS + 1, 0)
    instants = PlanPolicy(True, after_instants=50)
    assert not instants.is_past(10**12, 50) and instants.is_past(0, 51)
    assert not PlanPolicy(True).is_past(10**12, 10**6)  # somebody has to ask


@pytest.mark.parametrize(
    "text", ["soon", "24", "-1 hours", "1.5 instants", "hours 24", "9999999 hours", "24 days", "²4 hours"]
)
def test_a_policy_that_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"lakelatch\.service\.cancellation\.policy"):
        CancellationOptions.from_options({"lakelatch.service.cancellation.policy": text})
    assert PlanPolicy.of({"cancellable": "true", "cancellation-policy": text}) == PlanPolicy(True)


def test_spaces_and_capitals_of_a_threshold_do_not_matter() -> None:
    assert parse_threshold(" 24  Hours ") == (24.0, None)
    assert parse_threshold("1 instant") == (None, 1)
    assert parse_threshold("") == (None, None)


def test_clusterings_can_be_cancelled_by_default_and_compactions_not() -> None:
    default = CancellationOptions.from_options({})
    assert default.policy_of(CLUSTERING, "1") == PlanPolicy(True, 24.0, None, True, "1")
    assert not default.policy_of(COMPACTION).cancellable
    asked = CancellationOptions.from_options({"lakelatch.service.cancellable": "true"})
    assert asked.policy_of(COMPACTION) == PlanPolicy(True, 24.0)  # whole only
    assert not asked.policy_of(LOG_COMPACTION).cancellable
    refused = CancellationOptions.from_options({"lakelatch.service.cancellable": "false"})
    assert not refused.policy_of(CLUSTERING).cancellable


def test_hudis_expiry_is_the_policy_of_clusterings() -> None:
    values = {"hoodie.clustering.enable.expirations": "true", "hoodie.clustering.expiration.time.mins": "30"}
    options = CancellationOptions.from_options({**values, "lakelatch.service.cancellation.policy": "50 instants"})
    assert options.policy_of(CLUSTERING) == PlanPolicy(True, 0.5, None, True)
    assert not options.policy_of(COMPACTION).cancellable
    del values["hoodie.clustering.enable.expirations"]
    assert CancellationOptions.from_options(values).policy_of(CLUSTERING).after_hours == 24


def test_the_plan_of_a_compaction_names_its_file_groups() -> None:
    operations = (CompactionOperation("p", "a", "1", None, ()), CompactionOperation("", "b", "1", None, ()))
    data = CompactionPlan(operations, {"cancellable": "true"}).to_avro()
    plan = service_plan(data, "20260101000000000", COMPACTION)
    assert plan.groups == {("p", "a"), ("", "b")} and plan.policy.cancellable


SLICE = {
    "type": "record",
    "name": "HoodieSliceInfo",
    "fields": [{"name": "partitionPath", "type": ["null", "string"]}, {"name": "fileId", "type": ["null", "string"]}],
}
EXTRA = ["null", {"type": "map", "values": "string"}]
GROUP = {
    "type": "record",
    "name": "HoodieClusteringGroup",
    "fields": [{"name": "slices", "type": ["null", {"type": "array", "items": SLICE}]}],
}
CLUSTERING_PLAN = {
    "type": "record",
    "name": "HoodieClusteringPlan",
    "fields": [
        {"name": "inputGroups", "type": ["null", {"type": "array", "items": GROUP}]},
        {"name": "extraMetadata", "type": EXTRA},
    ],
}
REQUESTED = {
    "type": "record",
    "name": "HoodieRequestedReplacementMetadata",
    "fields": [
        {"name": "operationType", "type": ["null", "string"]},
        {"name": "clusteringPlan", "type": ["null", CLUSTERING_PLAN]},
        {"name": "extraMetadata", "type": EXTRA},
    ],
}


def test_the_plan_of_a_clustering_names_its_file_groups() -> None:
    slices = [{"partitionPath": "p", "fileId": "a"}, {"partitionPath": "", "fileId": "b"}]
    groups = [{"slices": slices}, {"slices": None}]
    record = {
        "operationType": "CLUSTER",
        "clusteringPlan": {"inputGroups": groups, "extraMetadata": {"cancellable": "true", "cancel-in-part": "true"}},
        "extraMetadata": None,
    }
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(REQUESTED), [record])
    plan = service_plan(sink.getvalue(), "20260101000000000", CLUSTERING)
    assert plan.groups == {("p", "a"), ("", "b")}
    assert plan.policy == PlanPolicy(True, in_part=True)


def test_what_is_no_plan_is_a_corrupt_table() -> None:
    for action in (COMPACTION, CLUSTERING, CLEAN):
        with pytest.raises(CorruptTable, match="that are not a plan of a"):
            service_plan(b"nonsense", "20260101000000000", action)
