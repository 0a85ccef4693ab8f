"""A table that is changed in random ways, beside an oracle."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.errors import InvalidRequest
from random_tables.oracle import Key, TableOracle, Values

OPERATION = "hoodie.datasource.write.operation"
DELETED = "_hoodie_is_deleted"
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
TWO_LOGS = {"hoodie.log.compaction.blocks.threshold": "2"}
ADDED_TYPES = (pa.int32(), pa.string(), pa.float64(), pa.bool_(), pa.struct([("x", pa.int32())]))
KEYS, PARTITIONS = 6, ("p", "q")
KINDS = {
    "upsert": 8,
    "upsert_and_delete": 2,
    "upsert_without_a_column": 1,
    "insert_new": 2,
    "delete_keys": 2,
    "delete_keys_without_order": 1,
    "delete_where": 2,
    "update": 2,
    "move": 1,
    "merge": 3,
    "overwrite": 1,
    "overwrite_where": 1,
    "overwrite_all": 1,
    "drop_partition": 1,
    "add_column": 2,
    "widen_column": 2,
    "compact": 3,
    "compact_logs": 2,
    "cluster": 2,
    "restore": 1,
}


@dataclass
class RandomTable:
    """Each `do_` changes the table and the oracle; `chance` says how.

    Keys that were `deleted_out_of_order`, by a delete without an ordering value, are others for hudi-rs: there a row
    that comes later is compared with the one that was deleted, until it is compacted.
    """

    spark: SparkSession
    path: str
    options: dict[str, str]
    oracle: TableOracle
    chance: random.Random
    deleted_out_of_order: set[Key] = field(default_factory=set)

    @classmethod
    def of(cls, spark: SparkSession, path: str, seed: int, ordered: bool, partitioned: bool) -> RandomTable:
        chance = random.Random(seed)
        options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.num.buckets": "2"}
        options["hoodie.clean.commits.retained"] = "100"  # all of the past is looked at
        options["hoodie.logfile.data.block.format"] = chance.choice(["parquet", "avro"])
        if ordered:
            options["hoodie.datasource.write.precombine.field"] = "ts"
            modes = ["NON_BLOCKING_CONCURRENCY_CONTROL", "OPTIMISTIC_CONCURRENCY_CONTROL"]
            options["hoodie.write.concurrency.mode"] = chance.choice(modes)
        if partitioned:
            options["hoodie.datasource.write.partitionpath.field"] = "part"
            options["hoodie.datasource.write.hive_style_partitioning"] = chance.choice(["true", "false"])
        columns = {"id": pa.int64(), "ts": pa.int64(), "n": pa.int32(), "v": pa.string(), "part": pa.string()}
        key = ("part", "id") if partitioned else ("id",)
        return cls(spark, path, options, TableOracle(key, ordered, columns), chance)

    @property
    def table(self) -> lakelatch.Table:
        return lakelatch.Table(self.spark, self.path, self.options)

    @property
    def partitioned(self) -> bool:
        return "part" in self.oracle.key

    def step(self, kind: str) -> None:
        getattr(self, f"do_{kind}")()

    # -- rows and frames ----------------------------------------------------------------------------------------------

    def rows(self, most: int = 4) -> list[Values]:
        """New ones, of different keys."""
        found = {}
        for _ in range(self.chance.randint(1, most)):
            number = self.chance.randrange(100)
            row: Values = {"id": self.chance.randrange(KEYS), "ts": self.chance.randint(0, 30), "n": number}
            row.update(v=f"v{number}", part=self.chance.choice(PARTITIONS))
            for name, kind in self.oracle.columns.items():
                if name not in row:
                    row[name] = _value(kind, number)
            if pa.types.is_string(self.oracle.columns["n"]):
                row["n"] = str(number)
            found[self.oracle.key_of(row)] = row
        return list(found.values())

    def arrow(self, rows: list[Values], *without: str, **more: pa.DataType) -> pa.Table:
        columns = {name: kind for name, kind in {**self.oracle.columns, **more}.items() if name not in without}
        return pa.Table.from_pylist(rows, pa.schema(list(columns.items())))

    def write(self, data: pa.Table, **more: str) -> lakelatch.CommitResult:
        """By a local frame, by one that is computed, or without Spark."""
        options = {**self.options, **{name.replace("__", "."): value for name, value in more.items()}}
        way = self.chance.randrange(3)
        if way == 0 and options.get(OPERATION, "upsert") in ("upsert", "delete"):
            table = lakelatch.ArrowTable(self.path, options)
            return table.delete(data) if options.get(OPERATION) == "delete" else table.upsert(data)
        frame = self.spark.createDataFrame(data)
        return lakelatch.write(frame if way < 2 else frame.repartition(2), self.path, options)

    # -- writes -------------------------------------------------------------------------------------------------------

    def do_upsert(self) -> None:
        rows = self.rows()
        self.oracle.put(rows)
        self.oracle.ended(self.write(self.arrow(rows)).completion)

    def do_upsert_and_delete(self) -> None:
        rows = [{**row, DELETED: self.chance.random() < 0.5} for row in self.rows()]
        for row in rows:
            self.oracle.put([{name: value for name, value in row.items() if name != DELETED}], row[DELETED])
        self.oracle.ended(self.write(self.arrow(rows, **{DELETED: pa.bool_()})).completion)

    def do_upsert_without_a_column(self) -> None:
        rows = [{**row, "v": None} for row in self.rows()]
        self.oracle.put(rows)
        more = {"hoodie__write__set__null__for__missing__columns": "true"}
        self.oracle.ended(self.write(self.arrow(rows, "v"), **more).completion)

    def do_insert_new(self) -> None:
        rows = self.rows()
        there = {self.oracle.key_of(row) for row in self.oracle.rows()}
        self.oracle.put(row for row in rows if self.oracle.key_of(row) not in there)
        self.oracle.ended(self.table.insert(self.arrow(rows), if_exists="skip").completion)

    def do_delete_keys(self) -> None:
        rows = self.rows()
        self.oracle.put(rows, deleted=True)
        self.oracle.ended(self.write(self.arrow(rows, "v"), **{OPERATION: "delete"}).completion)

    def do_delete_keys_without_order(self) -> None:
        """Under optimistic control alone: a non-blocking delete without a value of its own is refused."""
        rows = self.rows()
        keys = {self.oracle.key_of(row) for row in rows}
        self.oracle.forget(keys)
        if self.oracle.ordered:
            self.deleted_out_of_order |= keys
        optimistic = {OPERATION: "delete", "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
        names = [name for name in self.oracle.columns if name not in self.oracle.key]
        self.oracle.ended(self.write(self.arrow(rows, *names), **optimistic).completion)

    def do_delete_where(self) -> None:
        rest = self.chance.randrange(3)
        self.oracle.put([row for row in self.oracle.rows() if row["id"] % 3 == rest], deleted=True)
        self.oracle.ended(self.table.delete(f"id % 3 = {rest}").completion)

    def do_update(self) -> None:
        rest = self.chance.randrange(3)
        self.oracle.put([{**row, "v": "updated"} for row in self.oracle.rows() if row["id"] % 3 == rest])
        self.oracle.ended(self.table.update(f"id % 3 = {rest}", {"v": "'updated'"}).completion)

    def do_move(self) -> None:
        """Rows that go to another partition, or get another value of a column that is none.

        Refused where rows of these keys are there already.
        """
        moved = [row for row in self.oracle.rows() if row["part"] == "p"]
        there = {self.oracle.key_of(row) for row in self.oracle.rows()}
        if self.partitioned and any(self.oracle.key_of({**row, "part": "q"}) in there for row in moved):
            with pytest.raises(InvalidRequest, match="two rows would be the one with"):
                self.table.update("part = 'p'", {"part": "'q'"})
            return
        if self.partitioned:
            self.oracle.put(moved, deleted=True)
        self.oracle.put({**row, "part": "q"} for row in moved)
        self.oracle.ended(self.table.update("part = 'p'", {"part": "'q'"}).completion)

    def do_merge(self) -> None:
        rows = self.rows(6)
        there = {self.oracle.key_of(row): row for row in self.oracle.rows()}
        gone = [there[self.oracle.key_of(row)] for row in rows if row["id"] == 0 and self.oracle.key_of(row) in there]
        unmatched = set(there) - {self.oracle.key_of(row) for row in rows}
        gone += [there[key] for key in unmatched if there[key]["id"] == 1]
        self.oracle.put(gone, deleted=True)
        deleted = {self.oracle.key_of(row) for row in gone}
        self.oracle.put(row for row in rows if self.oracle.key_of(row) not in deleted)
        merge = self.table.merge(self.arrow(rows)).when_matched_delete("source.id = 0").when_matched_update_all()
        merge = merge.when_not_matched_insert_all().when_not_matched_by_source_delete("target.id = 1")
        self.oracle.ended(merge.execute().completion)

    def do_overwrite(self) -> None:
        rows = self.rows()
        touched = {row["part"] for row in rows}
        self.oracle.forget(key for key in self.oracle.versions if not self.partitioned or key[0] in touched)
        self.oracle.put(rows)
        self.oracle.ended(self.table.overwrite(self.arrow(rows), partitions="touched").completion)

    def do_overwrite_all(self) -> None:
        rows = self.rows()
        self.oracle.forget(self.oracle.versions)
        self.oracle.put(rows)
        self.oracle.ended(self.write(self.arrow(rows), **{OPERATION: "insert_overwrite_table"}).completion)

    def do_overwrite_where(self) -> None:
        rest = self.chance.randrange(2)
        rows = [row for row in self.rows(6) if row["id"] % 2 == rest]
        new = {self.oracle.key_of(row) for row in rows}
        old = [row for row in self.oracle.rows() if row["id"] % 2 == rest and self.oracle.key_of(row) not in new]
        self.oracle.put(old, deleted=True)
        self.oracle.put(rows)
        self.oracle.ended(self.table.overwrite(self.arrow(rows), condition=f"id % 2 = {rest}").completion)

    def do_drop_partition(self) -> None:
        partition = self.chance.choice(PARTITIONS)
        if not self.partitioned or not any(key[0] == partition for key in self.oracle.versions):
            return
        prefix = "part=" if self.options["hoodie.datasource.write.hive_style_partitioning"] == "true" else ""
        self.oracle.forget(key for key in self.oracle.versions if key[0] == partition)
        done = lakelatch.delete_partitions(self.path, prefix + partition, self.options)
        self.oracle.ended(done.completion)

    # -- columns, services, the past ----------------------------------------------------------------------------------

    def do_add_column(self) -> None:
        self.oracle.columns[f"c{len(self.oracle.columns)}"] = self.chance.choice(ADDED_TYPES)
        self._upsert_with_new_columns()

    def do_widen_column(self) -> None:
        now = self.oracle.columns["n"]
        self.oracle.columns["n"] = pa.int64() if pa.types.is_int32(now) else pa.string()
        self._upsert_with_new_columns()

    def _upsert_with_new_columns(self) -> None:
        rows = self.rows()
        self.oracle.put(rows)
        more = {"mergeSchema": "true", "lakelatch.write.numbers.to.text": "true"}
        self.oracle.ended(self.write(self.arrow(rows), **more).completion)

    def do_compact(self) -> None:
        self.table.compact(EVERY_LOG)

    def do_compact_logs(self) -> None:
        plan = lakelatch.schedule_log_compaction(self.path, TWO_LOGS)
        if plan is not None:
            lakelatch.execute_log_compaction(self.spark, self.path, plan)

    def do_cluster(self) -> None:
        self.table.cluster({"hoodie.clustering.plan.strategy.sort.columns": "v"})

    def do_restore(self) -> None:
        moment = self.oracle.moments[-1 - self.chance.randrange(min(3, len(self.oracle.moments)))]
        self.table.restore(as_of=moment.completion)
        del self.oracle.moments[self.oracle.moments.index(moment) + 1 :]
        self.oracle.columns, self.oracle.versions = dict(moment.columns), dict(moment.versions)


def _value(kind: pa.DataType, number: int) -> Any:
    if number % 5 == 0:
        return None
    if pa.types.is_struct(kind):
        return {"x": number}
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    return str(number) if pa.types.is_string(kind) else number / 2 if pa.types.is_floating(kind) else number
