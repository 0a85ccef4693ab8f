"""What happens on executors: rows stay there, and attempts that fail leave nothing behind."""

from __future__ import annotations

import gc
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
RunPython = Callable[..., "subprocess.Popen[str]"]

MANY_ROWS_SCRIPT = """
import json
path, options = sys.argv[1], json.loads(sys.argv[2])
spark.conf.set("spark.sql.shuffle.partitions", "2")
frame = spark.range(60000).selectExpr("id", "id as ts", "uuid() as v")
try:
    frame.toArrow()
except Exception as error:
    assert "maxResultSize" in str(error), error
else:
    raise AssertionError("the driver took all rows")
result = lakelatch.write(frame, path, options)
lakelatch.compact(spark, path, {"hoodie.compact.inline.max.delta.commits": 1})
print(result.rows_written, lakelatch.read(spark, path).count())
"""


@pytest.mark.long
def test_rows_never_come_to_the_driver(make_table: MakeTable, run_python: RunPython) -> None:
    """The driver accepts 1 MB of results, and the rows are 3 MB."""
    table = make_table()
    limited = {"PYSPARK_SUBMIT_ARGS": "--conf spark.driver.maxResultSize=1m pyspark-shell"}
    process = run_python(MANY_ROWS_SCRIPT, table.path, json.dumps(table.options), environment=limited)
    output, errors = process.communicate(timeout=600)
    assert output.split() == ["60000", "60000"], errors


# `fails` travels by value (it is defined in the main module), so workers run it in place of the package's own.
RETRY_SCRIPT = """
import json
path, options, end = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
from lakelatch.spark.write import frames_in as writer

def fails(name, *given):
    import os
    from pyspark import TaskContext
    from lakelatch.spark.write import frames_in as writer
    for report in getattr(writer, name)(*given):
        yield report
        if TaskContext.get().attemptNumber() == 0:
            if end == "exit":
                os._exit(1)
            raise RuntimeError("the first attempt fails after a file")

writing = {writer._write_batches: "_write_batches", writer._tag_and_write: "_tag_and_write"}
frame = spark.range(40).selectExpr("id", "id as ts", "cast(id as string) as v").repartition(2)
import functools
class Swapped(functools.partial):
    def __new__(cls, function, *arguments):
        if function in writing:
            return functools.partial(fails, writing[function], *arguments)
        return functools.partial(function, *arguments)
writer.partial = Swapped
result = lakelatch.write(frame, path, options)
print(json.dumps(list(result.files)))
"""


@pytest.mark.long
@pytest.mark.parametrize("end, shuffle", [("exit", "true"), ("raise", "true"), ("exit", "false"), ("raise", "false")])
def test_a_failed_attempt_leaves_no_file(make_table: MakeTable, run_python: RunPython, end: str, shuffle: str) -> None:
    """Each task fails once, after it has written a file: the second attempt's files are committed, alone."""
    table = make_table()
    options = json.dumps({**table.options, "lakelatch.write.small.rows": "0", "lakelatch.write.shuffle": shuffle})
    process = run_python(RETRY_SCRIPT, table.path, options, end, master="local[2,4]")
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    committed = json.loads(output)
    assert len(committed) == (2 if shuffle == "true" else 4), "of each task for each bucket that it has rows of"
    files = {file.name: file.stat().st_size for file in Path(table.path).iterdir() if ".log." in file.name}
    assert {name for name, size in files.items() if size} == set(committed)
    stages = {name.rpartition("_")[2].rpartition("-")[2] for name in committed}
    assert stages.isdisjoint({"0", "1"}), "these are attempts that failed"
    assert table.read(None, "id") == [(key,) for key in sorted(range(40), key=lambda key: repr((key,)))]


def test_python_workers_of_tests_find_imported_what_they_need(spark: SparkSession) -> None:
    """Else each of them spends more on that than on what most tests ask of it."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})

    assert all(row.frozen > 10_000 for row in spark.range(2).mapInArrow(look, "frozen long").collect())
