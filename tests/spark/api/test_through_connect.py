"""A table in the hands of a user of Spark Connect."""

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
from pyspark.sql import SparkSession, functions
import lakelatch
from lakelatch import Table
from lakelatch.errors import InvalidRequest

builder = SparkSession.builder.remote("local[2]")
for pair in json.loads(sys.argv[2]).items():
    builder = builder.config(*pair)
spark = builder.getOrCreate()
columns = "id long, ts long, v string"
table = Table.create(spark, sys.argv[1], columns, key="id", ordering="ts", buckets=2)
table.upsert(spark.createDataFrame([(1, 1, "a"), (2, 1, "b"), (3, 1, "c")], columns))
table.update(functions.col("id") == 1, {"v": "upper(v)"})
table.delete("id = 2")
source = spark.createDataFrame([(3, 2, "C"), (4, 2, "d")], columns)
merge = table.merge(source).when_matched_update_all().when_not_matched_insert_all()
merge.execute()
table.insert(spark.createDataFrame([(4, 9, "there"), (5, 1, "e")], columns), if_exists="skip")
table.overwrite(spark.createDataFrame([(6, 1, "f")], columns), condition="id > 4")
refused = []
for change in (
    lambda: table.update("nothing = 1", {"v": "'x'"}),
    lambda: table.insert(source),
    lambda: table.merge(source.unionAll(source)).when_matched_update_all().execute(),
):
    try:
        change()
    except InvalidRequest as error:
        refused.append(error.message)
early = table.to_df()
table.update("id = 6", {"v": "upper(v)"})
late = table.to_df()
with lakelatch.transaction([table]) as tx:
    try:
        tx.upsert(table, early.selectExpr("id", "ts + 1 as ts", "v"))
    except InvalidRequest as error:
        refused.append(error.message)
    tx.upsert(table, late.where("id = 6").selectExpr("id", "ts + 1 as ts", "v"))
rows = sorted(list(row) for row in table.to_df().collect())
found = table.to_df(where="id = 1")
assert found.select(found["v"], "ts").collect() == [("A", 1)], "a name that shows in plans only"
assert (table.explain("id = 1").slices, table.explain("id = 1").record_keys) == (1, 1)
print("said", json.dumps({"session": type(spark).__module__, "rows": rows, "refused": refused}), flush=True)
spark.stop()
"""


def test_a_table_is_changed_through_connect(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "t"), json.dumps(SESSION_SETTINGS)],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},  # a port that the kernel chooses
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    assert done.returncode == 0 and lines, done.stderr
    said = json.loads(lines[0].removeprefix("said "))
    assert said["session"] == "pyspark.sql.connect.session"
    assert said["rows"] == [[1, 1, "A"], [3, 2, "C"], [4, 2, "d"], [6, 2, "F"]]
    unknown, there, twice, early = said["refused"]
    assert "read it inside the block" in early
    assert "nothing" in unknown and " already: leave it out" in there and "more than one row of the source" in twice
