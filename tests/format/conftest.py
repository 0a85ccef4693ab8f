"""Tables that Java Hudi wrote, tables made here, and both as two readers see them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch.format.avro import META_COLUMNS, arrow_to_avro, avro_to_arrow, with_meta_columns
from lakelatch.format.bucket_index import bucket_file_id
from lakelatch.format.file_slices import FileSlice, file_slices
from lakelatch.format.log.blocks import Deletes, encode_log_file
from lakelatch.format.merge.slice import merge_slice
from lakelatch.format.names import BaseFile, LogFile
from lakelatch.format.record_keys import record_keys
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.instant import completed, inflight, requested
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import COMMIT_TIME, EVENT_TIME, TableConfig, load_table_config

DATA = Path(__file__).parents[1] / "data"
SAMPLES = sorted(path.stem for path in DATA.glob("*.zip"))
Rows = list[dict[str, Any]]


@pytest.fixture(scope="session", params=SAMPLES)
def sample_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def unzip(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a sample table."""
    known: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in known:
            target = tmp_path_factory.mktemp(name)
            with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
                archive.extractall(target, [entry for entry in archive.namelist() if "__MACOSX" not in entry])
            (known[name],) = (path for path in target.iterdir() if (path / ".hoodie").is_dir())
        return known[name]

    return find


@pytest.fixture
def sample(sample_name: str, unzip: Callable[[str], Path]) -> Path:
    return unzip(sample_name)


class ReadTable:
    """A table read with this project's functions alone."""

    def __init__(self, root: Path) -> None:
        self.storage = LocalStorage(str(root))
        self.config = load_table_config(self.storage)
        self.timeline = Snapshot.load(self.storage)
        commits = [
            CommitMetadata.from_avro(self.storage.read(instant.path))
            for instant in self.timeline.completed
            if instant.action in ("commit", "deltacommit", "replacecommit")
        ]
        self.schema = avro_to_arrow(commits[-1].schema or "")
        self.commits = commits

    def groups(self) -> Iterator[list[FileSlice]]:
        completions = self.timeline.completion_times()
        for partition in self._partitions():
            names = self.storage.list(partition).files
            yield from file_slices(partition, names, completions, replaced=self._replaced(partition))

    def rows(self, read_optimized: bool = False, meta: bool = False) -> Rows:
        found: Rows = []
        for group in self.groups():
            if read_optimized:
                latest = next((one for one in group if one.base_file), None)
                if latest is None:
                    continue
                latest = latest.without_logs()
            else:
                latest = group[0]
            schema = with_meta_columns(self.schema)
            names = schema.names if meta else self.schema.names
            found += merge_slice(self.storage, latest, schema, self.config, {}, names).rows.to_pylist()
        return sort_rows(found)

    def _partitions(self) -> list[str]:
        depth = len(self.config.partition_fields)
        folders = [""]
        for _ in range(depth):
            folders = [
                f"{folder}/{name}" if folder else name
                for folder in folders
                for name in self.storage.list(folder).folders
                if name != ".hoodie"
            ]
        return folders

    def _replaced(self, partition: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for instant in self.timeline.completed:
            if instant.action == "replacecommit":
                metadata = CommitMetadata.from_avro(self.storage.read(instant.path))
                for inside, file_id in metadata.replaced_file_groups():
                    if inside == partition:
                        found[file_id] = instant.completion or ""
        return found


class MadeTable:
    """A table written with this project's functions alone, one instant after another. Times are small numbers."""

    file_id = bucket_file_id(0)

    def __init__(self, root: Path, schema: pa.Schema, ordering_field: str | None = None, **settings: Any) -> None:
        self.root = root
        self.storage = LocalStorage(str(root))
        self.schema = schema
        self.avro = arrow_to_avro(schema, "made")
        self.config = TableConfig(
            name="made",
            record_key_fields=("id",),
            ordering_field=ordering_field,
            merge_mode=EVENT_TIME if ordering_field else COMMIT_TIME,
            bucket_count=1,
            create_schema=self.avro,
            **settings,
        )
        self.storage.put(PROPERTIES_PATH, self.config.to_properties())

    def rows(self, instant: int, values: Rows) -> pa.Table:
        """Rows with their meta columns."""
        data = pa.Table.from_pylist(values, schema=self.schema)
        count = data.num_rows
        meta = [
            pa.repeat(time(instant), count),
            pa.array([f"{time(instant)}_0_{index}" for index in range(count)]),
            record_keys(data, self.config.record_key_fields),
            pa.repeat("", count),
            pa.repeat(self.file_id, count),
        ]
        return pa.table([*meta, *data.columns], schema=with_meta_columns(self.schema))

    def log(
        self,
        instant: int,
        completion: int,
        rows: Rows | None = None,
        deletes: Deletes | None = None,
        version: int = 1,
        token: str = "0-0-0",
        **encoding: Any,
    ) -> LogFile:
        """A delta commit of one log file."""
        records = self.rows(instant, rows) if rows else None
        data = encode_log_file(time(instant), self.avro, records, deletes, **encoding)
        name = LogFile(self.file_id, time(instant), version, token)
        self.storage.put(name.name, data)
        stat = WriteStat("", self.file_id, name.name, num_writes=len(rows or ()), log_version=1, log_files=(name.name,))
        self.commit(instant, completion, "deltacommit", "UPSERT", (stat,))
        return name

    def put_log(self, name: LogFile, rows: Rows) -> None:
        """A log file without a commit of its own."""
        records = self.rows(int(name.instant[8:]), rows)
        self.storage.put(name.name, encode_log_file(name.instant, self.avro, records, None))

    def evolve(self, schema: list[tuple[str, pa.DataType]]) -> None:
        self.schema = pa.schema(schema)
        self.avro = arrow_to_avro(self.schema, "made")

    def compact(self, instant: int, completion: int, logs: tuple[LogFile, ...], base: str | None = None) -> str:
        """A compaction of exactly these logs."""
        found = FileSlice("", self.file_id, time(0), base, tuple(log.name for log in logs))
        schema = with_meta_columns(self.schema)
        rows = merge_slice(self.storage, found, schema, self.config, {}).rows
        name = BaseFile(self.file_id, "0-0-0", time(instant)).name
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="zstd", store_schema=False)
        self.storage.put(name, sink.getvalue())
        self.commit(instant, completion, "compaction", "COMPACT", (WriteStat("", self.file_id, name),))
        return name

    def commit(self, instant: int, completion: int, action: str, operation: str, stats: tuple[WriteStat, ...]) -> None:
        metadata = CommitMetadata(stats, operation, {"schema": self.avro})
        self.storage.put(requested(time(instant), action).path, b"")
        self.storage.put(inflight(time(instant), action).path, b"")
        self.storage.put(completed(time(instant), action, time(completion)).path, metadata.to_avro())

    def deletes(self, keys: list[str], ordering: pa.Array | None = None) -> Deletes:
        return Deletes(pa.array(keys), "", ordering)

    def read_both(self, read_optimized: bool = False) -> Rows:
        """The rows, after making sure that both readers see the same."""
        ours = ReadTable(self.root).rows(read_optimized, meta=True)
        options = READ_OPTIMIZED if read_optimized else {}
        assert repr(ours) == repr(hudi_rows(self.root, meta=True, **options))  # not-a-number equals nothing
        return [{name: value for name, value in row.items() if name not in META_COLUMNS} for row in ours]


def time(number: int) -> str:
    return f"20260101{number:09d}"


def hudi_rows(root: Path, meta: bool = False, **options: str) -> Rows:
    """The table as hudi-rs reads it."""
    builder = hudi.HudiTableBuilder.from_base_uri(str(root))
    table = builder.with_hudi_options(options).build() if options else builder.build()
    batches = [pa.record_batch(batch) for batch in table.read(hudi.HudiReadOptions())]
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not meta:
        rows = [{name: value for name, value in row.items() if name not in META_COLUMNS} for row in rows]
    return sort_rows(rows)


READ_OPTIMIZED = {"hoodie.read.use.read_optimized.mode": "true"}


def sort_rows(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: str(row.get("_hoodie_record_key") or sorted(row.items())))


@pytest.fixture
def make_table(tmp_path: Path) -> Callable[..., MadeTable]:
    def make(schema: pa.Schema | list[tuple[str, pa.DataType]], **settings: Any) -> MadeTable:
        return MadeTable(tmp_path, pa.schema(schema), **settings)

    return make


@pytest.fixture
def read_table() -> Callable[[Path], ReadTable]:
    return ReadTable


@pytest.fixture
def read_optimized() -> dict[str, str]:
    return dict(READ_OPTIMIZED)


@pytest.fixture(name="hudi_rows")
def hudi_rows_fixture() -> Callable[..., Rows]:
    return hudi_rows
