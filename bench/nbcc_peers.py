"""A writer of small batches, ours or a peer's, under one face. Each is used by one process, and lives as long as it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.table.making import open_for_write
from lakelatch.locks.options import PROVIDER
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import SIDE_BY_SIDE_LOG_VERSION, log_property
from lakelatch.timeline.table_config import load_table_config
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING

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
    """A table without Spark, as `lakelatch.open` gives it; each call opens what it needs."""

    name = "lakelatch"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        # In a store the locks lie beside the table, as they do by default.
        options = {key: value for key, value in OPTIONS.items() if key != PROVIDER or "://" not in path}
        open_for_write(open_storage(path), Call(options).write(), SCHEMA)  # makes the table
        self._table = ArrowTable(path, options)

    def add(self, rows: pa.Table) -> None:
        self.update(rows)

    def update(self, rows: pa.Table) -> None:
        self._table.upsert(rows)

    def read(self) -> pa.Table:
        return self._table.to_arrow(columns=SCHEMA.names).cast(SCHEMA)


class OpenNbccWriter(NbccWriter):
    """As above, and the table stays open as long as the writer lives."""

    name = "lakelatch, table kept open"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._table.__enter__()

    def close(self) -> None:
        self._table.__exit__()


class SideBySideNbccWriter(OpenNbccWriter):
    """The same, on a table that shows the commits of a slot at once (`lakelatch upgrade --side-by-side`)."""

    name = "lakelatch, side by side"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        storage = open_storage(path)
        if load_table_config(storage).log_version < SIDE_BY_SIDE_LOG_VERSION:
            update_properties(storage, log_property(SIDE_BY_SIDE_LOG_VERSION))


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
