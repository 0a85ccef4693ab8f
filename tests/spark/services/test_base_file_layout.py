"""Base files that table services write are laid out as the options of the call or of the write say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.errors import InvalidRequest

LAYOUT = {
    "hoodie.parquet.compression.codec": "gzip",
    "hoodie.parquet.dictionary.enabled": "false",
    "parquet.bloom.filter.enabled#V": "true",
}
DUE = {"hoodie.compact.inline.max.delta.commits": "1"}
Make = Callable[..., Any]


def has_layout(path: str) -> bool:
    """Whether the newest base file has it."""
    newest = max(Path(path).glob("*_*_*.parquet"), key=lambda file: file.name.rpartition("_")[2])
    file = pq.ParquetFile(newest)
    column = file.metadata.row_group(0).column(file.schema_arrow.get_field_index("v"))
    found = (column.compression == "GZIP", not column.has_dictionary_page, column.bloom_filter_offset is not None)
    assert len(set(found)) == 1
    return all(found)


@pytest.fixture
def table(make_table: Make) -> Any:
    made = make_table()
    made.options["hoodie.bucket.index.num.buckets"] = "1"
    made.write([(key, 1, f"v{key}") for key in range(100)])
    return made


def test_a_compaction_and_a_clustering_by_call(table: Any) -> None:
    assert len(lakelatch.compact(table.spark, table.path, {**DUE, **LAYOUT})) == 1
    assert has_layout(table.path)
    lakelatch.cluster(table.spark, table.path, {"hoodie.clustering.plan.strategy.sort.columns": "v"})
    assert not has_layout(table.path)
    lakelatch.cluster(table.spark, table.path, {"hoodie.clustering.plan.strategy.sort.columns": "ts", **LAYOUT})
    assert has_layout(table.path)
    assert len(table.read()) == 100


def test_a_plan_of_another_process_is_carried_out_as_the_executor_says(table: Any) -> None:
    plan = lakelatch.schedule_compaction(table.path, DUE)
    assert plan is not None
    lakelatch.execute_compaction(table.spark, table.path, plan, LAYOUT)
    assert has_layout(table.path)


def test_a_service_after_a_commit_has_the_options_of_the_write(table: Any) -> None:
    inline = {"hoodie.compact.inline": "true", **DUE}
    done = lakelatch.write(table.frame([(1, 2, "w")]), table.path, {**table.options, **inline, **LAYOUT})
    assert [run.service for run in done.services] == ["compaction"]
    assert has_layout(table.path) and len(table.read()) == 100


def test_maintenance(table: Any) -> None:
    lakelatch.maintain(table.spark, table.path, {**DUE, **LAYOUT})
    assert has_layout(table.path)


def test_copy_on_write(tmp_path: Path) -> None:
    options = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.num.buckets": "1",
        "hoodie.table.type": "COPY_ON_WRITE",
    }
    path = str(tmp_path / "copied")
    rows = pa.table({"id": range(100), "v": [f"v{key}" for key in range(100)]})
    lakelatch.ArrowTable(path, options).upsert(rows)
    assert not has_layout(path)
    lakelatch.ArrowTable(path, {**options, **LAYOUT}).upsert(rows.slice(0, 1))
    assert has_layout(path)


@pytest.mark.parametrize("service", ["compact", "cluster", "maintain"])
def test_a_column_that_is_not_there_is_named_and_nothing_is_changed(
    table: Any, service: str, tree_hash: Callable[[str], dict[str, str]]
) -> None:
    before = tree_hash(table.path)
    with pytest.raises(InvalidRequest, match="enabled#w=true names a column that the table does not have"):
        getattr(lakelatch, service)(table.spark, table.path, {**DUE, "parquet.bloom.filter.enabled#w": "true"})
    assert tree_hash(table.path) == before
