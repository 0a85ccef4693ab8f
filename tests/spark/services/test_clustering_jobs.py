"""Clustering on Spark: the calls as users make them, and executors that die."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.console.main import main
from lakelatch.errors import TransactionEnded

BY_V = {"hoodie.clustering.plan.strategy.sort.columns": "v"}
FAST_HEARTBEAT = {"hoodie.client.heartbeat.interval_in_ms": "200"}
SCRIPT = f"lakelatch.cluster(spark, sys.argv[1], { ({**BY_V, **FAST_HEARTBEAT})!r})"

MakeTable = Callable[..., Any]
RunPython = Callable[..., subprocess.Popen[str]]


def rows(count: int) -> list[tuple[int, int, str]]:
    return [(key, 1, f"v{key * 7 % 10}") for key in range(10, 10 + count)]


def test_the_three_calls(make_table: MakeTable) -> None:
    table = make_table()
    table.write(rows(20))
    (result,) = lakelatch.cluster(table.spark, table.path, BY_V)
    assert (result.operation, result.rows_written, result.file_groups_replaced) == ("cluster", 20, 2)
    assert table.read() == rows(20)
    for name in result.files:
        values = pq.read_table(Path(table.path) / name)["v"].to_pylist()
        assert values == sorted(values)
    assert lakelatch.cluster(table.spark, table.path, BY_V) == []
    table.write([(11, 2, "w")])
    plan = lakelatch.schedule_clustering(table.path, BY_V)
    assert plan is not None and lakelatch.schedule_clustering(table.path, BY_V) is None
    assert lakelatch.execute_clustering(table.spark, table.path, plan).file_groups_replaced == 1
    with pytest.raises(TransactionEnded, match=plan):
        lakelatch.execute_clustering(table.spark, table.path, plan)
    assert table.read() == sorted([(11, 2, "w"), *(row for row in rows(20) if row[0] != 11)])


def test_a_plan_that_writers_have_overtaken_ends_and_the_next_call_plans_anew(make_table: MakeTable) -> None:
    table = make_table()
    table.write(rows(20))
    plan = lakelatch.schedule_clustering(table.path, BY_V)
    table.write([(key, 2, "w") for key in range(10, 30)])
    assert plan is not None
    (result,) = lakelatch.cluster(table.spark, table.path, BY_V)
    assert result.instant != plan and table.read() == [(key, 2, "w") for key in range(10, 30)]
    table.write([(key, 3, "x") for key in range(10, 30)])
    other = lakelatch.schedule_clustering(table.path, BY_V)
    table.write([(key, 4, "y") for key in range(10, 30)])
    assert other is not None
    with pytest.raises(TransactionEnded, match="has ended"):  # the write called it off, and its services tidied up
        lakelatch.execute_clustering(table.spark, table.path, other)


@pytest.mark.long
@pytest.mark.parametrize("point", ["compact.after_base_file", "cluster.before_commit"])
def test_the_plan_of_a_killed_executor_is_taken_over(make_table: MakeTable, run_python: RunPython, point: str) -> None:
    table = make_table()
    table.write(rows(20))
    executor = run_python(SCRIPT, table.path, environment={"LAKELATCH_FAILPOINTS": f"{point}=kill"})
    _, errors = executor.communicate(timeout=600)
    assert executor.returncode != 0, errors
    assert table.read() == rows(20)
    (result,) = lakelatch.cluster(table.spark, table.path, {**BY_V, **FAST_HEARTBEAT})
    assert result.rows_written == 20 and table.read() == rows(20)
    files = [file.name for file in Path(table.path).glob("*.parquet")]
    assert sorted(files) == list(result.files)


@pytest.mark.long
def test_the_command(make_table: MakeTable, capsys: pytest.CaptureFixture[str], run_python: RunPython) -> None:
    table = make_table()
    table.write(rows(20))
    call = "from lakelatch.console.main import main; main(['cluster', sys.argv[1], '--by', 'v', '--json'])"
    output, errors = run_python(call, table.path).communicate(timeout=600)
    found = json.loads(output[output.index("{") :])
    assert found["completed"][0]["rows_written"] == 20 and found["waiting"] == [], errors
    assert table.read() == rows(20)
    assert main(["cluster", table.path, "--cores", "-1"]) == 2
    assert "'--cores': -1 is not in the range x>=0" in capsys.readouterr().err
