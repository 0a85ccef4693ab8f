"""Writes, batches, reads and services through a session of Spark Connect, which has no driver in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark_session import SESSION_SETTINGS

pytestmark = [pytest.mark.spark, pytest.mark.long]  # its Java process, sessions and Python workers are all new

PATIENCE_S = 300

SCRIPT = """
import json, re, sys, threading
from pathlib import Path
from pyspark.sql import SparkSession
import lakelatch
from lakelatch.errors import LakelatchError
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.spark.session.progress import with_progress
from lakelatch.storage import LocalStorage
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.early.notes import mark_aborted

path, settings, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
builder = SparkSession.builder.remote("local[2]")
for pair in settings.items():
    builder = builder.config(*pair)
spark = builder.getOrCreate()
QUERY = "hoodie.datasource.write.streaming.checkpoint.identifier"
named = {**options, QUERY: "loader"}
said = {"session": type(spark).__module__}

def name_of_error(number, options):
    try:
        lakelatch.write_batch(local, number, path, options)
    except LakelatchError as error:
        return [type(error).__name__, error.details.get("option")]

local = spark.createDataFrame([(1, 1, "a"), (2, 1, "a")], "id long, ts long, v string")
computed = spark.range(2, 5).selectExpr("id", "2L as ts", "'b' as v")
asked, schemas = [], type(spark.client).schema
type(spark.client).schema = lambda client, plan, **more: asked.append(plan) or schemas(client, plan, **more)
frames = ((0, local), (0, local), (1, computed))
batches = [lakelatch.write_batch(frame, number, path, named) for number, frame in frames]
said["repeated"] = [one.repeated for one in batches]
said["by the driver"] = [all(name.endswith("_0-0-0") for name in one.files) for one in batches]
said["schemas asked for"] = len(asked)
said["refused"] = [name_of_error(2, options)] + [
    name_of_error(2, {**named, option: "true"})
    for option in ("hoodie.datasource.compaction.async.enable", "hoodie.clean.async.enabled")
]

gate, started = Path(path + "-gate"), Path(path + "-started")
def blocked(batches):
    for batch in batches:
        started.touch()
        while not gate.exists():
            threading.Event().wait(0.05)
        yield batch

def tell():
    while not started.exists():
        threading.Event().wait(0.05)
    instant = max(LocalStorage(path).list(HEARTBEAT_FOLDER).files)  # the repeated batch has left its claim
    other = OtherWrite("20200101000000000", "deltacommit", "", frozenset(), "other", inflight=True)
    mark_aborted(LocalStorage(path), instant, Conflict(other, frozenset([("", "told")])))

threading.Thread(target=tell, daemon=True).start()
early = {"hoodie.write.concurrency.early.conflict.detection.enable": "true"}
local = computed.mapInArrow(blocked, computed.schema)
said["lost"] = name_of_error(2, {**named, **early})
told = []
lakelatch.on_progress(told.append)
said["compacted"] = len(lakelatch.compact(spark, path, {"hoodie.compact.inline.max.delta.commits": 1}))
said["told"] = [told[-1].done, re.sub(r"\\d{17}", "INSTANT", told[-1].what)]
spark.addTag("mine")
with with_progress(spark, "lakelatch: a, b"):
    said["tags"] = sorted(spark.getTags())
said["tags afterwards"] = sorted(spark.getTags())
spark.clearTags()
said["rows"] = sorted([list(row) for row in lakelatch.read(spark, path).select("id", "ts", "v").collect()])
lakelatch.Table.for_path(spark, path).create_view("trips")
stream = spark.readStream.format("lakelatch").load(path).select("id", "ts", "v").writeStream.format("lakelatch")
stream = stream.options(**options).option("checkpointLocation", path + "-checkpoint").trigger(availableNow=True)
for _ in range(2):
    stream.start(path + "-copy").awaitTermination()
copied = spark.read.format("lakelatch").load(path + "-copy").select("id", "ts", "v")
computed.write.format("lakelatch").options(**options).mode("overwrite").save(path)
said["copied"] = sorted([list(row) for row in copied.collect()])
said["viewed"] = sorted([list(row) for row in spark.sql("SELECT id, ts, v FROM trips").collect()])
print("said", json.dumps(said), flush=True)
spark.stop()
"""


def test_batches_are_written_once_and_what_nobody_can_watch_is_refused(tmp_path: Path) -> None:
    """A lost write whose tasks wait for rows is ended by the session that has started them."""
    options = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.write.concurrency.async.conflict.detector.period_ms": "50",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "trips"), json.dumps(SESSION_SETTINGS), json.dumps(options)],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},  # a port that the kernel chooses
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    assert done.returncode == 0 and lines, done.stderr
    assert json.loads(lines[0].removeprefix("said ")) == {
        "session": "pyspark.sql.connect.session",
        "repeated": [False, True, False],
        "by the driver": [True, True, True],
        "schemas asked for": 2,
        "refused": [
            ["InvalidRequest", "hoodie.datasource.write.streaming.checkpoint.identifier"],
            ["InvalidRequest", "hoodie.datasource.compaction.async.enable"],
            ["InvalidRequest", "hoodie.clean.async.enabled"],
        ],
        "lost": ["WriteConflict", None],
        "compacted": 1,
        "told": [True, "lakelatch: compaction of 'trips' (INSTANT)"],
        "tags": ["lakelatch: a  b", "mine"],
        "tags afterwards": ["mine"],
        "rows": [[1, 1, "a"], [2, 2, "b"], [3, 2, "b"], [4, 2, "b"]],
        "copied": [[1, 1, "a"], [2, 2, "b"], [3, 2, "b"], [4, 2, "b"]],
        "viewed": [[2, 2, "b"], [3, 2, "b"], [4, 2, "b"]],
    }
