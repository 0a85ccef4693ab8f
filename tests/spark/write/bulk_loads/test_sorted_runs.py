"""Tagged rows that go through the shuffle as sorted runs come out as they went in, by bucket and key."""

from __future__ import annotations

import tempfile
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from live_table import LiveTable

from lakelatch.engine.write.tasks.sorted_runs import from_runs, to_runs
from lakelatch.engine.write.tasks.task import BUCKET_COLUMN, PARTITION_COLUMN
from lakelatch.errors import Unavailable
from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.spark.write.frames_in import _write_batches
from lakelatch.spark.write.known_keys import SKIPPED

BATCH_ROWS = 700
KEY_PARTS = ["", "a", "Z", "é", "ß", "\u07ff", "\uffff", "\U0001f600", "\0", ",", "zz"]
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("v", pa.int64()),
        ("nested", pa.struct([("list", pa.list_(pa.string()))])),
        (PARTITION_COLUMN, pa.string()),
        (BUCKET_COLUMN, pa.int32()),
        (RECORD_KEY_COLUMN, pa.string()),
    ]
)


def tagged(count: int, prefix: str, drawn: np.random.Generator) -> list[dict[str, Any]]:
    keys = ["".join(drawn.choice(KEY_PARTS, 4)) + str(drawn.integers(count)) for _ in range(count)]
    return [
        {
            "id": key,
            "v": number if number % 3 else None,
            "nested": [None, {"list": None}, {"list": []}, {"list": [key, None]}][number % 4],
            PARTITION_COLUMN: ["", "a/b", "é"][number % 3],
            BUCKET_COLUMN: len(key) % 5,
            RECORD_KEY_COLUMN: prefix + key,
        }
        for number, key in enumerate(keys)
    ]


def batches(rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = pa.Table.from_pylist(rows, schema=SCHEMA).to_batches(max_chunksize=BATCH_ROWS)
    return found


def shuffled(runs: list[pa.RecordBatch], drawn: np.random.Generator) -> list[pa.RecordBatch]:
    """The runs as Spark's shuffle brings them: bucket by bucket, else in any order, in batches of any size."""
    rows = [row for batch in runs for row in batch.to_pylist()]
    rows = [rows[place] for place in drawn.permutation(len(rows))]
    rows.sort(key=itemgetter(PARTITION_COLUMN, BUCKET_COLUMN))
    found: list[pa.RecordBatch] = pa.Table.from_pylist(rows, schema=runs[0].schema).to_batches(max_chunksize=3)
    return found


@pytest.mark.parametrize("sent_bytes", [1, 1 << 26], ids=["small", "large"])
@pytest.mark.parametrize("spill_bytes", [1, 20_000, 1 << 26], ids=["each", "some", "none"])
@pytest.mark.parametrize(("prefix", "key_field"), [("", "id"), ("id:", None)], ids=["plain", "prefixed"])
def test_rows_come_out_by_bucket_and_key(sent_bytes: int, spill_bytes: int, prefix: str, key_field: str | None) -> None:
    drawn = np.random.default_rng(7)
    rows = tagged(6000, prefix, drawn)
    runs = list(to_runs(batches(rows), key_field, sent_bytes))
    found = list(from_runs(shuffled(runs, drawn), key_field, spill_bytes, 100))
    got = [row for batch in found for row in batch.select(SCHEMA.names).to_pylist()]
    order: list[Any] = [(row[PARTITION_COLUMN], row[BUCKET_COLUMN], row[RECORD_KEY_COLUMN]) for row in got]
    assert order == sorted(order)
    assert Counter(map(repr, got)) == Counter(map(repr, rows))


def test_many_rows_of_one_key_and_few_of_others_come_in_order() -> None:
    """More of them than a step of the merge takes from each run."""
    rows = [{"id": key, "v": number} for number, key in enumerate(["b"] * 5000 + ["a", "c"] * 100)]
    same = {PARTITION_COLUMN: "", BUCKET_COLUMN: 0, "nested": None}
    rows = [{**row, **same, RECORD_KEY_COLUMN: row["id"]} for row in rows] * 2
    runs = list(to_runs(batches(rows), "id", 50_000))
    got = [row for batch in from_runs(runs, "id", 1, 100) for row in batch.to_pylist()]
    keys: list[Any] = [row["id"] for row in rows]
    assert [row["id"] for row in got] == sorted(keys)
    assert Counter(row["v"] for row in got) == Counter(row["v"] for row in rows)


def test_a_plain_key_is_not_sent_twice() -> None:
    rows = batches(tagged(1000, "", np.random.default_rng(7)))
    once, twice = (sum(run.nbytes for run in to_runs(rows, key_field)) for key_field in ("id", None))
    assert once < twice * 0.9


def test_nothing_goes_through_as_nothing() -> None:
    assert list(from_runs(to_runs([pa.RecordBatch.from_pylist([], schema=SCHEMA)], "id"), "id")) == []


def test_a_folder_for_temporary_files_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = list(to_runs(batches(tagged(1000, "", np.random.default_rng(7))), "id"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(Unavailable, match=r"gone: No such file.*TMPDIR"):
        list(from_runs(runs, "id", 1))


def test_large_rows_come_a_few_at_a_time() -> None:
    """In a step of a bucket's merge no column has more than Arrow can hold at once, however large the bucket."""
    count, row_bytes = 600, 64 * 1024
    keys = [f"{number * 7919 % count:04}" for number in range(count)]
    columns = [keys, [b"x" * row_bytes] * count, [""] * count, [0] * count, keys]
    names = ["id", "v", PARTITION_COLUMN, BUCKET_COLUMN, RECORD_KEY_COLUMN]
    kinds = [pa.string(), pa.binary(), pa.string(), pa.int32(), pa.string()]
    rows = pa.table(dict(zip(names, map(pa.array, columns, kinds), strict=True)))
    runs = to_runs(rows.to_batches(max_chunksize=20), "id", 4 * 1024 * 1024)
    found = list(from_runs(runs, "id", 4 * 1024 * 1024))
    assert [key for batch in found for key in batch["id"].to_pylist()] == sorted(keys)
    assert max(batch["v"].nbytes for batch in found) < 20 * 1024 * 1024 < rows.nbytes


def test_skipped_rows_are_counted_behind_the_runs_as_well(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    writing = table.begin("bulk_insert")
    task = writing.task(in_bulk=True)
    values = {"id": [1, 2, 3], "ts": [1, 1, 1], "v": list("abc"), "part": ["p"] * 3, SKIPPED: [False, True, False]}
    rows = task.tag(pa.RecordBatch.from_pydict(values))
    for in_runs in (False, True):
        sent = to_runs([rows], task.config.plain_key_field) if in_runs else [rows]
        found = [report for batch in _write_batches(task, in_runs, True, iter(sent)) for report in batch.to_pylist()]
        assert [(one["records"], one["skipped"]) for one in found] == [(2, 0), (0, 1)]
