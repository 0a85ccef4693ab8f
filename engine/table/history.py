"""A table's history and properties, as users see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from lakelatch.engine.run.listing import Listing
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.format.avro import shown_type
from lakelatch.notebook import Shown, html_of
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import CLEAN, RESTORE, ROLLBACK, WRITE_ACTIONS
from lakelatch.timeline.instant import REQUESTED, Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_completed
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, read_service_plan
from lakelatch.timeline.service_metadata import read_undone
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.staged import StagedStorage
from lakelatch.transactions.conflicts.report import Loss, recent_losses

_COLUMNS_SHOWN = 100
_MOMENT = pa.timestamp("us", "UTC")
_HISTORY = pa.schema(
    [
        ("completed", _MOMENT),
        *((name, pa.string()) for name in ("instant", "completion", "action", "operation", "writer")),
        *((name, pa.int64()) for name in ("rows_written", "rows_deleted", "files_written", "bytes_written")),
        ("file_groups_replaced", pa.int64()),
        ("undone", pa.list_(pa.string())),
        ("undone_by", pa.string()),
    ]
)
_LOSSES = pa.schema(
    [
        ("began", _MOMENT),
        *((name, pa.string()) for name in ("instant", "writer", "winner", "winner_action", "winner_writer")),
        ("early", pa.bool_()),
        *((name, pa.int64()) for name in ("file_groups", "rows_lost", "bytes_lost")),
        *((name, pa.float64()) for name in ("task_s_lost", "time_lost_s")),
    ]
)
_PLANS = pa.schema(
    [
        ("planned", _MOMENT),
        *((name, pa.string()) for name in ("instant", "service")),
        ("file_groups", pa.int64()),
        *((name, pa.bool_()) for name in ("begun", "cancellable")),
    ]
)
_PLANNED = (*REWRITING_SERVICES, CLEAN)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class TableDetail(Shown):
    """The properties that were fixed when a table was made."""

    uri: str
    name: str
    key: tuple[str, ...]
    ordering: str | None
    partition_by: tuple[str, ...]
    buckets: int | None
    merge_mode: str
    table_type: str
    table_version: int

    def _lines(self) -> dict[str, str]:
        found = {
            "table": self.name,
            "lies at": without_secrets(self.uri),
            "key": ", ".join(self.key),
            "ordering": self.ordering or "none: the last commit wins",
            "partitions by": ", ".join(self.partition_by),
            "buckets": "" if self.buckets is None else f"{self.buckets:,}",
            "type": f"{self.table_type}, version {self.table_version}",
        }
        return {name: text for name, text in found.items() if text}


def shown_table(path: str, open_it: Callable[[], OpenedTable]) -> str:
    """A table's fixed properties and columns as HTML for notebooks. Reads no data; raises nothing.

    Options are not shown: they may hold secrets.
    """
    try:
        table = open_it()
    except LakelatchError as error:
        return html_of({"path": without_secrets(path), "is not open": error.message})
    columns = [f"{field.name} {shown_type(field.type)}" for field in table.schema]
    more = [f"and {len(columns) - _COLUMNS_SHOWN:,} more"] if len(columns) > _COLUMNS_SHOWN else []
    return html_of({**detail_of(table)._lines(), "columns": ", ".join([*columns[:_COLUMNS_SHOWN], *more])})


def detail_of(table: OpenedTable) -> TableDetail:
    """The table's properties, under their names in `Table.create`."""
    config = table.config
    return TableDetail(
        uri=table.storage.uri,
        name=config.name,
        key=config.record_key_fields,
        ordering=config.ordering_field,
        partition_by=config.partition_fields,
        buckets=config.bucket_count,
        merge_mode=config.merge_mode,
        table_type=config.table_type,
        table_version=config.version,
    )


def history_rows(table: OpenedTable, limit: int | None) -> list[tuple[Any, ...]]:
    """The completed instants of the active timeline, newest first, and after each restore the instants that it undid.

    Only the requested times and actions of the latter are left, and `undone_by` names the restore. Errors:
    `InvalidRequest` for a limit below 1.
    """
    _ensure_nothing_staged(table)
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit={limit}: it is the number of instants to show, or None for all", option="limit")
    completed = WholeTimeline.load(table.storage).active.completed
    rows: list[tuple[Any, ...]] = []
    for instant in sorted(completed, key=lambda one: one.completion or "", reverse=True)[:limit]:
        rows += _rows(table, instant)
    return rows[:limit]


def history_listing(table: OpenedTable, limit: int | None) -> Listing:
    """The rows of `history_rows`, with names."""
    return _named(history_rows(table, limit), _HISTORY)


def conflict_listing(table: OpenedTable, limit: int | None) -> Listing:
    """The rows of `conflict_rows`, with names."""
    return _named(conflict_rows(table, limit), _LOSSES)


def plan_listing(storage: Storage) -> Listing:
    """The plans of table services that have not ended, ours or Java's, oldest first."""
    pending = {one.requested: one for one in Snapshot.look(storage).pending if one.action in _PLANNED}
    rows = (_plan(storage, pending[instant]) for instant in sorted(pending))
    return _named([row for row in rows if row is not None], _PLANS)


def _plan(storage: Storage, pending: Instant) -> tuple[Any, ...] | None:
    """A plan's row, or None if it has ended since it was listed."""
    planned = _EPOCH + timedelta(milliseconds=to_ms(pending.requested))
    begun = pending.state != REQUESTED
    if pending.action == CLEAN:
        return planned, pending.requested, CLEAN, None, begun, False
    try:
        plan = read_service_plan(storage, pending.requested, pending.action)
    except NotFound:
        return None
    return planned, pending.requested, pending.action, len(plan.groups), begun, plan.policy.cancellable


def _named(rows: list[tuple[Any, ...]], schema: pa.Schema) -> Listing:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return Listing(pa.table(arrays, schema=schema))


def last_commit_until(table: OpenedTable, time: str) -> str:
    """The requested time of the last write completed until a time. Errors: `InvalidRequest` if there is none."""
    found = WholeTimeline.load(table.storage).completed(WRITE_ACTIONS, until=time)
    if not found:
        raise InvalidRequest(f"as_of={time}: nothing had been committed to {table.storage.uri} by then", option="as_of")
    return found[-1].requested


def _ensure_nothing_staged(table: OpenedTable) -> None:
    """Errors: `InvalidRequest` where a transaction over several tables has changes of this one, which have no time."""
    if isinstance(table.storage, StagedStorage) and table.storage.commits:
        raise InvalidRequest(
            f"{without_secrets(table.storage.uri)} has changes in a transaction over several tables that is open: "
            "read its history after the block, or with a handle of its own (lakelatch.open)",
            option="table",
        )


def conflict_rows(table: OpenedTable, limit: int | None) -> list[tuple[Any, ...]]:
    """The writes that lost a conflict recently, newest first. Errors: `InvalidRequest` for a limit below 1."""
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit={limit}: it is the number of conflicts to show, or None for all", option="limit")
    return [_loss(one) for one in recent_losses(table.storage)[::-1][:limit]]


def _loss(loss: Loss) -> tuple[Any, ...]:
    began = _EPOCH + timedelta(milliseconds=to_ms(loss.instant))
    won = (loss.winner, loss.winner_action, loss.winner_writer)
    lost = (loss.rows_lost, loss.bytes_lost, loss.task_s_lost, loss.time_lost_s)
    return began, loss.instant, loss.writer, *won, loss.early, loss.file_group_count, *lost


def _rows(table: OpenedTable, instant: Instant) -> list[tuple[Any, ...]]:
    completion = instant.completion or ""
    completed = _EPOCH + timedelta(milliseconds=to_ms(completion))
    known = (completed, instant.requested, completion, instant.action)
    if instant.action in (ROLLBACK, RESTORE):
        undone = read_undone(read_completed(table.storage, instant), instant.path)
        own = (*known, *[None] * 7, [time for time, _ in undone], None)
        gone = undone if instant.action == RESTORE else ()
        return [own, *((None, time, None, action, *[None] * 8, instant.requested) for time, action in gone)]
    if instant.action not in WRITE_ACTIONS:
        return [(*known, *[None] * 9)]
    metadata = CommitMetadata.read(table.storage, instant.path)
    stats = metadata.stats
    row = (
        *known,
        metadata.called,
        metadata.extra.get(WRITER_KEY),
        sum(stat.num_writes for stat in stats),
        sum(stat.num_deletes for stat in stats),
        len(stats),
        sum(stat.total_write_bytes for stat in stats),
        len(metadata.replaced_file_groups()),
    )
    return [(*row, None, None)]
