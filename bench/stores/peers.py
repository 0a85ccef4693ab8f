"""More writers of small batches: DuckLake on PostgreSQL, Lance, and plain files as the floor."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bench.nbcc_peers import (
    SCHEMA,
    BatchWriter,
    DeltaWriter,
    DeltaWriterWithOpenTable,
    NbccWriter,
    OpenNbccWriter,
    SideBySideNbccWriter,
)
from bench.stores.postgres import CATALOG

from lakelatch.system import REAL_SYSTEM


class DuckLakeWriter(BatchWriter):
    """DuckLake with its defaults and a catalog in PostgreSQL, which then holds batches of ten rows itself (inlined)."""

    name = "DuckLake"
    needs = "duckdb"
    inlined_rows = ""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        duckdb: Any = import_module("duckdb")
        self._connection = duckdb.connect(config={"threads": 1})
        for extension in ("ducklake", "postgres_scanner"):
            self._connection.execute(f"load '{_extension(extension)}'")
        schema = f"t{abs(hash_of(path)):x}"
        self._connection.execute(f"attach '{os.environ[CATALOG]}' as catalog (type postgres)")
        self._connection.execute(f"create schema if not exists catalog.{schema}")
        options = f"data_path '{path}/data/', meta_schema '{schema}'{self.inlined_rows}"
        Path(path).mkdir(parents=True, exist_ok=True)
        self._connection.execute(f"attach 'ducklake:postgres:{os.environ[CATALOG]}' as lake ({options})")
        self._connection.execute("create table if not exists lake.t (id varchar, ts bigint, v varchar)")

    @classmethod
    def missing(cls) -> bool:
        there = all(find_spec(f"duckdb_extension_{name}") for name in ("ducklake", "postgres_scanner"))
        return super().missing() or not there or CATALOG not in os.environ

    def add(self, rows: pa.Table) -> None:
        self._connection.register("new_rows", rows)
        self._connection.execute("insert into lake.t select * from new_rows")

    def read(self) -> pa.Table:
        found = self._connection.execute("select id, ts, v from lake.t").arrow()
        return (found.read_all() if hasattr(found, "read_all") else found).cast(SCHEMA)

    def close(self) -> None:
        self._connection.close()


class DuckLakeFilesWriter(DuckLakeWriter):
    """As above, with a Parquet file for each commit, as all others here have it."""

    name = "DuckLake, data files"
    inlined_rows = ", data_inlining_row_limit 0"


class LanceWriter(BatchWriter):
    """Lance with its defaults; the dataset stays open. No file is synced."""

    name = "Lance"
    needs = "lance"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        lance: Any = import_module("lance")
        if not Path(path).exists():
            lance.write_dataset(SCHEMA.empty_table(), path)
        self._lance, self._open = lance, lance.dataset(path)

    def add(self, rows: pa.Table) -> None:
        self._open = self._lance.write_dataset(rows, self._open, mode="append")

    def read(self) -> pa.Table:
        found: pa.Table = self._lance.dataset(self.path).to_table(columns=SCHEMA.names)
        return found.cast(SCHEMA)


class SyncedFilesWriter(BatchWriter):
    """The least that Hudi's layout and a lock ask for, all of it synced: a Parquet file, requested and inflight, and
    under a kernel lock one listing and the completed file. No schema, no recovery, no conflicts."""

    name = "bare synced files"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._timeline = Path(path, "timeline")
        self._timeline.mkdir(parents=True, exist_ok=True)
        self._number = 0

    def add(self, rows: pa.Table) -> None:
        self._number += 1
        instant = f"{REAL_SYSTEM.realtime_ms()}-{os.getpid()}-{self._number}"
        self._put(self._timeline / f"{instant}.requested", b"")
        self._put(self._timeline / f"{instant}.inflight", b"{}")
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        self._put(Path(self.path, f"{instant}.parquet"), sink.getvalue().to_pybytes())
        with self._locked():
            done = sum(name.endswith(".commit") for name in os.listdir(self._timeline))
            text = json.dumps({"file": f"{instant}.parquet", "rows": rows.num_rows, "after": done})
            self._put(self._timeline / f"{instant}.commit", text.encode())

    def read(self) -> pa.Table:
        commits = sorted(self._timeline.glob("*.commit"))
        return pa.concat_tables([pq.read_table(Path(self.path, f"{commit.stem}.parquet")) for commit in commits])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(Path(self.path, "lock"), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _put(self, path: Path, data: bytes) -> None:
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def hash_of(text: str) -> int:
    """The same in every process."""
    return int.from_bytes(text.encode(), "big") % (2**61 - 1)


def _extension(name: str) -> str:
    """Where the package of an extension has it, so that none is fetched."""
    found = find_spec(f"duckdb_extension_{name}")
    if found is None or found.origin is None:
        raise FileNotFoundError(f"duckdb-extension-{name.replace('_', '-')} is not installed")
    (path,) = Path(found.origin).parent.glob(f"extensions/*/{name}.duckdb_extension")
    return str(path)


BATCH_WRITERS: tuple[type[BatchWriter], ...] = (
    *(NbccWriter, OpenNbccWriter, SideBySideNbccWriter, DeltaWriter, DeltaWriterWithOpenTable),
    *(DuckLakeWriter, DuckLakeFilesWriter, LanceWriter, SyncedFilesWriter),
)
