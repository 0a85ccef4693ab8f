"""Tables in memory whose clocks stand still: writes, compactions and reads with real rows, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakelatch.locks.contract import LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.pipeline import compaction, log_compaction
from lakelatch.pipeline.batch_register import BatchRegister, written_once
from lakelatch.pipeline.committing import CommitResult, aborting, commit_files, write_task
from lakelatch.pipeline.moving import move_here
from lakelatch.pipeline.options import BATCH_APPLICATION, BATCH_NUMBER, DELETE_PARTITION, WriteOptions
from lakelatch.pipeline.plans import run_here
from lakelatch.pipeline.replacing import matching
from lakelatch.pipeline.tables import Table, open_for_write, open_table
from lakelatch.pipeline.write_task import FileReport
from lakelatch.storage import Storage
from lakelatch.testing.clock import ManualSystem
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.transaction import Transaction

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
BATCH = {BATCH_APPLICATION: "feed", BATCH_NUMBER: "7"}
_FOLDS = {"hoodie.log.compaction.blocks.threshold": "2"}
_LOCK_TIMEOUT_S = 20.0


def manager_of(storage: Storage, system: ManualSystem) -> TransactionManager:
    """Another process that works on the table."""
    provider = InProcessLockProvider(LockScope(storage.uri, {}, system))
    settings = TransactionSettings(mode=NON_BLOCKING, writer="fuzz", lock_timeout_s=_LOCK_TIMEOUT_S)
    return TransactionManager(storage, provider, HybridTimeGenerator(provider, system), settings, system)


@dataclass
class Writing:
    """A write between its beginning and its commit."""

    table: Table
    manager: TransactionManager
    transaction: Transaction
    asked: WriteOptions
    reports: list[FileReport] = field(default_factory=list)

    def put(self, *rows: dict[str, Any]) -> Writing:
        """Writes rows, all with the columns of the first one."""
        table = self.table
        schema = pa.schema([one for one in table.schema if one.name in rows[0]])
        task = write_task(table, self.asked, self.transaction)
        for batch in pa.Table.from_pylist(list(rows), schema=schema).to_batches():
            self.reports += task.write(iter([task.tag(batch)]), "0-0-0")
        return self

    def commit(self, partitions: Sequence[str] = ()) -> CommitResult:
        choose = matching(partitions) if self.asked.operation == DELETE_PARTITION else None
        with aborting(self.transaction):
            return commit_files(
                self.transaction, self.table, self.asked, self.reports, self.manager.writer, move_here, choose
            )


class MemoryTable:
    """Keyed by `id` and ordered by `ts`; `more` are its other options."""

    def __init__(self, storage: Storage, system: ManualSystem, schema: pa.Schema, more: dict[str, Any]) -> None:
        self.storage = storage
        self.system = system
        self.options: dict[str, object] = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.write.concurrency.mode": NON_BLOCKING,
            **more,
        }
        self.opened = open_for_write(storage, WriteOptions.parse(self.options), schema)

    def manager(self) -> TransactionManager:
        return manager_of(self.storage, self.system)

    def begin(self, operation: str = "upsert", block_format: str = "parquet") -> Writing:
        more = {"hoodie.datasource.write.operation": operation, "hoodie.logfile.data.block.format": block_format}
        asked = WriteOptions.parse({**self.options, **more})
        manager = self.manager()
        return Writing(self.opened, manager, manager.begin(asked.action), asked)

    def write(self, *rows: dict[str, Any], operation: str = "upsert", block_format: str = "parquet") -> CommitResult:
        return self.begin(operation, block_format).put(*rows).commit()

    def drop(self, partition: str) -> CommitResult:
        return self.begin(DELETE_PARTITION).commit([partition])

    def write_batch(self, *rows: dict[str, Any]) -> CommitResult:
        def work(register: BatchRegister | None) -> CommitResult:
            assert register is not None
            writing = self.begin()
            writing.asked = replace(writing.asked, raw={**writing.asked.raw, **BATCH})
            with aborting(writing.transaction):
                register.register(writing.transaction)
                writing.put(*rows)
            return writing.commit()

        return written_once(self.manager(), BATCH, work)

    def plan(self) -> str | None:
        return compaction.schedule(open_table(self.storage), self.manager(), {})

    def compact(self) -> CommitResult:
        plan = self.plan()
        assert plan is not None
        return compaction.execute(run_here, open_table(self.storage), self.manager(), plan)

    def plan_fold(self) -> str | None:
        return log_compaction.schedule(open_table(self.storage), self.manager(), _FOLDS)

    def fold(self) -> CommitResult:
        plan = self.plan_fold()
        assert plan is not None
        return log_compaction.execute(run_here, open_table(self.storage), self.manager(), plan)
