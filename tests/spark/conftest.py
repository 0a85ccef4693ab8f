"""Tables that are made with few words, and processes with a Spark session of their own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, datasource
from spark_session import SESSION_SETTINGS, local_frame
from sql_tables import COLUMNS as SQL_COLUMNS
from sql_tables import ROWS as SQL_ROWS
from sql_tables import Sql

import lakelatch
from lakelatch.format.avro import META_COLUMNS
from lakelatch.format.names import BaseFile, parse_data_file

KEY = "hoodie.datasource.write.recordkey.field"
ORDERING = "hoodie.datasource.write.precombine.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
BUCKETS = "hoodie.bucket.index.num.buckets"
OPERATION = "hoodie.datasource.write.operation"
LOCKS_FOLDER = ".hoodie/.lakelatch/locks"
COLUMNS = "id long, ts long, v string"

# Tests of what older PySparks do not have: sinks of streams before 4.1, and limits of what a stream reads before 4.2.
collect_ignore: list[str] = []
if not hasattr(datasource, "DataSourceStreamArrowWriter"):
    collect_ignore += ["write/streaming/test_stream_sink.py"]
if find_spec("pyspark.sql.streaming.datasource") is None:
    collect_ignore += ["read/test_stream_reader.py"]


@dataclass
class SmallTable:
    """A table of a few rows. Rows are tuples in the order of `columns`; what is read comes back sorted, as tuples."""

    spark: SparkSession
    path: str
    columns: str = COLUMNS
    options: dict[str, str] = field(default_factory=dict)

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: str | None = None, local: bool = True) -> DataFrame:
        """A local frame, which lakelatch writes without a Spark task, or one that has to be computed."""
        if not local:
            return self.spark.createDataFrame(self.spark.sparkContext.parallelize(rows), columns or self.columns)
        return local_frame(self.spark, rows, columns or self.columns)

    def write(
        self, rows: Sequence[tuple[Any, ...]], columns: str | None = None, local: bool = True, **more: str
    ) -> lakelatch.CommitResult:
        options = {**self.options, **{name.replace("__", "."): value for name, value in more.items()}}
        return lakelatch.write(self.frame(rows, columns, local), self.path, options)

    def operate(self, operation: str, rows: Sequence[tuple[Any, ...]], columns: str | None = None) -> Any:
        return lakelatch.write(self.frame(rows, columns), self.path, {**self.options, OPERATION: operation})

    def read(self, options: Mapping[str, object] | None = None, *names: str) -> list[tuple[Any, ...]]:
        wanted = names or tuple(part.split()[0] for part in self.columns.split(", "))
        if any(name in META_COLUMNS for name in wanted):
            options = {**(options or {}), "lakelatch.read.meta.columns": True}
        rows = lakelatch.read(self.spark, self.path, options).select(*wanted).collect()
        return sorted((tuple(row) for row in rows), key=repr)

    def compact(self) -> list[lakelatch.CommitResult]:
        return lakelatch.compact(self.spark, self.path, {"hoodie.compact.inline.max.delta.commits": 1})


def _make_table(
    spark: SparkSession,
    path: str,
    columns: str = COLUMNS,
    key: str = "id",
    ordering: str | None = "ts",
    partition: str | None = None,
    **more: str,
) -> SmallTable:
    options = {KEY: key, BUCKETS: "2"}
    if ordering:
        options[ORDERING] = ordering
    if partition:
        options[PARTITION] = partition
    options.update({name.replace("__", "."): value for name, value in more.items()})
    return SmallTable(spark, path, columns, options)


@pytest.fixture
def make_table(spark: SparkSession, table_path: str) -> Callable[..., SmallTable]:
    """Makes a `SmallTable`: keyed by `id`, in two buckets, ordered by `ts` unless `ordering` is None."""
    return partial(_make_table, spark, table_path)


@pytest.fixture(scope="module")
def make_shared_table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., SmallTable]:
    """As `make_table`, in a folder, for all tests of a module, which only read it."""
    return partial(_make_table, spark, str(tmp_path_factory.mktemp("shared") / "trips"))


def _tree_hash(path: str) -> dict[str, str]:
    """Each file's content by its path below the table; what locks keep is left out, because asking changes it."""
    root = Path(path)
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(root.rglob("*"))
        if file.is_file() and not str(file.relative_to(root)).startswith(LOCKS_FOLDER)
    }


@pytest.fixture
def tree_hash() -> Callable[[str], dict[str, str]]:
    return _tree_hash


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a script with its own Spark session `spark`, in a process of its own; arguments come as `sys.argv[1:]`."""

    def run(
        script: str,
        *arguments: str,
        master: str = "local[1]",
        environment: Mapping[str, str] | None = None,
        python: str | None = sys.executable,
    ) -> subprocess.Popen[str]:
        head = (
            "import sys\nfrom pyspark.sql import SparkSession\nimport lakelatch\n"
            f"builder = SparkSession.builder.master({master!r})\n"
            f"for pair in {sorted(SESSION_SETTINGS.items())!r}:\n    builder = builder.config(*pair)\n"
            "spark = builder.getOrCreate()\nspark.sparkContext.setLogLevel('OFF')\n"
        )
        inherited = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
        said = {} if python is None else {"PYSPARK_PYTHON": python}
        return subprocess.Popen(
            [sys.executable, "-c", head + script, *arguments],
            cwd=tmp_path,
            env={**inherited, **said, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


@pytest.fixture
def arrow_frame(spark: SparkSession) -> Callable[[pa.Table], DataFrame]:
    """A local frame of an Arrow table."""
    return spark.createDataFrame


@pytest.fixture
def make_cow(make_table: Callable[..., SmallTable]) -> Callable[..., SmallTable]:
    """As `make_table`, of type COPY_ON_WRITE."""
    return lambda *columns, **more: make_table(*columns, hoodie__table__type="COPY_ON_WRITE", **more)


@pytest.fixture
def base_files() -> Callable[..., list[str]]:
    """The names of the base files of a table, after a look that there are no log files."""

    def find(path: str) -> list[str]:
        files = [parse_data_file(file.name) for file in Path(path).rglob("*") if ".hoodie/" not in str(file)]
        found = [file for file in files if file is not None]
        assert all(isinstance(file, BaseFile) for file in found)
        return sorted(file.name for file in found)

    return find


@pytest.fixture(scope="module")
def sql(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sql]:
    """Statements, and the tables of one module."""
    made = Sql(spark, tmp_path_factory.mktemp("sql"))
    yield made
    for name in made.made:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="module")
def view_of(spark: SparkSession) -> Iterator[Callable[..., None]]:
    """Makes a temporary view that is none of ours."""
    names = []

    def make(name: str, rows: Sequence[tuple[Any, ...]] = SQL_ROWS, columns: str = SQL_COLUMNS) -> None:
        spark.createDataFrame(list(rows), columns).createOrReplaceTempView(name)
        names.append(name)

    yield make
    for name in names:
        spark.catalog.dropTempView(name)
