"""Tables that are clustered, with few words; no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from live_table import LiveTable, Row

from lakelatch.engine.run.result import CommitResult
from lakelatch.format.slices.table_view import TableView

ROWS: list[Row] = [(key, 10, f"v{key * 7 % 10}") for key in range(40)]
WHOLE = {"lakelatch.service.cancel.in.part": "false"}


def made(root: Path, mode: str = "NON_BLOCKING_CONCURRENCY_CONTROL", **more: Any) -> LiveTable:
    table = LiveTable(root / "t", mode, **more)
    table.write(ROWS)
    return table


def done(found: CommitResult | None) -> CommitResult:
    assert found is not None
    return found


def planned(table: LiveTable, columns: str = "v", **options: object) -> str:
    plan = table.plan_clustering(columns, options)
    assert plan is not None
    return plan


def live(table: LiveTable) -> dict[int, str]:
    """The live file group of each bucket."""
    slices = TableView.load(table.storage, table.opened.config).slices()
    return {int(one.file_id[:8]): one.file_id for one in slices}


def bucket_of(table: LiveTable, key: int) -> int:
    """The bucket of a key; the only one that gets another file if it is written."""
    before = set(table.storage.list("p").files)
    writing = table.begin().put("p", [(key, 0, "")])
    (name,) = set(table.storage.list("p").files) - before
    writing.transaction.abort()
    return int(name[1:9])
