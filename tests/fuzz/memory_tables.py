"""Tables in memory whose clocks stand still: writes, compactions and reads with real rows, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakelatch.engine.options.batch import Batch
from lakelatch.engine.options.compaction import CompactionOptions
from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services import compaction, log_compaction
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import abort_after, commit_files
from lakelatch.engine.write.batches import BatchRegister, written_once
from lakelatch.engine.write.commit import write_task
from lakelatch.engine.write.replace import matching
from lakelatch.locks.contract import LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage import Storage
from lakelatch.testing.clock import ManualSystem
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.actions import DELETE_PARTITION
from lakelatch.transactions.base.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.manager import TransactionManager
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
BATCH = Batch("feed", 7)
_LOCK_TIMEOUT_S = 20.0


def manager_of(storage: Storage, system: ManualSystem) -> TransactionManager:
    """Another process that works on the table."""
    provider = InProcessLockProvider(LockScope(storage.uri, {}, system))
    settings = TransactionSettings(mode=NON_BLOCKING, writer="fuzz", lock_timeout_s=_LOCK_TIMEOUT_S)
    return TransactionManager(storage, provider, HybridTimeGenerator(provider, system), settings, system)


@dataclass
class Writing:
    """A write between its beginning and its commit."""

    table: OpenedTable
    manager: TransactionManager
    transaction: Transaction
    options: WriteOptions
    reports: list[FileReport] = field(default_factory=list)

    def put(self, *rows: dict[str, Any]) -> Writing:
        """Writes rows, all with the columns of the first one."""
        table = self.table
        schema = pa.schema([one for one in table.schema if one.name in rows[0]])
        task = write_task(table, self.options, self.transaction)
        for batch in pa.Table.from_pylist(list(rows), schema=schema).to_batches():
            self.reports += task.write(iter([task.tag(batch)]), "0-0-0")
        return self

    def commit(self, partitions: Sequence[str] = ()) -> CommitResult:
        choose = matching(partitions) if self.options.operation == DELETE_PARTITION else None
        return commit_files(self.transaction, self.table, self.options, self.reports, choose=choose)


class MemoryTable:
    """Keyed by `id` and ordered by `ts`; `more` are its other options."""

    def __init__(self, storage: Storage, system: ManualSystem, schema: pa.Schema, more: dict[str, Any]) -> None:
        self.storage = storage
        self.system = system
        self.options: dict[str, object] = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.write.concurrency.mode": NON_BLOCKING,
            "hoodie.write.lock.provider": "in_process",
            **more,
        }
        self.opened = open_for_write(storage, WriteOptions.parse(self.options), schema)

    def manager(self) -> TransactionManager:
        return manager_of(self.storage, self.system)

    def begin(
        self, operation: str = "upsert", block_format: str = "parquet", settings: TransactionSettings | None = None
    ) -> Writing:
        more = {"hoodie.datasource.write.operation": operation, "hoodie.logfile.data.block.format": block_format}
        options = WriteOptions.parse({**self.options, **more})
        manager = self.manager()
        if settings is not None:
            manager.context = replace(manager.context, settings=settings)
        return Writing(self.opened, manager, manager.begin(options.action_on(self.opened.config.table_type)), options)

    def write(self, *rows: dict[str, Any], operation: str = "upsert", block_format: str = "parquet") -> CommitResult:
        return self.begin(operation, block_format).put(*rows).commit()

    def drop(self, partition: str) -> CommitResult:
        return self.begin(DELETE_PARTITION).commit([partition])

    def write_batch(self, *rows: dict[str, Any]) -> CommitResult:
        def work(register: BatchRegister | None) -> CommitResult:
            assert register is not None
            writing = self.begin()
            writing.options = replace(writing.options, batch=BATCH)
            try:
                register.register(writing.transaction)
                writing.put(*rows)
            except BaseException as error:
                raise abort_after(writing.transaction, error) from error
            return writing.commit()

        return written_once(self.manager(), BATCH, work)

    def plan(self) -> str | None:
        return compaction.schedule(open_table(self.storage), self.manager(), CompactionOptions())

    def compact(self) -> CommitResult:
        plan = self.plan()
        assert plan is not None
        return compaction.execute(HERE, open_table(self.storage), self.manager(), plan)

    def plan_fold(self) -> str | None:
        return log_compaction.schedule(open_table(self.storage), self.manager(), CompactionOptions(least_logs_of_run=2))

    def fold(self) -> CommitResult:
        plan = self.plan_fold()
        assert plan is not None
        return log_compaction.execute(HERE, open_table(self.storage), self.manager(), plan)
