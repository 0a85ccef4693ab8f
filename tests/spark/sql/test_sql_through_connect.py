"""Statements of a user of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark_session import SESSION_SETTINGS

pytestmark = [pytest.mark.spark, pytest.mark.long]  # its Java process, session and Python workers are all new

SCRIPT = """
import json, sys
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from lakelatch.spark.sql import statement

builder = SparkSession.builder.remote("local[2]")
for pair in json.loads(sys.argv[2]).items():
    builder = builder.config(*pair)
spark = builder.getOrCreate()
made = f"USING lakelatch LOCATION '{sys.argv[1]}' OPTIONS (primaryKey 'id')"
statement(spark, f"CREATE TABLE t (id BIGINT, v STRING) {made}")
statement(spark, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
before = statement(spark, "SELECT a.id, '{}' AS w FROM t a JOIN t b USING (id) WHERE id < :n", {"n": 3})
statement(spark, "UPDATE t SET v = :v WHERE id IN (SELECT max(id) FROM t)", {"v": "it's"})
source = spark.createDataFrame([(1, "A"), (4, "d")], "id long, v string")
statement(
    spark,
    "MERGE INTO t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    source=source,
)
statement(spark, "DELETE FROM t WHERE id = 2")
try:
    statement(spark, "DELETE FROM t WHERE nothing = 1")
except AnalysisException as error:
    refused = error.getCondition()
rows = sorted(list(row) for row in statement(spark, "SELECT * FROM t").collect())
seen = sorted(list(row) for row in before.collect())
others = statement(spark, "SELECT 1") is None and statement(spark, "SELECT * FROM nobodys") is None
print("said", json.dumps({"rows": rows, "seen": seen, "refused": refused, "others": others}), flush=True)
spark.stop()
"""


def test_statements_are_carried_out_through_connect(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "t"), json.dumps(SESSION_SETTINGS)],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},  # a port that the kernel chooses
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = next((line for line in done.stdout.splitlines() if line.startswith("said ")), "")
    assert said, done.stdout + done.stderr
    found = json.loads(said.removeprefix("said "))
    assert found["rows"] == [[1, "A"], [3, "it's"], [4, "d"]] and found["seen"] == [[1, "{}"], [2, "{}"]]
    assert str(found["refused"]).startswith("UNRESOLVED_COLUMN") and found["others"]
