"""Tables whose rows come and go as Arrow, in a process without Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.engine.arrow import ArrowTable
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import calling

OPTIONS: dict[str, object] = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": 2,
}


@pytest.fixture
def table(tmp_path: Path) -> ArrowTable:
    made = ArrowTable(tmp_path / "t", OPTIONS)
    made.upsert(rows((1, 1, "a"), (2, 1, "b"), (3, 1, "c")))
    return made


def rows(*given: tuple[Any, ...]) -> pa.Table:
    return pa.table({name: [row[place] for row in given] for place, name in enumerate(("id", "ts", "v"))})


def read(table: ArrowTable, **how: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(**how).to_pylist())


def test_rows_are_written_changed_and_read(table: ArrowTable) -> None:
    first = table.upsert(rows((1, 2, "A"), (4, 2, "d")))
    assert (first.rows_written, first.operation) == (2, "upsert")
    assert read(table) == [(1, 2, "A"), (2, 1, "b"), (3, 1, "c"), (4, 2, "d")]
    table.delete(rows((4, 3, "")).select(["id", "ts"]))
    table.upsert(rows((2, 3, "")).append_column("_hoodie_is_deleted", pa.array([True])))
    assert read(table) == [(1, 2, "A"), (3, 1, "c")]
    assert read(table, as_of=first.completion, columns=["v"]) == [("A",), ("b",), ("c",), ("d",)]
    assert [row["id"] for row in table.changes(first.instant, first.completion).read_all().to_pylist()] == [1, 4]
    assert table.schema.names == ["id", "ts", "v"] and len(table.to_arrow(meta_columns=True).column_names) == 8


def test_a_stream_of_batches_has_the_tables_types(table: ArrowTable) -> None:
    with table.to_batches(columns=["v", "id"]) as batches:
        assert batches.schema == pa.schema([("v", pa.string()), ("id", pa.int64())])
        assert sum(batch.num_rows for batch in batches) == 3


def test_types_of_other_libraries_are_stored(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    frame = pd.DataFrame({"id": [1], "ts": [1], "at": pd.to_datetime([moment]).astype("datetime64[ns, UTC]")})
    data = pa.Table.from_pandas(frame)
    data = data.append_column("kind", pa.array(["x"]).dictionary_encode())
    data = data.append_column("text", pa.array(["long"], pa.large_string()))
    table = ArrowTable(tmp_path / "t", OPTIONS)
    table.upsert(data)
    assert table.to_arrow().to_pylist() == [{"id": 1, "ts": 1, "at": moment, "kind": "x", "text": "long"}]


def test_an_index_of_pandas_is_a_column_if_it_has_a_name_and_nothing_otherwise(tmp_path: Path) -> None:
    whole = pd.DataFrame({"id": [1, 2, 3], "ts": [1, 1, 1], "v": ["a", "b", "c"]})
    table = ArrowTable(tmp_path / "t", OPTIONS)
    table.upsert(pa.Table.from_pandas(whole[whole.id > 1]))  # pandas calls its index __index_level_0__
    assert table.schema.names == ["id", "ts", "v"]
    levels = pd.MultiIndex.from_arrays([[4], [9]], names=["id", None])
    table.upsert(whole[whole.id == 1])
    table.upsert(whole[whole.id == 2].assign(v="B", ts=2).set_index("id"))
    table.upsert(pd.DataFrame({"ts": [1], "v": ["d"]}, index=levels))
    assert read(table) == [(1, 1, "a"), (2, 2, "B"), (3, 1, "c"), (4, 1, "d")]
    table.delete(whole.set_index("id", drop=False).rename_axis(None).loc[[3]])
    assert [row[0] for row in read(table)] == [1, 2, 4]
    with pytest.raises(InvalidRequest, match=r"the index of the frame \(id\) cannot become columns .*reset_index"):
        table.upsert(whole.set_index("id", drop=False))
    named = pa.table({"id": [7], "ts": [1], "v": ["x"], "__index_level_0__": [0]})
    with pytest.raises(
        InvalidRequest, match="__index_level_0__ are not in the table"
    ):  # nobody said that it is pandas'
        table.upsert(named)


def test_types_of_other_libraries_are_stored_within_others(tmp_path: Path) -> None:
    text = pa.large_string()
    columns: dict[str, tuple[Any, pa.DataType, pa.DataType]] = {
        "kind": ("x", pa.dictionary(pa.int32(), text), pa.string()),
        "list": (["a", None], pa.large_list(text), pa.list_(pa.string())),
        "struct": ({"s": "b"}, pa.struct([("s", text)]), pa.struct([("s", pa.string())])),
        "map": ([("k", "c")], pa.map_(text, text), pa.map_(pa.string(), pa.string())),
    }
    data = pa.table({"id": [1], "ts": [1], **{name: pa.array([one], kind) for name, (one, kind, _) in columns.items()}})
    table = ArrowTable(tmp_path / "t", OPTIONS)
    table.upsert(data)
    found = table.to_arrow()
    assert found.select(list(columns)).to_pylist() == [{name: one for name, (one, _, _) in columns.items()}]
    for name, (_, _, stored) in columns.items():
        assert found.schema.field(name).type.equals(stored), name


def test_threads_of_one_process_lose_nothing(table: ArrowTable) -> None:
    options = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}

    def write(worker: int) -> None:
        for number in range(5):
            table.upsert(rows((100 + worker * 5 + number, 1, f"w{worker}")), options)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [row[0] for row in read(table)] == [1, 2, 3, *range(100, 120)]


def test_bad_input_changes_nothing(table: ArrowTable, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="list does not speak Arrow"):
        table.upsert([{"id": 1}])
    with pytest.raises(InvalidRequest, match="lacks the column"):
        table.upsert(rows((1, 1, "x")).drop_columns(["v"]))
    with pytest.raises(InvalidRequest, match="columns=w"):
        table.to_arrow(columns=["w"])
    with pytest.raises(InvalidRequest, match="no table"):
        lakelatch.open(tmp_path / "elsewhere")
    assert read(lakelatch.open(table.path)) == [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]


@pytest.mark.parametrize("retries", [0, 2])
def test_a_conflict_is_told_or_tried_again(table: ArrowTable, retries: int) -> None:
    left = ["theirs"]

    def disturb(_: str) -> None:
        if left:
            table.upsert(rows((1, 2, left.pop())))

    options = {"hoodie.write.num.retries.on.conflict.failures": retries}
    with calling(disturb, ["mark.after"]):
        if retries:
            assert table.upsert(rows((1, 3, "ours")), options).conflicts_retried == 1
        else:
            with pytest.raises(WriteConflict):
                table.upsert(rows((1, 3, "ours")), options)
    assert read(table)[0] == ((1, 3, "ours") if retries else (1, 2, "theirs"))


def test_slices_of_one_table_are_not_counted_as_the_whole_of_it(tmp_path: Path) -> None:
    """Else each would be a log file of its own: an Arrow slice still holds all that it was cut from."""
    wide = pa.table({"id": list(range(640)), "ts": [1] * 640, "v": ["x" * 50_000] * 640, "w": [[1]] * 640})
    made = ArrowTable(tmp_path / "t", {**OPTIONS, "hoodie.bucket.index.num.buckets": 1})
    done = made.upsert(pa.concat_tables([wide.slice(start, 40) for start in range(0, 640, 40)]))
    assert len(done.files) == 1
