"""Comments of columns are the table's: commits keep them, and added columns bring their own."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.write import MERGE_SCHEMA
from lakelatch.format.avro import comment_of, with_comment
from lakelatch.format.evolution import Comparison
from lakelatch.locks.options import PROVIDER
from lakelatch.storage import LocalStorage
from lakelatch.timeline.log.whole_timeline import read_commit
from lakelatch.timeline.snapshot import Snapshot

OPTIONS = {
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.write.set.null.for.missing.columns": True,
    PROVIDER: "in_process",
    "lakelatch.rewrite.automatic": False,
}
INNER = pa.struct([with_comment("x", pa.int32(), "to the east"), pa.field("y", pa.int32())])
COLUMNS = pa.schema([with_comment("id", pa.int64(), "the key"), pa.field("v", pa.string()), pa.field("at", INNER)])


def comments(schema: pa.Schema) -> dict[str, str]:
    return {field.name: comment_of(field) for field in schema}


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> ArrowTable:
    options = {**OPTIONS, "hoodie.table.type": request.param}
    return ArrowTable.create(tmp_path / "t", COLUMNS, key="id", options=options)


def docs(path: Path) -> list[dict[str, str | None]]:
    """What the schemas of all commits say, in their order, for Hudi's readers."""
    storage = LocalStorage(str(path))
    said = [read_commit(storage, one).schema for one in Snapshot.look(storage).by_completion]
    return [{one["name"]: one.get("doc") for one in json.loads(text)["fields"]} for text in said if text]


def test_commits_of_rows_without_comments_keep_those_of_the_table(table: ArrowTable, tmp_path: Path) -> None:
    plain = pa.table({"id": pa.array([1], pa.int64()), "v": ["a"]})
    table.upsert(plain)
    table.upsert(plain.append_column("n", pa.array([2])), {MERGE_SCHEMA: True})
    assert comments(table.schema) == {"id": "the key", "v": "", "at": "", "n": ""}
    assert comment_of(table.schema.field("at").type.field("x")) == "to the east"
    assert [one["id"] for one in docs(tmp_path / "t")] == ["the key"] * 2
    assert table.to_arrow()["n"].to_pylist() == [2]
    if table.detail().table_type == "MERGE_ON_READ":
        table.compact()
    base = next((tmp_path / "t").glob("*.parquet"))
    said = json.loads(pq.read_metadata(base).metadata[b"parquet.avro.schema"])
    assert {one["name"]: one.get("doc") for one in said["fields"]}["id"] == "the key"


def test_an_added_column_brings_its_comment_and_others_keep_theirs(table: ArrowTable) -> None:
    more = pa.schema([with_comment("id", pa.int64(), "another"), with_comment("n", pa.int64(), "how many")])
    table.upsert(pa.table([[1], [2]], schema=more), {MERGE_SCHEMA: True})
    assert comments(table.schema) == {"id": "the key", "v": "", "at": "", "n": "how many"}


def test_a_widened_column_keeps_its_comment() -> None:
    stored = pa.schema([with_comment("n", pa.int32(), "how many")])
    compared = Comparison.of(stored, pa.schema([pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"})]))
    assert compared.schema.equals(pa.schema([with_comment("n", pa.int64(), "how many")]), check_metadata=True)


def test_a_first_write_brings_comments_and_no_other_metadata(tmp_path: Path) -> None:
    table = ArrowTable(tmp_path / "t", {**OPTIONS, "hoodie.datasource.write.recordkey.field": "id"})
    more = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1", "comment": "how many"})
    table.upsert(pa.table([[1], [2]], schema=pa.schema([pa.field("id", pa.int64()), more])))
    assert table.schema.field("n").metadata == {b"comment": b"how many"}
