"""A table with two column groups and one column outside of them, as several writers fill it at once; no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from live_table import batches_by_hudi_rs, window
from table import BuiltTable

from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.run.result import CommitResult
from lakelatch.storage import LocalStorage
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING

GROUPS = "dt: d, e; at: a"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("dt", pa.int64()),
        ("d", pa.string()),
        ("e", pa.int64()),
        ("at", pa.int64()),
        ("a", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
    ]
)
D, A, V = ("dt", "d", "e"), ("at", "a"), ("ts", "v")
Values = Mapping[str, Any]


class GroupedTable(BuiltTable):
    """Keyed by `id`; `schema` and `groups` say which columns go together."""

    def __init__(
        self,
        root: Path,
        schema: pa.Schema = SCHEMA,
        groups: str = GROUPS,
        ordering: str | None = "ts",
        mode: str = NON_BLOCKING,
        block_format: str = "parquet",
    ) -> None:
        options: dict[str, object] = {
            "hoodie.bucket.index.num.buckets": 1,
            MODE_OPTION: mode,
            "hoodie.logfile.data.block.format": block_format,
            "lakelatch.table.column.groups": groups,
        }
        if ordering:
            options["hoodie.datasource.write.precombine.field"] = ordering
        super().__init__(LocalStorage(str(root)), schema, options)

    def frame(self, columns: Sequence[str], rows: Sequence[Values]) -> pa.Table:
        """Rows with these columns and the key."""
        names = [name for name in self.schema.names if name in ("id", *columns)]
        return pa.Table.from_pylist(list(rows), schema=pa.schema([self.schema.field(name) for name in names]))

    def write(self, columns: Sequence[str], *rows: Values) -> CommitResult:
        return self.begin().put_table(self.frame(columns, rows)).commit()

    def delete(self, columns: Sequence[str], *rows: Values) -> CommitResult:
        return self.begin("delete").put_table(self.frame(columns, rows)).commit()

    def read(self, options: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Rows without what is null in them, sorted by key."""
        plan = plan_read(str(self.root), options)
        rows = [row for found in plan.slices for batch in plan.read(found) for row in batch.to_pylist()]
        return plain(rows)

    def since(self, begin: str, end: str | None = None) -> list[dict[str, Any]]:
        return self.read(window(begin, end))

    def by_hudi_rs(self, optimized: bool = False) -> list[dict[str, Any]]:
        return plain([row for batch in batches_by_hudi_rs(self.root, optimized=optimized) for row in batch.to_pylist()])


def plain(rows: Sequence[Values]) -> list[dict[str, Any]]:
    """Rows by key, without meta columns and nulls."""
    kept = [
        {name: value for name, value in row.items() if value is not None and not name.startswith("_hoodie")}
        for row in rows
    ]
    return sorted(kept, key=lambda row: row["id"])
