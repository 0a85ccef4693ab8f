"""`readStream.format("lakelatch")`: each commit is in one micro-batch, in the order of completion times."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_table import LiveTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

import lakelatch
from lakelatch.engine.read.plan import read_schema
from lakelatch.errors import InvalidRequest
from lakelatch.spark.session.spark_types import to_spark
from lakelatch.spark.streams.stream_reader import LakelatchStreamReader

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
START = "hoodie.datasource.streaming.startOffset"
COMMITS = "lakelatch.read.stream.max.commits"
OTHER_TABLE = r"of another table .* new checkpointLocation"


def carried_out(query: Callable[[], None]) -> None:
    """Runs it once more if Spark had no Python process within ten seconds, which no setting changes."""
    try:
        query()
    except StreamingQueryException as error:
        if "Python worker failed to connect back" not in str(error):
            raise
        query()


def test_a_query_goes_on_where_it_was(make_table: MakeTable, tmp_path: Path) -> None:
    table = make_table()
    checkpoint = tmp_path / "checkpoint"
    batches: list[tuple[int, list[tuple[Any, ...]]]] = []

    def follow(fail: bool = False) -> None:
        def take(frame: DataFrame, number: int) -> None:
            batches.append((number, sorted(tuple(row) for row in frame.collect())))
            if fail:
                raise RuntimeError("ended before Spark knew of it")

        stream = table.spark.readStream.format("lakelatch").option(COMMITS, "1").load(table.path)
        sink = stream.select("id", "ts", "v").writeStream.foreachBatch(take)
        sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    table.write([(1, 1, "a"), (2, 1, "b")])
    table.write([(2, 2, "B")])
    follow()
    table.compact()
    table.write([(3, 1, "c")])
    with pytest.raises(Exception, match="ended before Spark knew"):
        follow(fail=True)
    table.write([(3, 2, "C")])
    follow()
    assert batches == [
        (0, [(1, 1, "a"), (2, 1, "b")]),
        (1, [(2, 2, "B")]),
        (2, [(3, 1, "c")]),
        (2, [(3, 1, "c")]),
        (3, [(3, 2, "C")]),
    ]


def test_a_query_of_a_table_that_is_not_there_ends_and_begins_when_it_is(make_table: MakeTable, tmp_path: Path) -> None:
    """With a schema Spark makes the query, and asks for the table when it starts: no stack hides what is wrong."""
    table = make_table()

    def run() -> None:
        stream = table.spark.readStream.format("lakelatch").schema(table.columns).load(table.path)
        sink = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    with pytest.raises(StreamingQueryException) as caught:
        carried_out(run)
    first = str(caught.value).splitlines()[0]
    assert (
        f"there is no table at file://{table.path}" in first and "make the table with lakelatch.Table.create" in first
    )
    table.write([(1, 1, "a")])
    carried_out(run)
    assert [tuple(row) for row in table.spark.read.parquet(str(tmp_path / "out")).collect()] == [(1, 1, "a")]


def reader_of(table: LiveTable, **options: str) -> LakelatchStreamReader:
    path = str(table.root)
    given = {name.replace("__", "."): value for name, value in options.items()}
    return LakelatchStreamReader(path, given, to_spark(read_schema(path)))


def windows(reader: LakelatchStreamReader, limit: Any) -> Iterator[tuple[str, list[int]]]:
    """The ids of each batch, and where it ends."""
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        parts = reader.partitions(start, end)
        found = [batch for part in parts for batch in reader.read(part)]
        yield end["completion"], sorted(number for batch in found for number in batch["id"].to_pylist())
        start = end


def test_starts_and_limits(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    first = table.write([(1, 1, "a")])
    table.delete([(1, 0, "older, so it changes nothing")])
    second = table.write([(2, 1, "b"), (3, 1, "c")])
    assert [ids for _, ids in windows(reader_of(table), ReadAllAvailable())] == [[1, 2, 3]]
    limited = reader_of(table, **{START: "0", COMMITS: "2"})
    assert isinstance(limited.getDefaultReadLimit(), ReadMaxFiles)
    assert [ids for _, ids in windows(limited, limited.getDefaultReadLimit())] == [[1], [2, 3]]
    files = reader_of(table, maxFilesPerTrigger="1")
    assert [ids for _, ids in windows(files, files.getDefaultReadLimit())] == [[1], [], [2, 3]], "one commit at least"
    assert [ids for _, ids in windows(reader_of(table, **{START: first.completion}), ReadAllAvailable())] == [[2, 3]]
    latest = reader_of(table, **{START: "latest"})
    assert latest.initialOffset()["completion"] == second.completion
    assert latest.reportLatestOffset() == latest.initialOffset() == latest.latestOffset(latest.initialOffset())
    limited.prepareForTriggerAvailableNow()
    table.write([(4, 1, "d")])
    assert list(windows(limited, ReadMaxFiles(1)))[-1] == (second.completion, [2, 3]), "what comes later is for later"
    for name, value, named in (
        ("as.of.instant", "20200101", "a stream reads what completes after"),
        (START, "soon", "is no time"),
        (COMMITS, "0", COMMITS),
    ):
        with pytest.raises(InvalidRequest, match=named):
            reader_of(table, **{name: value})


def test_a_checkpoint_of_another_table_is_refused(tmp_path: Path) -> None:
    """Its time says nothing of this one: what was committed here before it would be passed over."""
    table, other, java = (LiveTable(tmp_path / name) for name in ("t", "other", "java"))
    for each in (java, other, table):
        each.write([(1, 1, "a")])
    properties = java.root / ".hoodie" / "hoodie.properties"
    lines = properties.read_text().splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if not line.startswith("lakelatch.table.id=")))
    start = reader_of(table).reportLatestOffset()
    other.write([(2, 1, "b")])
    for reader in (reader_of(other), reader_of(java)):
        with pytest.raises(InvalidRequest, match=OTHER_TABLE):
            reader.latestOffset(start)
        with pytest.raises(InvalidRequest, match=OTHER_TABLE):
            reader.partitions({"completion": "0" * 17}, start)
    before_4_2 = reader_of(java).latestOffset()  # it is not told where the query is, which is later here
    with pytest.raises(InvalidRequest, match=OTHER_TABLE):
        reader_of(java).partitions(start, before_4_2)
    older = {"completion": start["completion"]}
    assert reader_of(table).latestOffset(older) == older, "tables of other writers, and checkpoints of older versions"
    assert [ids for _, ids in windows(reader_of(java), ReadAllAvailable())] == [[1]]


def test_a_table_that_is_made_anew_beside_a_query_ends_it(make_table: MakeTable, tmp_path: Path) -> None:
    table = make_table()

    def follow() -> None:
        stream = table.spark.readStream.format("lakelatch").load(table.path)
        sink = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    table.write([(1, 1, "a")])
    carried_out(follow)
    shutil.rmtree(table.path)
    table.write([(2, 1, "b")])
    with pytest.raises(StreamingQueryException, match=OTHER_TABLE):
        carried_out(follow)


def test_a_history_that_is_gone_is_refused_with_the_way_out(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    completions = []
    for number in range(4):
        completions.append(table.write([(1, number, f"v{number}")]).completion)
        table.compact()
    lakelatch.clean(str(table.root), {**table.options, "hoodie.clean.commits.retained": "1"})
    far_behind = reader_of(table, **{COMMITS: "1"})
    with pytest.raises(InvalidRequest, match=r"cannot be told any more: .* removed.* new checkpoint"):
        list(windows(far_behind, far_behind.getDefaultReadLimit()))
    near = reader_of(table, **{START: completions[-2]})
    assert [ids for _, ids in windows(near, ReadAllAvailable())] == [[1]]
