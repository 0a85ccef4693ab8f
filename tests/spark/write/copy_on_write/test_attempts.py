"""Attempts of tasks that write base files: all of them make the same file, whichever fails, and whoever is faster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]
MakeTable = Callable[..., Any]

# `hindered` travels by value (it is defined in the main module), so workers run it in place of the package's own.
SCRIPT = """
import functools, json
path, options, end = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
from lakelatch.spark.write import frames_in as writer

def hindered(end, task, in_runs, skips, batches):
    import os, time
    from pyspark import TaskContext
    from lakelatch.spark.write import frames_in as writer
    first = TaskContext.get().attemptNumber() == 0
    for report in writer._write_batches(task, in_runs, skips, batches):
        yield report
        if first and end == "exit":
            os._exit(1)
        if first and end == "raise":
            raise RuntimeError("the first attempt fails after a file")
        if first and end == "slow" and TaskContext.get().partitionId() == 0:
            time.sleep(20)  # until a second attempt has done it all

original = writer._write_batches
class Swapped(functools.partial):
    def __new__(cls, function, *arguments):
        first = (hindered, end) if function is original else (function,)
        return functools.partial(*first, *arguments)
lakelatch.write(spark.range(60).selectExpr("id", "id AS ts", "'old' AS v"), path, options)
writer.partial = Swapped
frame = spark.range(40).selectExpr("id", "id AS ts", "'new' AS v").repartition(2)
result = lakelatch.write(frame, path, options)
print(json.dumps([list(result.files), result.rows_written]))
"""
SPECULATING = " ".join(
    f"--conf spark.{key}={value}"
    for key, value in {
        "speculation": "true",
        "speculation.multiplier": "1.1",
        "speculation.quantile": "0.25",
        "speculation.interval": "50ms",
        "speculation.minTaskRuntime": "100ms",
    }.items()
)


@pytest.mark.parametrize("end", ["exit", "raise", "slow"])
def test_no_row_is_there_twice(
    make_cow: MakeTable,
    run_python: Callable[..., subprocess.Popen[str]],
    base_files: Callable[[str], list[str]],
    end: str,
) -> None:
    table = make_cow(hoodie__bucket__index__num__buckets="4")
    environment = {"PYSPARK_SUBMIT_ARGS": f"{SPECULATING} pyspark-shell"} if end == "slow" else {}
    process = run_python(
        SCRIPT, table.path, json.dumps(table.options), end, master="local[4,4]", environment=environment
    )
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    committed, rows_written = json.loads(output)
    assert (len(committed), rows_written) == (4, 40)
    files = base_files(table.path)
    assert len(files) == 8 and set(committed) < set(files)
    found = {row[0]: row[1] for row in table.read(None, "id", "v")}
    assert len(table.read(None, "id")) == len(found) == 60
    assert {key for key, value in found.items() if value == "new"} == set(range(40))
