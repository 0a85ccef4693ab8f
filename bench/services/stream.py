"""One writer of ten rows a commit, as the driver of a job is one; without Spark, whose tasks run in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from bench.harness import time_ms

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.inline import after_commit
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.write.attempt import commit_files
from lakelatch.engine.write.commit import write_task
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage import LocalStorage
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.transactions.manager import TransactionManager

KEYS = 1000
ROWS = 10
_SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
}


class Stream:
    """A table of its own, which goes through `KEYS` keys again and again; `options` are for its writes and services."""

    def __init__(self, folder: str, options: Mapping[str, str]) -> None:
        given = {**_OPTIONS, **options}
        self.storage = LocalStorage(folder)
        self.options = Call(given).write()
        self.services = Call(given).services()
        self.table = open_for_write(self.storage, self.options, _SCHEMA)
        self.manager = self.new_manager()
        self.count = 0
        self.last: CommitResult

    def new_manager(self) -> TransactionManager:
        """As another process would have one."""
        provider = FilesystemLockProvider(LockScope(self.storage.uri, {}))
        return TransactionManager(
            self.storage, provider, HybridTimeGenerator(provider), self.options.manager.transactions
        )

    def commit(self) -> float:
        """Commits the next rows; the milliseconds that it took."""
        number, self.count = self.count, self.count + 1
        return time_ms(lambda: self._write(number))

    def serve(self) -> None:
        """Carries out what is due after the last commit."""
        self.last = after_commit(self.last, ServiceContext(self.table, self.manager), self.services)

    def _write(self, number: int) -> None:
        self.manager.recover()
        transaction = self.manager.begin()
        task = write_task(self.table, self.options, transaction)
        keys = [(number * ROWS + row) % KEYS for row in range(ROWS)]
        rows = pa.table([keys, [number] * ROWS, [f"v{number}"] * ROWS], schema=_SCHEMA)
        reports = [report for batch in rows.to_batches() for report in task.write(iter([task.tag(batch)]), "0-0-0")]
        self.last = commit_files(transaction, self.table, self.options, reports)

    def read(self) -> int:
        """Reads the whole table; how many rows it has."""
        return sum(batch.num_rows for batch in self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        plan = plan_read(self.storage.root)
        for found in plan.slices:
            yield from plan.read(found)
