"""Rows that tasks refuse: one error, no stack in Spark's log, no second attempt, and nothing left of the write."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.engine.run.file_report import FileReport, ensure_none_refused, or_refusal
from lakelatch.errors import InvalidRequest
from lakelatch.spark.session.shown_errors import shown_plainly
from lakelatch.spark.write.frames_in import _REFUSALS_MAX, _not_refused, _refusal

pytestmark = pytest.mark.spark
RunPython = Callable[..., "subprocess.Popen[str]"]

SCRIPT = """
import json, os, sys
from pathlib import Path
spark.sparkContext.setLogLevel("WARN")
place, options, names = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3].split(',')

def times_here(batches):
    for batch in batches:
        with open(place / "attempts", "a") as noted:
            noted.write("x")
        yield batch

NESTED = "named_struct('a', id, 'b', array(id)) AS s"
def frame(*columns):
    made = spark.range(64).repartition(1).selectExpr(*columns, NESTED)
    return made.mapInArrow(times_here, made.schema)

no_key = frame("nullif(id, 7) AS id", "1L AS ts", "'p' AS v")
no_time = frame("id", "nullif(1L, id) AS ts", "'p' AS v")
no_folder = frame("id", "1L AS ts", "if(id = 9, '..', 'p') AS v")
cases = {
    "key": (no_key, {}),
    "ordering": (no_time, {}),
    "partition": (no_folder, {"hoodie.datasource.write.partitionpath.field": "v"}),
    "bulk": (no_key, {"hoodie.datasource.write.operation": "bulk_insert"}),
    "copy on write": (no_key, {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}),
}
told = {}
def tell(name, write):
    (place / "attempts").write_text("")
    print(f"## {name}", file=sys.stderr, flush=True)
    try:
        write()
    except Exception as error:
        told[name] = [type(error).__name__, str(error), len((place / "attempts").read_text())]

for name in names:
    if name in cases:
        refused, more = cases[name]
        path = str(place / name.replace(" ", "-"))
        tell(name, lambda: lakelatch.write(refused, path, {**options, **more}))
there = str(place / "there")
lakelatch.write(spark.sql(f"SELECT id, 1L AS ts, 'p' AS v, {NESTED} FROM VALUES (1L) AS given(id)"), there, options)
tell("save", lambda: no_key.write.format("lakelatch").options(**options).mode("append").save(there))
if "stream" in names:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load().selectExpr("value AS id")
    stream = stream.selectExpr("nullif(id, 1) AS id", "1L AS ts", "'p' AS v", NESTED)
    sink = stream.writeStream.format("lakelatch").options(**options)
    tell("stream", lambda: sink.option("checkpointLocation", str(place / "log")).start(there).awaitTermination())
told["rows"] = lakelatch.read(spark, there).count()
print(json.dumps(told))
"""
REFUSED = "[LAKELATCH-INVALID] 1 of 64 rows have no value in the record key field 'id': fill them or drop those rows"
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.write.lock.provider": "filesystem",
}


@pytest.mark.parametrize(
    "names",
    ["key", pytest.param("bulk,ordering,partition,copy on write,stream", marks=pytest.mark.long)],
)
def test_one_error_without_a_stack_and_without_another_attempt(
    run_python: RunPython, tmp_path: Path, names: str
) -> None:
    process = run_python(SCRIPT, str(tmp_path), json.dumps(OPTIONS), names, master="local[1,3]")
    output, log = process.communicate()
    assert process.returncode == 0, log
    told = json.loads(output.splitlines()[-1])
    assert told.pop("rows") == 1
    of_stream = told.pop("stream", None)
    assert set(told) == {*names.split(","), "save"} - {"stream"}
    for name, (kind, message, attempts) in told.items():
        assert attempts == 1, f"{name}: no task was tried again"
        if name == "save":
            assert message.splitlines()[0].endswith(f"InvalidRequest: {REFUSED}"), "the first line says what is wrong"
        else:
            named = {"ordering": "ordering field 'ts'", "partition": "'v'"}.get(name)
            assert kind == "InvalidRequest" and (named in message if named else message == REFUSED), name
            left = [file for file in (tmp_path / name.replace(" ", "-")).rglob("*") if file.is_file()]
            assert not [file for file in left if ".hoodie/" not in str(file) and file.stat().st_size], "tombstones only"
            assert not [file for file in left if file.name == "hoodie.properties"], "a refused write makes no table"

    log, _, log_of_stream = log.partition("## stream")
    errors = [line for line in log.splitlines() if " ERROR " in line]
    assert len(errors) == 2 and all("AppendDataExec" in line for line in errors), "Spark's own words that it aborts"
    assert not [line for line in log.splitlines() if line.startswith(("\tat ", "Traceback"))]
    if of_stream is not None:
        assert REFUSED.partition(" of ")[2][3:] in of_stream[1] and "data_source.py" not in of_stream[1]
        assert "PythonException" not in log_of_stream, "the stack that Spark logs of its query has none of ours"


@pytest.mark.parametrize("in_runs", [False, True])
def test_every_task_that_writes_hears_of_a_refusal(in_runs: bool) -> None:
    from lakelatch.engine.write.tasks.sorted_runs import RUN_SCHEMA

    schema = RUN_SCHEMA if in_runs else pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    error = InvalidRequest('no key, and "quotes"\n', rows=3, option="o")
    rows = _refusal(error, schema, 5)
    buckets = rows["_lakelatch_bucket"].to_pylist()
    assert buckets == [0, 1, 2, 3, 4] and _refusal(error, schema, 10**6).num_rows == _REFUSALS_MAX
    for place in range(5):
        with pytest.raises(InvalidRequest, match="no key") as caught:
            next(_not_refused(iter([rows.slice(place, 1)])))
        assert caught.value.message == error.message and caught.value.details == error.details


def test_a_refusal_comes_after_the_reports_of_what_was_written_and_any_other_error_is_raised() -> None:
    report = FileReport("", "f", "n", 1, 0, 1, 1)

    def reports(error: Exception) -> Iterator[FileReport]:
        yield report
        raise error

    found = list(or_refusal(reports(InvalidRequest("cannot be stored", option="o"))))
    assert found[0] == report and found[1].file_name == ""
    ensure_none_refused([report])
    with pytest.raises(InvalidRequest, match="cannot be stored"):
        ensure_none_refused(found)
    with pytest.raises(lakelatch.errors.Unavailable):
        list(or_refusal(reports(lakelatch.errors.Unavailable("later"))))


@pytest.mark.parametrize("kind", [InvalidRequest, lakelatch.errors.InvariantBroken, ValueError])
def test_a_process_of_the_user_shows_stacks_as_before(kind: type[Exception]) -> None:
    @shown_plainly
    def fail() -> None:
        raise kind("wrong")

    with pytest.raises(kind):
        fail()
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
