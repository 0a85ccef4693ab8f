"""Writers of small batches that merge, or try a commit once; PyIceberg; and all writers of the benchmarks, by name."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from bench.nbcc_peers import SCHEMA, BatchWriter, DeltaWriter, TableWriter
from bench.stores.peers import BATCH_WRITERS, DuckLakeWriter
from bench.stores.postgres import CATALOG
from bench.stores.several import SEVERAL_WRITERS


class DeltaWithoutRetries(DeltaWriter):
    """delta-rs, whose commits are tried once."""

    name = "deltalake, no retries"

    def add(self, rows: pa.Table) -> None:
        self._delta.write_deltalake(self.path, rows, mode="append", commit_properties=self._once)

    def update(self, rows: pa.Table) -> None:
        table = self._delta.DeltaTable(self.path)
        merge = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t", commit_properties=self._once)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    @property
    def _once(self) -> Any:
        return self._delta.CommitProperties(max_commit_retries=0)


class DuckLakeMerger(DuckLakeWriter, TableWriter):
    """DuckLake with a catalog in PostgreSQL; a commit is tried 11 times."""

    name = "DuckLake, merging"
    retries: int | None = None

    def __init__(self, path: str) -> None:
        super().__init__(path)
        if self.retries is not None:
            self._connection.execute(f"set ducklake_max_retry_count = {self.retries}")

    def update(self, rows: pa.Table) -> None:
        self._connection.register("new_rows", rows)
        self._connection.execute(
            "merge into lake.t as t using new_rows as s on t.id = s.id "
            "when matched then update set ts = s.ts, v = s.v when not matched then insert values (s.id, s.ts, s.v)"
        )


class DuckLakeWithoutRetries(DuckLakeMerger):
    """The same, and a commit is tried once."""

    name = "DuckLake, no retries"
    retries = 0


class IcebergWriter(TableWriter):
    """PyIceberg with a SQL catalog in PostgreSQL and its defaults. Loads the table for each commit."""

    name = "PyIceberg"
    needs = "pyiceberg"
    properties: ClassVar[dict[str, str]] = {}

    def __init__(self, path: str) -> None:
        super().__init__(path)
        catalogs: Any = import_module("pyiceberg.catalog.sql")
        parts = dict(part.split("=", 1) for part in os.environ[CATALOG].split())
        uri = f"postgresql+psycopg2://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
        self._catalog = catalogs.SqlCatalog("bench", uri=uri, warehouse=f"file://{path}")
        self._table = "bench." + Path(path).parent.name.replace("-", "_")
        self._catalog.create_namespace_if_not_exists("bench")
        self._catalog.create_table_if_not_exists(self._table, SCHEMA, properties=self.properties)

    @classmethod
    def missing(cls) -> bool:
        return super().missing() or find_spec("psycopg2") is None or CATALOG not in os.environ

    def add(self, rows: pa.Table) -> None:
        self._catalog.load_table(self._table).append(rows)

    def update(self, rows: pa.Table) -> None:
        self._catalog.load_table(self._table).upsert(rows, join_cols=["id"])

    def read(self) -> pa.Table:
        found: pa.Table = self._catalog.load_table(self._table).scan().to_arrow()
        return found.cast(SCHEMA)


class IcebergWithoutRetries(IcebergWriter):
    """The same, and a commit is tried once."""

    name = "PyIceberg, no retries"
    properties: ClassVar[dict[str, str]] = {"commit.retry.num-retries": "0"}


RETRYING: tuple[type[BatchWriter], ...] = (
    *(DeltaWithoutRetries, DeltaWriter),
    *(DuckLakeWithoutRetries, DuckLakeMerger),
    *(IcebergWithoutRetries, IcebergWriter),
)
WRITERS: dict[str, type[BatchWriter]] = {kind.name: kind for kind in (*BATCH_WRITERS, *RETRYING, *SEVERAL_WRITERS)}
