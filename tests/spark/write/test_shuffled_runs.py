"""Rows that go through the shuffle as runs for tasks come out as they went in, each bucket's in one task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from live_table import LiveTable

import lakelatch
from lakelatch.engine.write.runs import RUN_SCHEMA, rows_of_runs, runs_for_tasks
from lakelatch.engine.write.task import BUCKET_COLUMN, PARTITION_COLUMN

Make = Callable[..., Any]
ALL_AT_ONCE, A_FEW_ROWS = 1 << 26, 5_000


@pytest.mark.parametrize("gathered_bytes", [ALL_AT_ONCE, A_FEW_ROWS])
@pytest.mark.parametrize("tasks", [1, 3, 50])
def test_rows_of_a_bucket_come_to_one_task_in_their_order(tmp_path: Path, tasks: int, gathered_bytes: int) -> None:
    task = LiveTable(tmp_path / "t", buckets=7).begin("upsert").task()
    drawn = np.random.default_rng(7)
    count = 3000
    parts = [["p", "q/r", "é"][number] for number in drawn.integers(0, 3, count)]
    values = {"id": drawn.integers(0, 500, count), "ts": range(count), "v": ["x"] * count, "part": parts}
    tagged = [task.tag(batch) for batch in pa.table(values).to_batches(max_chunksize=400)]
    given = pa.Table.from_batches(tagged)

    came: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for runs in runs_for_tasks(tagged, task.config, tasks, gathered_bytes):
        assert runs.schema == RUN_SCHEMA and set(runs[PARTITION_COLUMN].to_pylist()) == {""}
        for place in range(runs.num_rows):
            came[runs[BUCKET_COLUMN][place].as_py()].append(runs.slice(place, 1))
    assert came.keys() <= set(range(tasks)) and len(came) >= min(tasks, 7)

    places: dict[tuple[str, int], int] = {}
    orders: dict[tuple[str, int], list[int]] = defaultdict(list)
    found = []
    for number, runs in came.items():
        rows = list(rows_of_runs(runs, task.config))
        found += rows
        for row in pa.Table.from_batches(rows).to_pylist():
            bucket = row[PARTITION_COLUMN], row[BUCKET_COLUMN]
            assert places.setdefault(bucket, number) == number
            orders[bucket].append(row["ts"])
    assert len(places) == 21
    assert all(order == sorted(order) for order in orders.values())
    again = pa.Table.from_batches(found).select(given.column_names).sort_by("ts")
    assert again.equals(given)


@pytest.mark.parametrize("partition", [None, "part"])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_an_upsert_of_many_rows_keeps_the_newest(make_table: Make, partition: str | None, kind: str) -> None:
    table = make_table("id string, ts long, v string, part string", partition=partition)
    options = {
        **table.options,
        "lakelatch.write.small.rows": "0",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.operation": "upsert",
    }
    for first in (0, 400):
        frame = table.spark.range(first, first + 1200).selectExpr(
            "string(id % 700) id", "id ts", "string(id) v", "string(id % 700 % 3) part"
        )
        lakelatch.write(frame, table.path, options)
    expected = {}
    for number in range(1600):
        expected[str(number % 700)] = (number, str(number), str(number % 700 % 3))
    found = lakelatch.read(table.spark, table.path).select("id", "ts", "v", "part").collect()
    assert {row.id: (row.ts, row.v, row.part) for row in found} == expected and len(found) == 700
