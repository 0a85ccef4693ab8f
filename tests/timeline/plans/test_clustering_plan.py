"""Plans of clusterings: what is written is read again, here and by whoever knows Hudi's schema."""

from __future__ import annotations

import io
from dataclasses import replace

import fastavro
import pytest

from lakelatch.errors import CorruptTable
from lakelatch.timeline.metadata import CompactionPlan
from lakelatch.timeline.plans.clustering_plan import ClusteringGroup, ClusteringPlan

BASE = "00000000-0000-0000-0000-000000000000-0_0-0-0_20260101000000001.parquet"
LOG = ".00000001-0000-0000-0000-000000000000-0_20260101000000002.log.1_0-1-2"
PLAN = ClusteringPlan(
    groups=(
        ClusteringGroup("part=a", "00000000-0000-0000-0000-000000000000-0", BASE, (), {"TOTAL_IO_MB": 1.5}),
        ClusteringGroup("", "00000001-0000-0000-0000-000000000000-0", None, (LOG,)),
    ),
    params={"hoodie.clustering.plan.strategy.sort.columns": "v,id"},
    extra={"cancellable": "true"},
    root="file:/tables/t",
)


def test_what_is_written_is_read_again() -> None:
    assert ClusteringPlan.from_avro(PLAN.to_avro()) == replace(PLAN, root="")


def test_the_same_plan_gives_the_same_bytes() -> None:
    """Whoever makes it, from whatever it was read."""
    again = replace(ClusteringPlan.from_avro(PLAN.to_avro()), root=PLAN.root)
    assert again is not PLAN and again.to_avro() == PLAN.to_avro() != replace(PLAN, root="").to_avro()


def test_hudi_finds_whole_paths() -> None:
    (record,) = fastavro.reader(io.BytesIO(PLAN.to_avro()))
    assert isinstance(record, dict)
    assert record["operationType"] == "CLUSTER" and record["extraMetadata"] == {"cancellable": "true"}
    first, second = (group["slices"][0] for group in record["clusteringPlan"]["inputGroups"])
    assert first["dataFilePath"] == f"file:/tables/t/part=a/{BASE}"
    assert second["dataFilePath"] == "" and second["deltaFilePaths"] == [f"file:/tables/t/{LOG}"]


@pytest.mark.parametrize("data", [b"", b"Obj\x01", CompactionPlan(()).to_avro(), PLAN.to_avro()[:-20]])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptTable, match="clustering plan"):
        ClusteringPlan.from_avro(data, "")
