"""A table that writers, overwrites and compactions work on at once; no Spark, and real rows for both readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
from executors import Run, executor_of

from lakelatch.engine.options.compaction import CompactionOptions
from lakelatch.engine.options.services import ServiceOptions
from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.read.plan import ReadPlan, plan_read
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services import clustering, compaction
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import commit_files
from lakelatch.engine.write.commit import StagedFiles, write_task
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.engine.write.replace import matching
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage import LocalStorage, Storage
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.actions import DELETE, DELETE_PARTITION
from lakelatch.timeline.plans.clustering_plan import SORT_COLUMNS
from lakelatch.transactions.attempt import run
from lakelatch.transactions.base.outcome import Conflicted
from lakelatch.transactions.base.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.commit import Commit
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string()), ("part", pa.string())])
NAMES = ("id", "ts", "v")
Row = tuple[int, int, str]  # id, ts, v; the partition is a matter of the test
Snapshot = list[tuple[Any, ...]]


@dataclass
class Writing:
    """A write between its beginning and its commit."""

    table: WorkedTable
    manager: TransactionManager
    transaction: Transaction
    options: WriteOptions
    reports: list[FileReport] = field(default_factory=list)

    @property
    def instant(self) -> str:
        return self.transaction.instant

    def put(self, partition: str, rows: Sequence[Row], token: str = "0-0-0") -> Writing:
        """Writes rows, as a task does."""
        values = [(*row, partition) for row in rows]
        return self.put_table(
            pa.Table.from_arrays([list(column) for column in zip(*values, strict=True)], schema=SCHEMA), token
        )

    def put_table(self, data: pa.Table, token: str = "0-0-0") -> Writing:
        opened = self.table.opened
        task = write_task(opened, self.options, self.transaction)
        for batch in data.to_batches():
            self.reports += task.write(iter([task.tag(batch)]), token)
        return self

    def commit(self, partitions: Sequence[str] = (), run: Run | None = None) -> CommitResult:
        choose = matching(partitions) if self.options.operation == DELETE_PARTITION else None
        opened, options = self.table.opened, self.options
        return commit_files(self.transaction, opened, options, self.reports, executor_of(run), choose)

    def lose(self) -> LostFiles:
        """Is refused, with its files kept for another write."""
        context = self.manager.context
        files = StagedFiles(self.transaction, self.table.opened, self.options, self.reports, HERE)
        outcome = run(context, files.start(Commit(context), keep_files=True))
        assert isinstance(outcome, Conflicted) and outcome.files_kept
        return LostFiles(self.transaction, outcome.conflict, files.reports)


class WorkedTable:
    """What tests do to any table; each manager is another process. Subclasses make the table and set these."""

    root: Path
    storage: LocalStorage
    mode: str
    options: dict[str, object]
    opened: OpenedTable

    def manager(self, storage: Storage | None = None) -> TransactionManager:
        provider = FilesystemLockProvider(LockScope(self.storage.uri, {}))
        settings = TransactionSettings(mode=self.mode)
        return TransactionManager(storage or self.storage, provider, HybridTimeGenerator(provider), settings)

    def begin(self, operation: str = "upsert", storage: Storage | None = None) -> Writing:
        options = WriteOptions.parse({**self.options, "hoodie.datasource.write.operation": operation})
        manager = self.manager(storage)
        return Writing(self, manager, manager.begin(options.action_on(self.opened.config.table_type)), options)

    def plan(self, options: Mapping[str, str] | None = None) -> str | None:
        return compaction.schedule(
            open_table(self.storage), self.manager(), CompactionOptions.from_options(options or {})
        )

    def execute(self, plan: str, run: Run | None = None) -> CommitResult:
        return compaction.execute(executor_of(run), open_table(self.storage), self.manager(), plan)

    def compact(self, options: Mapping[str, str] | None = None) -> CommitResult | None:
        plan = self.plan(options)
        return None if plan is None else self.execute(plan)

    def batches_by_hudi_rs(
        self, options: hudi.HudiReadOptions | None = None, optimized: bool = False
    ) -> list[pa.RecordBatch]:
        """What hudi-rs reads."""
        builder = hudi.HudiTableBuilder.from_base_uri(str(self.root))
        if optimized:
            builder = builder.with_option("hoodie.read.use.read_optimized.mode", "true")
        opened = builder.build()
        return [pa.record_batch(batch) for batch in opened.read(options or hudi.HudiReadOptions())]


def window(begin: str, end: str | None = None) -> dict[str, object]:
    """The options of an incremental read."""
    return {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": begin,
        **({"hoodie.datasource.read.end.instanttime": end} if end else {}),
    }


class LiveTable(WorkedTable):
    """Keyed by `id`, ordered by `ts`, partitioned by `part` unless told otherwise."""

    def __init__(
        self, root: Path, mode: str = NON_BLOCKING, partitioned: bool = True, buckets: int = 2, **more: str
    ) -> None:
        self.root = root
        self.storage = LocalStorage(str(root))
        self.options = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.bucket.index.num.buckets": buckets,
            "hoodie.write.concurrency.mode": mode,
        }
        if partitioned:
            self.options["hoodie.datasource.write.partitionpath.field"] = "part"
        self.options.update({name.replace("__", "."): value for name, value in more.items()})
        self.mode = mode
        self.opened = open_for_write(self.storage, WriteOptions.parse(self.options), SCHEMA)

    def write(self, rows: Sequence[Row], partition: str = "p", operation: str = "upsert") -> CommitResult:
        writing = self.begin(operation)
        if rows:
            writing.put(partition, rows)
        return writing.commit()

    def delete(self, rows: Sequence[Row], partition: str = "p") -> CommitResult:
        return self.write(rows, partition, DELETE)

    def drop(self, *partitions: str) -> CommitResult:
        return self.begin(DELETE_PARTITION).commit(partitions)

    def plan_clustering(self, columns: str = "v", options: Mapping[str, object] | None = None) -> str | None:
        parsed = ServiceOptions.parse({SORT_COLUMNS: columns, **(options or {})})
        return clustering.schedule(open_table(self.storage), self.manager(), parsed.clustering, parsed.cancellation)

    def execute_clustering(self, plan: str, run: Run | None = None) -> CommitResult:
        return clustering.execute(executor_of(run), open_table(self.storage), self.manager(), plan)

    def cluster(self, columns: str = "v", options: Mapping[str, object] | None = None) -> CommitResult | None:
        plan = self.plan_clustering(columns, options)
        return None if plan is None else self.execute_clustering(plan)

    def read(self, options: Mapping[str, object] | None = None, meta: bool = False) -> Snapshot:
        """Rows as this project reads them: (partition, id, ts, v), sorted."""
        return rows_of(plan_read(str(self.root), {"lakelatch.read.meta.columns": True, **(options or {})}), meta)

    def as_of(self, time: str) -> Snapshot:
        return self.read({"as.of.instant": time})

    def since(self, begin: str, end: str | None = None) -> Snapshot:
        return self.read(window(begin, end))

    def optimized(self) -> Snapshot:
        return self.read({"hoodie.datasource.query.type": "read_optimized"})

    def by_hudi_rs(
        self, options: hudi.HudiReadOptions | None = None, meta: bool = False, optimized: bool = False
    ) -> Snapshot:
        """Rows as hudi-rs reads them."""
        return _plain(self.batches_by_hudi_rs(options, optimized), meta)

    def agreed(self) -> Snapshot:
        """The rows, after making sure that both readers see the same, meta columns included."""
        ours = self.read(meta=True)
        assert ours == self.by_hudi_rs(meta=True)
        return self.read()


def rows_since(begin: str, end: str | None = None) -> hudi.HudiReadOptions:
    """What asks hudi-rs for an incremental read."""
    options = hudi.HudiReadOptions().with_query_type(hudi.HudiQueryType.Incremental).with_start_timestamp(begin)
    return options.with_end_timestamp(end) if end else options


def rows_of(plan: ReadPlan, meta: bool = False) -> Snapshot:
    """The rows of a read that was planned, as `LiveTable.read` has them."""
    return _plain([batch for file_slice in plan.slices for batch in plan.read(file_slice)], meta)


def _plain(batches: Sequence[pa.RecordBatch], meta: bool) -> Snapshot:
    rows = [row for batch in batches for row in batch.to_pylist()]
    if meta:
        return sorted(tuple(row.items()) for row in rows)
    return sorted((row["part"], *(row[name] for name in NAMES)) for row in rows)
