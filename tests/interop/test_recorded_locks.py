"""Other readers of a table are not disturbed by what it says of its locks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lakelatch.engine.arrow import ArrowTable
from lakelatch.locks.options import PREFIX, PROVIDER
from lakelatch.storage import LocalStorage
from lakelatch.timeline.properties_update import record_lock_options
from lakelatch.timeline.table_config import load_table_config

OPTIONS = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": 1}
LOCKS = {
    PROVIDER: "redis",
    PREFIX + "redis.url": "rediss+sentinel://me@host:26379,host2:26379/mymaster/0?db=1",
    PREFIX + "redis.prefix": "of=us #1!",
}


@pytest.mark.parametrize("version", ["8", "9"])
def test_hudi_rs_reads_a_table_that_records_its_locks(
    version: str, by_hudi_rs: Callable[..., list[dict[str, object]]], tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    table = ArrowTable(path, {**OPTIONS, "hoodie.write.table.version": version, PROVIDER: "filesystem"})
    table.upsert(pa.table({"id": ["a", "b"]}))
    assert load_table_config(LocalStorage(path)).locks == {PROVIDER: "filesystem"}
    record_lock_options(LocalStorage(path), LOCKS)
    assert load_table_config(LocalStorage(path)).locks == LOCKS
    assert [row["id"] for row in by_hudi_rs(path)] == ["a", "b"]
