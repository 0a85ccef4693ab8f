"""Executors in processes of their own: the same results as in one process, also where executors die or race."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from sweep import find_losses

import lakelatch
from lakelatch.engine.table.opening import open_table
from lakelatch.storage.local import LocalStorage
from lakelatch.system import REAL_SYSTEM

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
RunPython = Callable[..., "subprocess.Popen[str]"]

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
PATIENCE_S = 600
ROWS = 200
SHUFFLE = "lakelatch.write.shuffle"
SHUFFLED_OR_NOT = pytest.mark.parametrize("shuffle", ["true", "false"])
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.bucket.index.num.buckets": "2",
    "lakelatch.write.small.rows": "0",  # it is the executors' work that is looked at
}


def life(spark: SparkSession, path: str, options: dict[str, str]) -> list[list[Any]]:
    """A table's life in a few steps, and what is read after each. Its text is run in other processes, too."""
    import lakelatch

    rows = spark.range(60).selectExpr("id", "id % 7 ts", "concat('v', id) v", "if(id % 2 = 0, 'p', 'q') part")
    seen, completions = [], []
    table = lakelatch.Table(spark, path, options)

    def look(done: Any) -> None:
        completions.append(done.completion)
        window = table.changes(after=completions[-2] if len(completions) > 1 else "20000101000000000")
        for frame in (table.to_df(), table.to_df(as_of=completions[0]), window):
            seen.append(sorted(list(row) for row in frame.collect()))

    look(table.upsert(rows.repartition(4)))
    look(table.upsert(rows.where("id < 30").selectExpr("id", "3 ts", "upper(v) v", "part").repartition(3)))
    look(table.delete("id % 5 = 0"))
    assert len(table.compact({"hoodie.compact.inline.max.delta.commits": 1})) == 1
    newer = rows.selectExpr("id + 40 id", "ts + 7 ts", "'merged' v", "part").repartition(4)
    look(table.merge(newer).when_matched_update_all().when_not_matched_insert_all().execute())
    look(table.overwrite(rows.where("id = 2").repartition(2), partitions="touched"))
    return seen


HEAD = """
import json, os, signal, sys, time
path, options, told = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
"""
LIFE_SCRIPT = f"""{HEAD}
from typing import Any
{inspect.getsource(life)}
print(json.dumps(life(spark, path, options)))
"""
# `disturbed` travels by value (it is defined in the main module), so workers run it in place of the package's own.
DISTURBED_SCRIPT = f"""{HEAD}
import functools
from lakelatch.spark.write import frames_in as writer

DISTURB

def disturbed(name, *given):
    from lakelatch.spark.write import frames_in as writer
    for report in getattr(writer, name)(*given):
        yield report
        try:
            open(told, "x").close()
        except FileExistsError:
            continue
        disturb()

writing = {{writer._write_batches: "_write_batches", writer._tag_and_write: "_tag_and_write"}}
class Swapped(functools.partial):
    def __new__(cls, function, *arguments):
        if function in writing:
            return functools.partial(disturbed, writing[function], *arguments)
        return functools.partial(function, *arguments)

writer.partial = Swapped
frame = spark.range({ROWS}).selectExpr("id", "id ts", "concat('v', id) v", "if(id % 2 = 0, 'p', 'q') part")
done = lakelatch.write(frame.repartition(2), path, {{**options, "hoodie.upsert.shuffle.parallelism": "4"}})
print(json.dumps([done.rows_written, sorted(done.files)]))
"""
KILL_THE_EXECUTOR = """
def disturb():
    process = os.getpid()
    while "CoarseGrainedExecutorBackend" not in open(f"/proc/{process}/cmdline").read():
        process = int(open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    time.sleep(60)
"""
BE_SLOW = """
def disturb():
    time.sleep(120)
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "3s",
}


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """PySpark's own, with a folder of its own for what the workers of a cluster leave behind."""
    home = tmp_path / "spark_home"
    home.mkdir()
    for one in Path(pyspark.__file__).parent.iterdir():
        (home / one.name).symlink_to(one)
    return home


@pytest.fixture
def in_cluster(run_python: RunPython, spark_home: Path, tmp_path: Path) -> Callable[..., Any]:
    """What a script says that runs on the executors of a cluster."""

    def run(
        script: str,
        path: str,
        master: str = LOCAL_CLUSTER,
        settings: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Any:
        words = [f"--conf {name}={value}" for name, value in (settings or {}).items()]
        environment = {"SPARK_HOME": str(spark_home), "PYSPARK_SUBMIT_ARGS": " ".join([*words, "pyspark-shell"])}
        given = path, json.dumps({**OPTIONS, **(more or {})}), str(tmp_path / "told")
        process = run_python(script, *given, master=master, environment=environment)
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors[-3000:]
        return json.loads(output.strip().splitlines()[-1])

    return run


@pytest.fixture
def cluster_of_two_hosts(spark_home: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a cluster whose two workers have addresses of their own.

    Spark makes no second attempt beside the first one on the same host.
    """
    environment = {**os.environ, "SPARK_HOME": str(spark_home), "SPARK_NO_DAEMONIZE": "1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = tmp_path / f"{name}.txt"
        command = [str(spark_home / "bin/spark-class"), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=tmp_path))
        return log

    log = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    while (found := re.search(r"spark://127\.0\.0\.1:[1-9]\d*", log.read_text())) is None:
        assert started[0].poll() is None, log.read_text()
        REAL_SYSTEM.sleep(0.1)
    for host in ("127.0.0.2", "127.0.0.3"):
        place = ["--host", host, "--webui-port", "0", "--work-dir", str(tmp_path / host)]
        start(host, "worker.Worker", *place, "--cores", "1", "--memory", "1G", found.group())
    yield found.group()
    for process in reversed(started):
        process.terminate()
        process.wait()


def test_a_cluster_gives_the_same_results(spark: SparkSession, in_cluster: Callable[..., Any], tmp_path: Path) -> None:
    here = life(spark, str(tmp_path / "here"), OPTIONS)
    assert len(here) == 15 and len(here[0]) == 60 and len(here[6]) == 48
    assert in_cluster(LIFE_SCRIPT, str(tmp_path / "there")) == here
    assert losses(tmp_path / "here") == losses(tmp_path / "there") == []


@SHUFFLED_OR_NOT
def test_a_killed_executor_leaves_no_row_twice_and_no_file(
    spark: SparkSession, in_cluster: Callable[..., Any], tmp_path: Path, shuffle: str
) -> None:
    """Its tasks have written files, and what it had shuffled is made again."""
    script = DISTURBED_SCRIPT.replace("DISTURB", KILL_THE_EXECUTOR, 1)
    said = in_cluster(script, str(tmp_path / "trips"), more={SHUFFLE: shuffle})
    check_rows(spark, tmp_path, said)


@SHUFFLED_OR_NOT
def test_a_second_attempt_beside_a_slow_one_leaves_no_row_twice_and_no_file(
    spark: SparkSession, in_cluster: Callable[..., Any], cluster_of_two_hosts: str, tmp_path: Path, shuffle: str
) -> None:
    """The slow one has written its file when the other one comes first."""
    script = DISTURBED_SCRIPT.replace("DISTURB", BE_SLOW, 1)
    said = in_cluster(script, str(tmp_path / "trips"), cluster_of_two_hosts, SPECULATION, {SHUFFLE: shuffle})
    check_rows(spark, tmp_path, said)


def check_rows(spark: SparkSession, tmp_path: Path, said: Any) -> None:
    rows_written, files = said
    assert (tmp_path / "told").exists() and rows_written == ROWS
    rows = lakelatch.read(spark, str(tmp_path / "trips")).select("id", "v").collect()
    assert sorted(rows) == [(key, f"v{key}") for key in range(ROWS)]
    there = list((tmp_path / "trips").glob("*/.*.log.*"))
    assert sorted(path.name for path in there if path.stat().st_size) == files
    assert len(there) > len(files), "a tombstone bars the name of the attempt that failed"
    assert losses(tmp_path / "trips") == []


def losses(path: Path) -> list[str]:
    storage = LocalStorage(str(path))
    return find_losses(storage, open_table(storage).config)
