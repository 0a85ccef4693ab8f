"""The same table through hudi-rs and through lakelatch."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.console.demo.replay import hudi_rs_settings
from lakelatch.engine.read.plan import plan_read
from lakelatch.testing.servers.reach import place_options

DATA = Path(__file__).parent.parent / "data"
Rows = list[dict[str, Any]]


def _plain(table: pa.Table) -> Rows:
    """Rows as Python values, in the order of their keys; what identifies a version of a row is among them."""
    rows: Rows = [dict(row) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"], repr(row)))


@pytest.fixture
def by_hudi_rs(request: pytest.FixtureRequest) -> Callable[..., Rows]:
    """The rows that hudi-rs reads: now or as of a time, of base files only, or those of `since` (begin, end]."""

    def read(
        path: str, optimized: bool = False, since: tuple[str, str | None] | None = None, as_of: str | None = None
    ) -> Rows:
        builder = HudiTableBuilder.from_base_uri(path)
        if "://" in path:
            place = place_options(request.getfixturevalue("seaweedfs_server"))
            builder = builder.with_storage_options(hudi_rs_settings(place))
        if optimized:
            builder = builder.with_option("hoodie.read.use.read_optimized.mode", "true")
        options = HudiReadOptions()
        if since is not None:
            options = options.with_query_type(HudiQueryType.Incremental).with_start_timestamp(since[0])
            options = options.with_end_timestamp(since[1]) if since[1] else options
        if as_of is not None:
            options = options.with_as_of_timestamp(as_of)
        batches = [pa.record_batch(batch) for batch in builder.build().read(options)]
        return _plain(pa.Table.from_batches(batches)) if batches else []

    return read


@pytest.fixture
def by_lakelatch(spark: SparkSession) -> Callable[..., Rows]:
    def read(path: str, options: Mapping[str, object] | None = None) -> Rows:
        return _plain(lakelatch.read(spark, path, {**(options or {}), "lakelatch.read.meta.columns": True}).toArrow())

    return read


@pytest.fixture
def by_arrow() -> Callable[..., Rows]:
    """The rows that are read in this process, without Spark."""

    def read(path: str, options: Mapping[str, object] | None = None) -> Rows:
        plan = plan_read(path, {**(options or {}), "lakelatch.read.meta.columns": True})
        batches = [batch for file_slice in plan.slices for batch in plan.read(file_slice)]
        return _plain(pa.Table.from_batches(batches, plan.schema))

    return read


@pytest.fixture
def sample_table(tmp_path: Path) -> Callable[[str], str]:
    """Unpacks a table that Java Hudi wrote."""

    def unpack(name: str) -> str:
        with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
            members = [member for member in archive.namelist() if not member.startswith("__MACOSX")]
            archive.extractall(tmp_path, members)
        (folder,) = {member.partition("/")[0] for member in members}
        return str(tmp_path / folder)

    return unpack
