"""Streaming queries write one table beside a batch writer and a compactor; one is killed and restarted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import lakelatch
from lakelatch.errors import InvalidRequest
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]

BEGIN = "hoodie.datasource.read.begin.instanttime"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
FILES = 2


def rows_of(writer: int, file: int) -> list[tuple[int, int, str]]:
    """Both streams and the batch writer touch every key, in an order of their own."""
    return [(key, 10 * ((7 * file + 3 * key + writer) % 11) + writer, f"{writer}/{file}") for key in range(6)]


def winners(rows: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    return sorted({row[0]: row for row in sorted(rows, key=lambda row: row[1])}.values())


def fill(source: Path, writer: int) -> None:
    source.mkdir()
    for file in range(FILES):
        columns = [list(column) for column in zip(*rows_of(writer, file), strict=True)]
        rows = pa.Table.from_arrays(columns, names=["id", "ts", "v"])
        pq.write_table(rows, source / f"{file}.parquet")


def test_two_queries_a_batch_writer_and_a_compactor(make_table: MakeTable, tmp_path: Path) -> None:
    table = make_table(hoodie__write__concurrency__mode=NON_BLOCKING)
    spark, results, errors = table.spark, [], []
    table.write(rows_of(2, 0))

    def query(writer: int, fail_at: int | None = None) -> None:
        def batch(frame: DataFrame, number: int) -> None:
            result = lakelatch.write_batch(frame, number, table.path, table.options)
            results.append((writer, number, result))
            if number == fail_at:
                raise RuntimeError("killed after its commit, before Spark knew of it")

        stream = (
            spark.readStream.schema(table.columns).option("maxFilesPerTrigger", "1").parquet(f"{tmp_path}/{writer}")
        )
        options = stream.writeStream.foreachBatch(batch).option("checkpointLocation", f"{tmp_path}/checkpoint-{writer}")
        options.trigger(availableNow=True).start().awaitTermination()

    def beside() -> None:
        try:
            for file in range(1, FILES):
                table.write(rows_of(2, file))
                plan = lakelatch.schedule_log_compaction(table.path, {"hoodie.log.compaction.blocks.threshold": "2"})
                if plan:
                    lakelatch.execute_log_compaction(spark, table.path, plan)
            lakelatch.compact(spark, table.path, {"hoodie.compact.inline.max.delta.commits": "1"})
        except Exception as error:
            errors.append(error)

    for writer in (0, 1):
        fill(tmp_path / str(writer), writer)
    other = threading.Thread(target=beside)
    other.start()
    with pytest.raises(Exception, match="killed after its commit"):
        query(0, fail_at=0)
    query(1)
    query(0)
    other.join(120)
    assert not errors and not other.is_alive()
    everything = [row for writer in range(3) for file in range(FILES) for row in rows_of(writer, file)]
    assert table.read() == winners(everything)
    assert [(writer, number) for writer, number, result in results if result.repeated] == [(0, 0)]
    assert table.read({"hoodie.datasource.query.type": "incremental", BEGIN: "0"}) == winners(everything)
    found = Snapshot.load(open_storage(table.path)).completed
    assert not [one for one in found if one.action == "rollback"], "nobody was aborted"
    metadata = [CommitMetadata.from_avro((Path(table.path) / one.path).read_bytes()) for one in found]
    written = [one for one in metadata if one.operation_type == "UPSERT"]
    assert len(written) == 3 * FILES
    assert {"LOG_COMPACT", "COMPACT"} <= {one.operation_type for one in metadata}


def test_a_frame_of_no_query_needs_a_name(make_table: MakeTable) -> None:
    table = make_table()
    frame = table.frame([(1, 1, "a")])
    with pytest.raises(InvalidRequest, match=r"checkpoint\.identifier is not set"):
        lakelatch.write_batch(frame, 0, table.path, table.options)
    named = {**table.options, "hoodie.datasource.write.streaming.checkpoint.identifier": "loader"}
    first = lakelatch.write_batch(frame, 0, table.path, named)
    again = lakelatch.write(frame, table.path, {**named, "lakelatch.write.batch.number": 0})
    assert (first.repeated, again.repeated, again.instant) == (False, True, first.instant)
    with pytest.raises(Exception, match="cannot tell a repeated batch"):
        frame.write.format("lakelatch").options(**named, **{"lakelatch.write.batch.number": "1"}).mode("append").save(
            table.path
        )
