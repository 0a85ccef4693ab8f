"""A table on an object store, with nothing but a bucket: written, read, kept by each command, and read by hudi-rs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.console.demo.replay import hudi_rs_settings
from lakelatch.console.main import main
from lakelatch.errors import InvalidRequest
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT, place_options
from lakelatch.testing.servers.seaweedfs import BUCKET

SCHEMA = "id int, at int, name string"
SECRET = AWS_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]


def write_options(server: Server) -> dict[str, object]:
    return {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "at",
        "hoodie.bucket.index.num.buckets": 2,
        **place_options(server),
    }


def by_hudi_rs(server: Server, path: str) -> list[tuple[int, str]]:
    settings = hudi_rs_settings(place_options(server))
    batches = hudi.HudiTableBuilder.from_base_uri(path).with_storage_options(settings).build().read()
    rows = [row for batch in batches for row in pa.record_batch(batch).select(["id", "name"]).to_pylist()]
    return sorted((row["id"], row["name"]) for row in rows)


def test_a_table_with_nothing_but_a_bucket(spark: SparkSession, seaweedfs_server: Server, tmp_path: Path) -> None:
    path, options = f"s3://{BUCKET}/{tmp_path.name}/table", write_options(seaweedfs_server)
    lakelatch.write(spark.createDataFrame([(1, 1, "a"), (2, 1, "b")], SCHEMA), path, options)
    lakelatch.write(spark.createDataFrame([(2, 2, "c"), (3, 2, "d")], SCHEMA), path, options)
    expected = [(1, "a"), (2, "c"), (3, "d")]

    def rows() -> list[tuple[int, str]]:
        frame = lakelatch.read(spark, path, place_options(seaweedfs_server))
        return sorted((row.id, row.name) for row in frame.select("id", "name").collect())

    assert rows() == expected == by_hudi_rs(seaweedfs_server, path)
    (result,) = lakelatch.compact(spark, path, options)
    assert result.rows_written == 3 and rows() == expected == by_hudi_rs(seaweedfs_server, path)
    assert lakelatch.maintain(spark, path, options).ok  # with credentials that nothing but the options has
    savepoint = lakelatch.savepoint(path, options=options)
    assert [one.instant for one in lakelatch.savepoints(path, options)] == [savepoint.instant]
    assert lakelatch.waiting_plans(path, options) == []
    assert rows() == expected == by_hudi_rs(seaweedfs_server, path)
    frame = spark.createDataFrame([(4, 4, "e")], SCHEMA)
    given = {key: str(value) for key, value in options.items()}
    frame.write.format("lakelatch").mode("append").options(**given).save(path)
    read_back = spark.read.format("lakelatch").options(**place_options(seaweedfs_server)).load(path)
    assert sorted(row.id for row in read_back.collect()) == [1, 2, 3, 4]
    assert by_hudi_rs(seaweedfs_server, path) == [*expected, (4, "e")]


def test_secrets_are_in_no_plan(
    spark: SparkSession, seaweedfs_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"s3://{BUCKET}/{tmp_path.name}/table"
    lakelatch.write(spark.createDataFrame([(1, 1, "a")], SCHEMA), path, write_options(seaweedfs_server))
    lakelatch.read(spark, path, place_options(seaweedfs_server)).explain(True)
    shown = capsys.readouterr().out
    assert "Physical Plan" in shown and SECRET not in shown


def test_a_bucket_that_nobody_may_use_is_refused_and_nothing_is_written(
    spark: SparkSession, seaweedfs_server: Server, tmp_path: Path
) -> None:
    path = f"s3://{BUCKET}/{tmp_path.name}/table"
    options = {**write_options(seaweedfs_server), "lakelatch.storage.secret_access_key": "wrong"}
    with pytest.raises(InvalidRequest, match="refuses these credentials"):
        lakelatch.write(spark.createDataFrame([(1, 1, "a")], SCHEMA), path, options)
    with pytest.raises(InvalidRequest, match="no table"):
        lakelatch.read(spark, path, place_options(seaweedfs_server))


class Commands:
    """Commands on one table in a bucket, which nothing but their options leads to."""

    def __init__(self, path: str, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.capsys = capsys
        self.options = [word for key, value in place_options(server).items() for word in ("-o", f"{key}={value}")]

    def __call__(self, *words: str) -> Any:
        """The command's result; words that begin with a hyphen or a digit come behind the table."""
        later = [word for word in words if word[0] in "-0123456789"]
        command = [word for word in words if word not in later]
        self.capsys.readouterr()
        code = main([*command, self.path, *later, *self.options, "--json"])
        output = self.capsys.readouterr()
        assert code == 0, f"{words}: {output.err}"
        return json.loads(output.out)


@pytest.fixture
def stored(
    spark: SparkSession,
    seaweedfs_server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Commands:
    """A table of three writes. Whoever forgets the options asks a port where nobody listens."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    path = f"s3://{BUCKET}/{tmp_path.name}/table"
    for number in range(3):
        lakelatch.write(spark.createDataFrame([(1, number, "a")], SCHEMA), path, write_options(seaweedfs_server))
    return Commands(path, seaweedfs_server, capsys)


def test_commands_find_a_table_in_a_bucket_by_their_options(stored: Commands, seaweedfs_server: Server) -> None:
    place = place_options(seaweedfs_server)
    first, second, third = [entry["requested"] for entry in stored("timeline")]
    assert stored("conflicts") == [] and stored("locks")["locks"] == []
    assert stored("adopt")["write"] is True
    made = stored("savepoint", "create", second)
    assert stored("savepoint", "list") == [made] and made["instant"] == second
    assert [kept.instant for kept in lakelatch.savepoints(stored.path, place)] == [second]
    assert stored("savepoint", "delete", second) == {"deleted": second}
    assert stored("rollback", third)["undone"] == [third]
    assert stored("restore", first, "--yes")["undone"] == [second]

    plan = lakelatch.schedule_compaction(stored.path, {**place, "lakelatch.service.cancellable": "true"})
    assert plan is not None and lakelatch.waiting_plans(stored.path, place) == [plan]
    assert stored("cancel", "request", plan)["state"] == "requested"
    assert [one["instant"] for one in stored("cancel", "list")] == [plan]
    assert stored("cancel", "execute", plan)["now"] is True

    (kept,) = stored("service", "run", "--once", "--cores=0", "-ohoodie.compact.inline.max.delta.commits=1")
    assert (kept["done"], kept["failed"]) == (1, 0)
    assert stored("clean", "--dry-run") == {"would_remove": []} and lakelatch.preview_clean(stored.path, place) == ()
    assert stored("clean") == {"completed": [], "waiting": []}
    assert stored("archive")["instants"] == []


@pytest.mark.long
def test_compact_and_cluster_find_it_too(stored: Commands, run_python: Callable[..., subprocess.Popen[str]]) -> None:
    script = (
        "from lakelatch.console.main import main\n"
        "codes = [main([*words, '--json', *sys.argv[1:]]) for words in (['compact'], ['cluster', '--by', 'name'])]\n"
        "sys.exit(max(codes))"
    )
    process = run_python(script, stored.path, *stored.options)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    text, found = output[output.index("{") :], []
    while text.strip():
        result, end = json.JSONDecoder().raw_decode(text.strip())
        found.append(result)
        text = text.strip()[end:]
    compacted, clustered = found
    assert [one["rows_written"] for one in compacted["completed"]] == [1] and compacted["waiting"] == []
    assert [one["file_groups_replaced"] for one in clustered["completed"]] == [1] and clustered["waiting"] == []


CLUSTER_SCRIPT = """
import json
path, options, place = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
frame = spark.range(60).selectExpr("id", "cast(id as int) at", "cast(id as string) name").repartition(4)
written = lakelatch.write(frame, path, options)
newer = frame.where("id < 20").selectExpr("id", "at + 1 as at", "concat(name, '!') name")
again = lakelatch.write(newer, path, options)
lakelatch.compact(spark, path, {**options, "hoodie.compact.inline.max.delta.commits": 1})
rows = sorted((row.id, row.name) for row in lakelatch.read(spark, path, place).select("id", "name").collect())
hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print(json.dumps([written.rows_written, again.rows_written, hosts, rows]))
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_executors_of_a_cluster_write_and_read(
    run_python: Callable[..., subprocess.Popen[str]], seaweedfs_server: Server, tmp_path: Path
) -> None:
    """Two executors in processes of their own, on two workers: what they need travels to them."""
    path, options = f"s3://{BUCKET}/{tmp_path.name}/table", write_options(seaweedfs_server)
    by_tasks = {**options, "lakelatch.write.small.rows": "0"}
    given = json.dumps(by_tasks), json.dumps(place_options(seaweedfs_server))
    home = {"SPARK_HOME": str(Path(pyspark.__file__).parent)}
    process = run_python(CLUSTER_SCRIPT, path, *given, master="local-cluster[2,1,1024]", environment=home)
    output, errors = process.communicate(timeout=850)
    assert process.returncode == 0, errors[-3000:]
    first, second, executors, rows = json.loads(output)
    assert (first, second, executors) == (60, 20, 2)
    assert rows == [[key, f"{key}!" if key < 20 else str(key)] for key in range(60)]
    assert by_hudi_rs(seaweedfs_server, path) == [(key, name) for key, name in rows]
