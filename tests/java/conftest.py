"""One process of Java Hudi for each worker of a run, and the other two readers beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from java_hudi import JavaHudi, Rows, SharedTable, plain
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.testing.servers import Server, open_server

JAVA_ONLY = "java"
Shared = TypeVar("Shared", bound=SharedTable)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(JAVA_ONLY)


@pytest.fixture(scope="session")
def java_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    java = JavaHudi(tmp_path_factory.mktemp("java"))
    if java.missing():
        pytest.skip(f"there is no {java.missing()}: run .ci/install-java-hudi, or set LAKELATCH_JAVA_HUDI")
    yield java
    java.close()


@pytest.fixture
def java(java_session: JavaHudi) -> JavaHudi:
    """Runs when the test begins, also if the one before has killed it."""
    java_session.start()
    return java_session


@pytest.fixture
def own_java(java_session: JavaHudi, tmp_path: Path) -> Iterator[JavaHudi]:
    """A process that only this test uses: to be killed, or for what may take the JVM down."""
    java = JavaHudi(tmp_path, java_session.version)
    yield java
    java.close()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for each file of tests."""
    with closing(open_server("zookeeper", tmp_path_factory.mktemp("zookeeper"))) as server:
        yield server


@pytest.fixture
def ours(spark: SparkSession) -> Callable[..., Rows]:
    def read(path: str, options: Mapping[str, object] | None = None) -> Rows:
        return plain(lakelatch.read(spark, path, {**(options or {}), "lakelatch.read.meta.columns": True}).toArrow())

    return read


@pytest.fixture
def hudi_rs() -> Callable[[str], Rows]:
    def read(path: str) -> Rows:
        batches = [pa.record_batch(batch) for batch in HudiTableBuilder.from_base_uri(path).build().read()]
        return plain(pa.Table.from_batches(batches)) if batches else []

    return read


@pytest.fixture
def share(
    spark: SparkSession, java: JavaHudi, tmp_path: Path, ours: Callable[..., Rows], hudi_rs: Callable[[str], Rows]
) -> Callable[[type[Shared]], Shared]:
    """Makes the `SharedTable` of a kind; the table itself is made by whoever writes first."""
    return lambda kind: kind(spark, java, str(tmp_path / "trips"), ours, hudi_rs)


@pytest.fixture
def write_ours(spark: SparkSession) -> Callable[..., Any]:
    def write(path: str, rows: pa.Table, options: Mapping[str, str]) -> lakelatch.CommitResult:
        return lakelatch.write(spark.createDataFrame(rows), path, dict(options))

    return write
