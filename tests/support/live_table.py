"""A table that writers, overwrites and compactions work on at once; no Spark, and real rows for both readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
from table import BuiltTable, dotted

from lakelatch.engine.read.plan import ReadPlan, plan_read
from lakelatch.engine.run.result import CommitResult
from lakelatch.storage import LocalStorage
from lakelatch.timeline.actions import DELETE
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string()), ("part", pa.string())])
NAMES = ("id", "ts", "v")
Row = tuple[int, int, str]  # id, ts, v; the partition is a matter of the test
TableRows = list[tuple[Any, ...]]


def window(begin: str, end: str | None = None) -> dict[str, object]:
    """The options of an incremental read."""
    return {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": begin,
        **({"hoodie.datasource.read.end.instanttime": end} if end else {}),
    }


class LiveTable(BuiltTable):
    """Keyed by `id`, ordered by `ts`, partitioned by `part` unless told otherwise."""

    def __init__(
        self, root: Path, mode: str = NON_BLOCKING, partitioned: bool = True, buckets: int = 2, **more: str
    ) -> None:
        options: dict[str, object] = {
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.bucket.index.num.buckets": buckets,
            MODE_OPTION: mode,
        }
        if partitioned:
            options["hoodie.datasource.write.partitionpath.field"] = "part"
        super().__init__(LocalStorage(str(root)), SCHEMA, {**options, **dotted(more)})

    def write(self, rows: Sequence[Row], partition: str = "p", operation: str = "upsert") -> CommitResult:
        writing = self.begin(operation)
        if rows:
            writing.put(partition, rows)
        return writing.commit()

    def delete(self, rows: Sequence[Row], partition: str = "p") -> CommitResult:
        return self.write(rows, partition, DELETE)

    def read(self, options: Mapping[str, object] | None = None, meta: bool = False) -> TableRows:
        """Rows as this project reads them: (partition, id, ts, v), sorted."""
        return rows_of(plan_read(str(self.root), {"lakelatch.read.meta.columns": True, **(options or {})}), meta)

    def as_of(self, time: str) -> TableRows:
        return self.read({"as.of.instant": time})

    def since(self, begin: str, end: str | None = None) -> TableRows:
        return self.read(window(begin, end))

    def optimized(self) -> TableRows:
        return self.read({"hoodie.datasource.query.type": "read_optimized"})

    def by_hudi_rs(
        self, options: hudi.HudiReadOptions | None = None, meta: bool = False, optimized: bool = False
    ) -> TableRows:
        """Rows as hudi-rs reads them."""
        return _plain(batches_by_hudi_rs(self.root, options, optimized), meta)

    def agreed(self) -> TableRows:
        """The rows, after making sure that both readers see the same, meta columns included."""
        ours = self.read(meta=True)
        assert ours == self.by_hudi_rs(meta=True)
        return self.read()


def rows_since(begin: str, end: str | None = None) -> hudi.HudiReadOptions:
    """What asks hudi-rs for an incremental read."""
    options = hudi.HudiReadOptions().with_query_type(hudi.HudiQueryType.Incremental).with_start_timestamp(begin)
    return options.with_end_timestamp(end) if end else options


def rows_of(plan: ReadPlan, meta: bool = False) -> TableRows:
    """The rows of a read that was planned, as `LiveTable.read` has them."""
    return _plain([batch for file_slice in plan.slices for batch in plan.read(file_slice)], meta)


def below_logs(folder: Path) -> LiveTable:
    """One with a base file of eight rows; the logs have newer, older and new rows, and a delete."""
    table = LiveTable(folder, buckets=1)
    table.write([(key, 5, "old") for key in range(8)])
    table.compact()
    table.write([(1, 6, "new"), (2, 4, "late"), (9, 1, "more")])
    table.delete([(3, 9, "")])
    return table


def _plain(batches: Sequence[pa.RecordBatch], meta: bool) -> TableRows:
    rows = [row for batch in batches for row in batch.to_pylist()]
    if meta:
        return sorted(tuple(row.items()) for row in rows)
    return sorted((row["part"], *(row[name] for name in NAMES)) for row in rows)


def batches_by_hudi_rs(
    root: Path, options: hudi.HudiReadOptions | None = None, optimized: bool = False
) -> list[pa.RecordBatch]:
    """What hudi-rs reads."""
    builder = hudi.HudiTableBuilder.from_base_uri(str(root))
    if optimized:
        builder = builder.with_option("hoodie.read.use.read_optimized.mode", "true")
    return [pa.record_batch(batch) for batch in builder.build().read(options or hudi.HudiReadOptions())]
