"""Compaction: planned, carried out, taken over, beside writers; rows stay what they were."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import TransactionEnded, Unavailable
from lakelatch.failpoints import active, calling
from lakelatch.system import REAL_SYSTEM

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
RunPython = Callable[..., "subprocess.Popen[str]"]

EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
FAST_HEARTBEAT = {"hoodie.client.heartbeat.interval_in_ms": "200", "hoodie.client.heartbeat.tolerable.misses": "2"}
COMPACT_SCRIPT = "lakelatch.compact(spark, sys.argv[1], {'hoodie.client.heartbeat.interval_in_ms': '200'})"


def _base_files(path: str) -> list[str]:
    return sorted(file.name for file in Path(path).glob("*.parquet"))


def test_rows_are_equal_before_and_after_and_deletes_are_carried_out(make_table: MakeTable) -> None:
    table = make_table(partition="part", columns="id long, ts long, v string, part string")
    table.write([(key, 1, "a", "pq"[key % 2]) for key in range(20)])
    table.operate("delete", [(key, 9, "pq"[key % 2]) for key in range(5)], "id long, ts long, part string")
    table.write([(key, 2, "b", "pq"[key % 2]) for key in range(15, 25)])
    names = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "id", "ts", "v", "part")
    before = table.read(None, *names)
    assert len(before) == 20
    (result,) = table.compact()
    assert table.read(None, *names) == before
    assert table.read({"hoodie.datasource.query.type": "read_optimized"}, *names) == before
    assert (result.operation, result.rows_written) == ("compact", 20)
    assert all(not found.fresh_logs for found in plan_read(table.path).slices)
    assert {name for (name,) in table.read(None, "_hoodie_file_name")} <= set(result.files)


def test_nothing_to_do(make_table: MakeTable) -> None:
    table = make_table()
    table.write([])
    assert table.compact() == []
    table.write([(1, 1, "a")])
    assert lakelatch.compact(table.spark, table.path, {"hoodie.compact.inline.max.delta.commits": 2}) == []
    assert len(table.compact()) == 1
    assert table.compact() == []
    assert lakelatch.schedule_compaction(table.path, EVERY_LOG) is None


def test_a_write_that_completes_after_the_plan_lands_in_the_next_slice(make_table: MakeTable) -> None:
    table = make_table(hoodie__bucket__index__num__buckets="1")
    table.write([(1, 5, "a"), (2, 5, "b")])
    instant = lakelatch.schedule_compaction(table.path, EVERY_LOG)
    assert instant is not None
    late = table.write([(1, 6, "late"), (2, 4, "too old"), (3, 1, "new")])
    wanted = [(1, 6, "late"), (2, 5, "b"), (3, 1, "new")]
    assert table.read() == wanted
    result = lakelatch.execute_compaction(table.spark, table.path, instant)
    assert result.rows_written == 2 and late.completion < result.completion
    assert table.read() == wanted
    (found,) = plan_read(table.path).slices
    assert found.base_instant == instant
    assert found.log_files == late.files
    assert len(table.compact()) == 1
    assert table.read() == wanted


def test_a_write_that_began_before_the_plan_and_completed_after_it_is_kept(make_table: MakeTable) -> None:
    """Its requested time is below the plan's: readers that went by requested times alone would lose it."""
    table = make_table(hoodie__bucket__index__num__buckets="1")
    table.write([(1, 5, "a")])
    planned: list[str | None] = []

    def plan_first(_: str) -> None:
        planned.append(lakelatch.schedule_compaction(table.path, EVERY_LOG))

    with calling(plan_first, ["mark.after"]):
        between = table.write([(1, 6, "b"), (2, 1, "c")])
    instant = planned[0]
    assert instant is not None and between.instant < instant < between.completion
    lakelatch.execute_compaction(table.spark, table.path, instant)
    assert table.read() == [(1, 6, "b"), (2, 1, "c")]


def test_a_plan_is_carried_out_once(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    instant = lakelatch.schedule_compaction(table.path, EVERY_LOG)
    assert lakelatch.schedule_compaction(table.path, EVERY_LOG) is None, "the group is in a plan already"
    assert instant is not None
    lakelatch.execute_compaction(table.spark, table.path, instant)
    for wrong in (instant, "20200101000000000"):
        with pytest.raises(TransactionEnded, match=wrong):
            lakelatch.execute_compaction(table.spark, table.path, wrong)
    assert len(_base_files(table.path)) == 1


@pytest.mark.long
def test_a_second_executor_leaves_a_plan_to_the_first(make_table: MakeTable, run_python: RunPython) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    first = run_python(COMPACT_SCRIPT, table.path, environment={"LAKELATCH_FAILPOINTS": "compact.before_commit=stop"})
    try:
        _wait_until_stopped(first)
        (instant,) = [name.partition(".")[0] for name in _timeline(table.path) if name.endswith("compaction.requested")]
        with pytest.raises(Unavailable, match="another process"):
            lakelatch.execute_compaction(table.spark, table.path, instant, FAST_HEARTBEAT)
        first.send_signal(signal.SIGCONT)
        _, errors = first.communicate(timeout=600)
        assert first.returncode == 0, errors
    finally:
        first.kill()
        first.communicate()
    assert table.compact() == []
    assert table.read() == [(1, 1, "a")]


@pytest.mark.long
@pytest.mark.parametrize("point", ["compact.after_base_file", "compact.before_commit"])
def test_the_plan_of_a_killed_executor_is_taken_over(make_table: MakeTable, run_python: RunPython, point: str) -> None:
    table = make_table()
    table.write([(key, 1, "a") for key in range(6)])
    executor = run_python(COMPACT_SCRIPT, table.path, environment={"LAKELATCH_FAILPOINTS": f"{point}=kill"})
    _, errors = executor.communicate(timeout=600)
    assert executor.returncode != 0
    assert _base_files(table.path), errors
    assert table.read() == [(key, 1, "a") for key in range(6)]
    table.write([(1, 2, "b")])
    results = lakelatch.compact(table.spark, table.path, {**EVERY_LOG, **FAST_HEARTBEAT})
    assert results, "the plan was taken over"
    assert table.read() == sorted([(1, 2, "b"), *((key, 1, "a") for key in range(6) if key != 1)], key=repr)
    assert not [name for name in _timeline(table.path) if "compaction" in name and _is_pending(table.path, name)]
    assert len(_base_files(table.path)) == len(set(_base_files(table.path)))


def test_a_failed_compaction_is_left_to_the_next(make_table: MakeTable) -> None:
    table = make_table()
    table.write([(1, 1, "a")])
    with active("compact.before_commit=raise"), pytest.raises(Unavailable, match=r"compact\.before_commit"):
        table.compact()
    (result,) = table.compact()
    assert result.rows_written == 1
    assert table.read() == [(1, 1, "a")]


def _timeline(path: str) -> list[str]:
    return sorted(file.name for file in (Path(path) / ".hoodie/timeline").iterdir() if file.is_file())


def _is_pending(path: str, name: str) -> bool:
    instant = name.partition(".")[0]
    return not any(other.startswith(f"{instant}_") for other in _timeline(path))


def _wait_until_stopped(process: subprocess.Popen[str]) -> None:
    for _ in range(5000):  # starting Spark on a busy machine
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T":
            return
        if process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        REAL_SYSTEM.sleep(0.1)
    raise AssertionError("the process did not reach the failpoint")
