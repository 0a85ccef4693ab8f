"""A writer of small batches, ours or a peer's, under one face. Each is used by one process, and lives as long as it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from lakelatch.locks.options import PROVIDER
from lakelatch.spark.open_manager import open_manager
from lakelatch.spark.open_table import open_for_write
from lakelatch.spark.options import WriteOptions
from lakelatch.spark.read.reader import plan_read
from lakelatch.spark.write.attempt import Lost, attempted, result_or_raise
from lakelatch.spark.write.commit import commit_files, write_task
from lakelatch.spark.write.result import CommitResult
from lakelatch.storage.uris import open_storage
from lakelatch.transactions.settings import MODE_OPTION, NON_BLOCKING

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "1",
    MODE_OPTION: NON_BLOCKING,
    PROVIDER: "filesystem",
}


class BatchWriter(ABC):
    """Opened by a process on a table that exists."""

    name = ""
    needs = ""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def missing(cls) -> bool:
        return bool(cls.needs) and find_spec(cls.needs) is None

    @abstractmethod
    def add(self, rows: pa.Table) -> None:
        """One commit of rows with new keys. Raises if it is not committed."""

    @abstractmethod
    def read(self) -> pa.Table:
        """All rows, the columns of `SCHEMA`."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Gives back what it holds."""


class TableWriter(BatchWriter):
    """One that changes rows, too."""

    @abstractmethod
    def update(self, rows: pa.Table) -> None:
        """One commit of new values for keys that exist. Raises if it is not committed."""


class NbccWriter(TableWriter):
    """What `lakelatch.write` does with a frame whose rows are in the driver, without the Spark session around it.

    The manager stays open, as that of a process which writes often.
    """

    name = "lakelatch"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        options = {key: value for key, value in OPTIONS.items() if key != PROVIDER or "://" not in path}
        self._asked = WriteOptions.parse(options)  # in a store the locks lie beside the table, as they do by default
        self._stack = ExitStack()
        storage = open_storage(path)
        self._manager = self._stack.enter_context(open_manager(storage, self._asked.manager))
        self._table = open_for_write(storage, self._asked, SCHEMA)

    def add(self, rows: pa.Table) -> None:
        self.update(rows)

    def update(self, rows: pa.Table) -> None:
        table, options, manager = self._table, self._asked, self._manager
        manager.recover()
        transaction = manager.begin(options.action_on(self._table.config.table_type))

        def work() -> CommitResult | Lost:
            task = write_task(table, options, transaction)
            tagged = [task.tag(batch) for batch in rows.to_batches()]
            reports = list(task.write(iter(tagged), "0-0-0"))
            return commit_files(transaction, table, options, reports)

        result_or_raise(attempted(transaction, work))

    def read(self) -> pa.Table:
        plan = plan_read(self.path, {"columns": ",".join(SCHEMA.names)})
        batches = [batch for file_slice in plan.slices for batch in plan.read(file_slice)]
        return pa.Table.from_batches(batches).cast(SCHEMA)

    def close(self) -> None:
        self._stack.close()


class DeltaWriter(TableWriter):
    """delta-rs with its defaults: a commit is tried 16 times, no file is synced. Opens the table for each commit."""

    name = "deltalake"
    needs = "deltalake"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._delta: Any = import_module("deltalake")
        self._options = {"aws_conditional_put": "etag"} if "://" in path else None
        if not self._delta.DeltaTable.is_deltatable(path, self._options):
            self._delta.write_deltalake(path, SCHEMA.empty_table(), storage_options=self._options)

    def add(self, rows: pa.Table) -> None:
        self._delta.write_deltalake(self.path, rows, mode="append", storage_options=self._options)

    def update(self, rows: pa.Table) -> None:
        table = self._delta.DeltaTable(self.path, storage_options=self._options)
        merge = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(self) -> pa.Table:
        builder = self._delta.QueryBuilder().register(
            "t", self._delta.DeltaTable(self.path, storage_options=self._options)
        )
        return pa.table(builder.execute("select id, ts, v from t").read_all()).cast(SCHEMA)


class DeltaWriterWithOpenTable(DeltaWriter):
    """As above, and adds to one table object as long as it lives."""

    name = "deltalake, table kept open"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._open = self._delta.DeltaTable(path, storage_options=self._options)

    def add(self, rows: pa.Table) -> None:
        self._delta.write_deltalake(self._open, rows, mode="append")
