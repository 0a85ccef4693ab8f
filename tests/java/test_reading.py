"""Java Hudi and hudi-rs read tables of ours as we do: every row, meta columns included, by every kind of read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from java_hudi import PARTITIONED_COLUMNS, Rows, SharedTable, rows_of, table_of

import lakelatch
from lakelatch.format.names import COMPACTED_MARK

BASE = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
}
PARTITIONED = {**BASE, "hoodie.datasource.write.partitionpath.field": "part"}
LAYOUTS = {
    "nonpartitioned": BASE,
    "partitioned": PARTITIONED,
    "hive-style": {**PARTITIONED, "hoodie.datasource.write.hive_style_partitioning": "true"},
    "avro-blocks": {**BASE, "hoodie.logfile.data.block.format": "avro"},
    "version-8": {**PARTITIONED, "hoodie.write.table.version": "8"},
}
OPERATION = "hoodie.datasource.write.operation"
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
SHORT_LOGS = {"hoodie.log.compaction.blocks.threshold": "2"}
OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}
INCREMENTAL = {"hoodie.datasource.query.type": "incremental"}
MOMENT = datetime(2024, 3, 1, 12, 30, 15, 123456)


@dataclass
class Table(SharedTable):
    """One table of ours; `agree` compares the three readers."""

    options: Mapping[str, str] = field(default_factory=lambda: BASE)
    completions: list[str] = field(default_factory=list)

    def write(self, rows: pa.Table, **more: str) -> None:
        options = {**self.options, **{name.replace("__", "."): value for name, value in more.items()}}
        self.completions.append(lakelatch.write(self.spark.createDataFrame(rows), self.path, options).completion)

    def put(self, ids: range, ts: int, name: str, operation: str = "upsert") -> None:
        self.write(rows_of(ids, ts, name), hoodie__datasource__write__operation=operation)

    def compact(self) -> None:
        done = lakelatch.compact(self.spark, self.path, {**self.options, **EVERY_LOG})
        self.completions += [result.completion for result in done]

    def agree(self, count: int | None = None) -> Rows:
        rows = self.agreed()
        assert count is None or len(rows) == count
        return rows

    def agree_on_base_files(self) -> Rows:
        rows = self.ours(self.path, OPTIMIZED)
        assert rows == self.java.read_optimized(self.path)
        return rows


@pytest.fixture
def table(share: Callable[[type[Table]], Table]) -> Table:
    return share(Table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logs_deletes_and_compactions(table: Table, layout: str) -> None:
    table.options = LAYOUTS[layout]
    table.put(range(8), 10, "a")
    table.put(range(2, 4), 9, "older")
    table.put(range(5, 10), 11, "b")
    table.put(range(2), 20, "", "delete")
    rows = table.agree(8)
    assert [row["v"] for row in rows if row["id"] in (2, 5)] == ["a2", "b5"]
    table.compact()
    assert table.agree(8) == table.agree_on_base_files()
    table.put(range(1, 4), 15, "c")  # older than the delete of 1, which the compaction has kept
    assert sorted(row["id"] for row in table.agree(8)) == list(range(2, 10))
    table.compact()
    table.put(range(1), 30, "back")
    assert len(table.agree(9)) == len(table.agree_on_base_files()) + 1


@pytest.mark.parametrize("first", ["ours", "java's"])
def test_rows_without_a_key(table: Table, first: str) -> None:
    """Both add rows to one table, one after the other; each makes up keys of its own."""
    partitioned = {"hoodie.datasource.write.partitionpath.field": "part", "hoodie.table.type": "COPY_ON_WRITE"}
    java = {
        **partitioned,
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.metadata.enable": "false",
        "hoodie.datasource.write.operation": "insert",
        "hoodie.table.timeline.timezone": "UTC",
    }
    table.options = partitioned
    for number, writer in enumerate([first, "java's" if first == "ours" else "ours"] * 2):
        rows = rows_of(range(3), number, "a")
        table.write(rows) if writer == "ours" else table.java.write(table.path, rows, java)
        assert len({row["_hoodie_record_key"] for row in table.agree(3 * number + 3)}) == 3 * number + 3


@pytest.mark.parametrize("kind", ["int", "long", "timestamp", "date"])
def test_deletes_by_the_type_of_their_ordering(table: Table, kind: str) -> None:
    """A delete hides what is older, in logs and over a base file, and nothing that is newer."""

    def at(step: int) -> Any:
        moments = {"timestamp": MOMENT + timedelta(microseconds=step), "date": date(2024, 3, 1) + timedelta(step)}
        return moments.get(kind, step)

    def put(ids: range, step: int, name: str, **more: str) -> None:
        rows = [(key, at(step), f"{name}{key}", "p") for key in ids]
        table.write(table_of(PARTITIONED_COLUMNS.replace("ts long", f"ts {kind}"), rows), **more)

    put(range(6), 10, "a")
    put(range(3), 20, "", hoodie__datasource__write__operation="delete")
    put(range(1), 15, "older")
    put(range(1, 2), 30, "newer")
    put(range(3, 5), 5, "", hoodie__datasource__write__operation="delete")
    assert [row["v"] for row in table.agree(4)] == ["newer1", "a3", "a4", "a5"]
    table.compact()
    put(range(4, 6), 20, "", hoodie__datasource__write__operation="delete")
    put(range(4, 6), 15, "late")
    assert [row["v"] for row in table.agree(2)] == ["newer1", "a3"]


def test_logs_that_were_compacted(table: Table) -> None:
    table.put(range(6), 10, "a")
    table.compact()
    for step in range(3):
        table.put(range(step, step + 3), 11 + step, f"s{step}-")
    table.put(range(1), 30, "", "delete")
    plan = lakelatch.schedule_log_compaction(table.path, {**table.options, **SHORT_LOGS})
    assert plan is not None
    lakelatch.execute_log_compaction(table.spark, table.path, plan, table.options)
    assert [file for file in Path(table.path).iterdir() if COMPACTED_MARK in file.name]
    assert len(table.agree(5)) == 5
    table.put(range(1, 3), 40, "z")
    assert [row["v"] for row in table.agree(5)][:2] == ["z1", "z2"]


@pytest.mark.parametrize("layout", ["partitioned", "hive-style"])
def test_overwritten_and_deleted_partitions(table: Table, layout: str) -> None:
    table.options = {**LAYOUTS[layout], "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    table.put(range(8), 10, "a")
    table.compact()
    table.put(range(0, 8, 2), 11, "b")
    table.put(range(4, 8, 2), 5, "over", "insert_overwrite")
    assert {row["v"] for row in table.agree(6) if row["id"] % 2 == 0} == {"over4", "over6"}
    gone = lakelatch.delete_partitions(table.path, "part=q" if layout == "hive-style" else "q", table.options)
    table.completions.append(gone.completion)
    table.agree(2)
    table.put(range(1, 2), 1, "again")
    table.agree(3)
    table.put(range(9, 12), 1, "all", "insert_overwrite_table")
    assert table.agree(3) and not table.agree_on_base_files()


ALL_TYPES = (
    "id long, ts timestamp, b boolean, i int, f float, d double, t string, x binary, day date, n decimal, w decimal, "
    "l list, m map, s struct"
)
TYPES = {
    "n": pa.decimal128(9, 2),
    "w": pa.decimal128(38, 18),
    "l": pa.list_(pa.string()),
    "m": pa.map_(pa.string(), pa.int64()),
    "s": pa.struct([("a", pa.int32()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))]),
}


def _typed(key: int, step: int) -> tuple[Any, ...]:
    at = MOMENT + timedelta(microseconds=step)
    wide = Decimal("-12345678901234567890.123456789012345678")
    inner = {"a": -1, "day": date(1582, 10, 15), "at": datetime(1969, 12, 31, 23, 59, 59, 999999)}
    return (
        *(key, at, key % 2 == 0, -(2**31), 1.5, -0.1, f"ünï {step}", bytes([0, 255, step]), date(1969, 12, 31)),
        *(Decimal("-1234567.89"), wide, ["a", "", "é"], {"k": 2**62, "": -1}, inner),
    )


def test_every_type(table: Table) -> None:
    table.write(table_of(ALL_TYPES, [_typed(key, key) for key in range(4)], **TYPES))
    nothing = (4, MOMENT, *[None] * (len(ALL_TYPES.split(", ")) - 2))
    table.write(table_of(ALL_TYPES, [_typed(1, 9), nothing], **TYPES))
    rows = table.agree(5)
    assert rows[1]["t"] == "ünï 9" and rows[2]["w"] == Decimal("-12345678901234567890.123456789012345678")
    table.compact()
    assert table.agree(5) == table.agree_on_base_files()
    table.write(table_of(ALL_TYPES, [_typed(2, 99)], **TYPES))
    assert table.agree(5)[2]["t"] == "ünï 99"


def test_the_past(table: Table) -> None:
    """As of each completion: our instants are requested in the order of their completion here, so it is one moment."""
    table.options = PARTITIONED
    for step in range(3):
        table.put(range(step, 6), 10 + step, f"s{step}-")
    table.put(range(2), 20, "", "delete")
    table.compact()
    table.put(range(3), 30, "last")
    for completion in table.completions:
        rows = table.ours(table.path, {"as.of.instant": completion})
        assert rows and rows == table.java.read_as_of(table.path, completion), completion
