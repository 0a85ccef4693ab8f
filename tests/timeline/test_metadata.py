"""Timeline files: what is written is what Java wrote, what is read is what was written, and nothing else is read."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import fastavro
import pytest

from lakelatch.errors import CorruptTable
from lakelatch.timeline.metadata import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    RollbackMetadata,
    RollbackPlan,
    WriteStat,
)
from lakelatch.timeline.plans.clean_plan import CleanMetadata, CleanPlan
from lakelatch.timeline.records import decode, encode
from lakelatch.timeline.schemas import CLEAN_METADATA
from lakelatch.timeline.service_metadata import read_cleaned

DATA = Path(__file__).parents[1] / "data"
STAT = WriteStat(
    partition="region=eu",
    file_id="00000001-0000-0000-0000-000000000000-0",
    path="region=eu/.00000001-0000-0000-0000-000000000000-0_20260101000000001.log.1_0-1-2",
    previous_commit="20260101000000001",
    num_writes=3,
    num_inserts=1,
    num_update_writes=2,
    num_deletes=4,
    total_write_bytes=900,
    file_size_bytes=901,
    total_log_records=5,
    total_log_files=6,
    total_updated_records_compacted=7,
    log_version=1,
    base_file="",
    log_files=(".00000001-0000-0000-0000-000000000000-0_20260101000000001.log.1_0-1-2",),
    previous_base_file="older.parquet",
    min_event_time=-1,
    max_event_time=2**40,
)
COMMIT = CommitMetadata((STAT, WriteStat("", "b", "b.parquet")), "UPSERT", {"schema": "{}", "other": "\u65e5"})
REPLACE = CommitMetadata((STAT,), "CLUSTER", {"schema": "{}"}, replaced={"region=eu": ("x", "y"), "": ("z",)})
PLAN = CompactionPlan(
    (
        CompactionOperation("p", "f", "20260101000000001", None, ("l1", "l2"), {"TOTAL_LOG_FILES": 2.0}),
        CompactionOperation("", "g", "20260101000000002", "base.parquet", ()),
    )
)
ROLLBACK = RollbackPlan("20260101000000001", "deltacommit", ("p/a", "p/b", "c"))


def timeline_files(suffix: str) -> list[tuple[str, bytes]]:
    """Timeline files of the data tables that Java wrote, those of their metadata tables left out."""
    found = []
    for path in sorted(DATA.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                own = "/.hoodie/timeline/" in name and "__MACOSX" not in name and "/metadata/" not in name
                if own and name.endswith(suffix) and not name.rpartition("/")[2].startswith("."):
                    found.append((name, archive.read(name)))
    assert found
    return found


def java_schema(data: bytes) -> Any:
    return json.loads(fastavro.reader(io.BytesIO(data)).metadata["avro.schema"])


def canonical(schema: Any) -> Any:
    """A schema without what changes neither bytes nor readers: full or short names, order of keys, stray defaults."""
    if isinstance(schema, list):
        return [canonical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    kept = {key: value for key, value in schema.items() if key not in ("doc", "namespace", "__fastavro_parsed__")}
    if kind in ("array", "map"):
        kept.pop("default", None)
    if kind == "record":
        kept["name"] = schema["name"].rpartition(".")[2]
    return {key: canonical(value) for key, value in kept.items() if not key.startswith("__")}


@pytest.mark.parametrize(
    ("suffix", "ours"),
    [(".commit", COMMIT), (".deltacommit", COMMIT), (".replacecommit", REPLACE), (".compaction.requested", PLAN)],
)
def test_writer_schemas_are_those_of_java(suffix: str, ours: CommitMetadata | CompactionPlan) -> None:
    mine = canonical(java_schema(ours.to_avro()))
    for _, data in timeline_files(suffix):
        assert mine == canonical(java_schema(data))


def test_strings_of_a_commit_are_java_strings() -> None:
    text = json.dumps(java_schema(COMMIT.to_avro()), sort_keys=True)
    assert text.count('"type": "string"') == text.count('"avro.java.string": "String", "type": "string"') > 0


@pytest.mark.parametrize("metadata", [COMMIT, REPLACE])
def test_commits_come_back(metadata: CommitMetadata) -> None:
    assert CommitMetadata.from_avro(metadata.to_avro()) == metadata


def test_commit_answers() -> None:
    assert COMMIT.schema == "{}"
    assert CommitMetadata((), "UPSERT").schema is None
    assert COMMIT.file_groups() == {(STAT.partition, STAT.file_id), ("", "b")}
    assert COMMIT.replaced_file_groups() == frozenset()
    assert REPLACE.replaced_file_groups() == {("region=eu", "x"), ("region=eu", "y"), ("", "z")}


def test_first_file_of_a_group_has_the_text_null_as_its_previous_commit() -> None:
    (record,) = fastavro.reader(io.BytesIO(COMMIT.to_avro()))
    assert isinstance(record, dict)
    assert record["partitionToWriteStats"][""][0]["prevCommit"] == "null"


def test_the_same_metadata_gives_the_same_bytes() -> None:
    again = CommitMetadata.from_avro(COMMIT.to_avro())
    assert again is not COMMIT and again.to_avro() == COMMIT.to_avro()
    assert COMMIT.to_avro() != REPLACE.to_avro()


def test_plans_come_back() -> None:
    assert CompactionPlan.from_avro(PLAN.to_avro()) == PLAN
    found = RollbackPlan.from_avro(ROLLBACK.to_avro())
    assert (found.instant, found.action, sorted(found.files)) == (
        "20260101000000001",
        "deltacommit",
        ["c", "p/a", "p/b"],
    )


def test_rollback_metadata_names_what_was_deleted() -> None:
    data = RollbackMetadata("20260101000000009", "20260101000000001", "deltacommit", ("p/a", "c")).to_avro()
    (record,) = fastavro.reader(io.BytesIO(data))
    assert isinstance(record, dict)
    assert record["totalFilesDeleted"] == 2
    assert record["partitionMetadata"]["p"]["successDeleteFiles"] == ["p/a"]
    assert record["instantsRollback"] == [{"commitTime": "20260101000000001", "action": "deltacommit"}]


@pytest.mark.parametrize("suffix", [".commit", ".deltacommit", ".replacecommit"])
def test_commits_of_java_survive_a_round_trip(suffix: str) -> None:
    for name, data in timeline_files(suffix):
        metadata = CommitMetadata.from_avro(data)
        assert metadata.stats, name
        assert metadata.schema is not None and '"fields"' in metadata.schema
        assert CommitMetadata.from_avro(metadata.to_avro()) == metadata
        assert bool(metadata.replaced) == (suffix == ".replacecommit")
        assert all(stat.num_writes + stat.num_deletes > 0 for stat in metadata.stats)


def test_compaction_plans_of_java_survive_a_round_trip() -> None:
    for _, data in timeline_files(".compaction.requested"):
        plan = CompactionPlan.from_avro(data)
        assert all(operation.delta_files and operation.base_file for operation in plan.operations)
        assert CompactionPlan.from_avro(plan.to_avro()) == plan


@pytest.mark.parametrize("read", [CommitMetadata.from_avro, CompactionPlan.from_avro, RollbackPlan.from_avro])
@pytest.mark.parametrize(
    "data", [b"", b'{"partitionToWriteStats": {}}', b"Obj\x01", RollbackMetadata("a", "b", "c", ()).to_avro()]
)
def test_other_bytes_are_refused(read: Any, data: bytes) -> None:
    with pytest.raises(CorruptTable, match=f"{len(data)} bytes that are not"):
        read(data)


def test_every_truncation_is_refused() -> None:
    data = COMMIT.to_avro()
    for length in range(len(data)):
        with pytest.raises(CorruptTable):
            CommitMetadata.from_avro(data[:length])


def test_a_clean_that_was_carried_out_again_names_what_it_found_gone() -> None:
    """Java calls it failed. A reader of the past needs to know that a clean has it."""
    record = decode(CleanMetadata("1", CleanPlan({"p": ("a", "b")}, "x")).to_avro(), "", "a clean", (), dict)
    record["partitionMetadata"]["p"] |= {"successDeleteFiles": ["p/a"], "failedDeleteFiles": ["p/b"]}
    assert read_cleaned(encode(CLEAN_METADATA, record), "") == {"p": ("a", "b")}
