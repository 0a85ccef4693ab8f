"""Tables in memory whose clocks stand still: writes, compactions and reads with real rows, without Spark."""

from __future__ import annotations

from typing import Any

import bare_table
import pyarrow as pa
from table import BuiltTable

from lakelatch.engine.options.batch import Batch
from lakelatch.engine.run.result import CommitResult
from lakelatch.storage import Storage
from lakelatch.testing.clock import ManualSystem
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.manager import TransactionManager

PLAIN = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string()), ("part", pa.string())])
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "part", "hoodie.bucket.index.num.buckets": 2}
WIDE = pa.schema(
    [
        ("id", pa.int64()),
        *(("dt", pa.int64()), ("d", pa.string()), ("e", pa.int64())),
        *(("at", pa.int64()), ("a", pa.string())),
        *(("ts", pa.int64()), ("v", pa.string())),
    ]
)
GROUPED = {"lakelatch.table.column.groups": "dt: d, e; at: a", "hoodie.bucket.index.num.buckets": 1}
BATCH = Batch("feed", 7)
_SETTINGS: dict[str, Any] = {"mode": NON_BLOCKING, "writer": "fuzz", "lock_timeout_s": 20.0}


def manager_of(storage: Storage, system: ManualSystem) -> TransactionManager:
    """Another process that works on the table."""
    return bare_table.manager_of(storage, system=system, **_SETTINGS)


class MemoryTable(BuiltTable):
    """Keyed by `id` and ordered by `ts`; `more` are its other options."""

    def __init__(self, storage: Storage, system: ManualSystem, schema: pa.Schema, more: dict[str, Any]) -> None:
        in_process = {"hoodie.write.lock.provider": "in_process", "hoodie.datasource.write.precombine.field": "ts"}
        super().__init__(storage, schema, {**in_process, **more}, system)

    def manager(self, storage: Storage | None = None, **settings: Any) -> TransactionManager:
        return super().manager(storage, **{**_SETTINGS, **settings})

    def write(self, *rows: dict[str, Any], operation: str = "upsert", block_format: str = "parquet") -> CommitResult:
        return self.begin(operation, hoodie__logfile__data__block__format=block_format).put_rows(*rows).commit()

    def write_batch(self, *rows: dict[str, Any]) -> CommitResult:
        return self.commit_batch(BATCH, lambda writing: writing.put_rows(*rows))
