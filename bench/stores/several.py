"""Writers of ten rows to each of two tables: in one transaction, ours and DuckLake's, and one table after the other."""

from __future__ import annotations

import pyarrow as pa
from bench.nbcc_peers import OPTIONS, SCHEMA, BatchWriter
from bench.stores.peers import DuckLakeWriter

import lakelatch
from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.table.making import open_for_write
from lakelatch.storage.uris import open_storage

TABLES = ("orders", "lines")


class OneByOneWriter(BatchWriter):
    """Two tables without Spark, committed one after the other: what a transaction over both stands beside."""

    name = "lakelatch, one by one"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.paths = [f"{path}/{name}" for name in TABLES]
        for place in self.paths:  # makes the tables
            open_for_write(open_storage(place), Call(OPTIONS).write(), SCHEMA)
        self._tables = [ArrowTable(place, OPTIONS) for place in self.paths]

    def add(self, rows: pa.Table) -> None:
        for table in self._tables:
            table.upsert(rows)

    def read(self) -> pa.Table:
        """The rows of each, which are the same."""
        cut = lakelatch.snapshot(self.paths)
        return _the_same([cut.to_arrow(path, SCHEMA.names).cast(SCHEMA) for path in self.paths])


class TransactionWriter(OneByOneWriter):
    """The same tables, in one transaction."""

    name = "lakelatch, one transaction"

    def add(self, rows: pa.Table) -> None:
        with lakelatch.transaction(self.paths, OPTIONS) as tx:
            for path in self.paths:
                tx.upsert(path, rows)


class DuckLakeTransactionWriter(DuckLakeWriter):
    """DuckLake with its defaults and a catalog in PostgreSQL, two tables in one transaction."""

    name = "DuckLake, one transaction"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._connection.execute("create table if not exists lake.u (id varchar, ts bigint, v varchar)")

    def add(self, rows: pa.Table) -> None:
        self._connection.register("new_rows", rows)
        self._connection.execute("begin")
        try:
            for table in ("t", "u"):
                self._connection.execute(f"insert into lake.{table} select * from new_rows")
            self._connection.execute("commit")
        except Exception:
            self._roll_back()
            raise

    def read(self) -> pa.Table:
        other = self._connection.execute("select id, ts, v from lake.u").arrow()
        other = other.read_all() if hasattr(other, "read_all") else other
        return _the_same([super().read(), other.cast(SCHEMA)])

    def _roll_back(self) -> None:
        try:
            self._connection.execute("rollback")
        except Exception:  # the failed commit has ended it
            return


SEVERAL_WRITERS: tuple[type[BatchWriter], ...] = (OneByOneWriter, TransactionWriter, DuckLakeTransactionWriter)


def _the_same(tables: list[pa.Table]) -> pa.Table:
    """The first one. Errors: `AssertionError` if another has other rows."""
    found = [table.sort_by("id").combine_chunks() for table in tables]
    if any(not table.equals(found[0]) for table in found):
        raise AssertionError(f"the tables differ: {[table.num_rows for table in found]} rows")
    return found[0]
