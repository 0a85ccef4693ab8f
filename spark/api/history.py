"""What a table can say of itself: what has completed, and what was fixed when it was made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from lakelatch.errors import InvalidRequest
from lakelatch.spark.table import OpenedTable
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.history.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.timeline.timeline import Instant
from lakelatch.transactions.conflicts.report import Loss, recent_losses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    "completed timestamp, instant string, completion string, action string, operation string, writer string, "
    "rows_written long, rows_deleted long, files_written long, bytes_written long, file_groups_replaced long"
)
_LOSS_COLUMNS = (
    "began timestamp, instant string, writer string, winner string, winner_action string, winner_writer string, "
    "early boolean, file_groups long, rows_lost long, bytes_lost long, task_s_lost double, time_lost_s double"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class TableDetail:
    """What was fixed when a table was made."""

    uri: str
    name: str
    key: tuple[str, ...]
    ordering: str | None
    partition_by: tuple[str, ...]
    buckets: int | None
    merge_mode: str
    table_type: str
    table_version: int


def detail_of(table: OpenedTable) -> TableDetail:
    """The table's properties, by the names that `Table.create` has for them."""
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


def history_of(spark: SparkSession, table: OpenedTable, limit: int | None) -> DataFrame:
    """What has completed on the active timeline, newest first. Errors: `InvalidRequest` for a limit below 1."""
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit={limit}: it is the number of instants to show, or None for all", option="limit")
    active = WholeTimeline.load(table.storage).active
    found = sorted(active.completed, key=lambda one: one.completion or "", reverse=True)
    return spark.createDataFrame([_row(table, instant) for instant in found[:limit]], _COLUMNS)


def conflicts_of(spark: SparkSession, table: OpenedTable, limit: int | None) -> DataFrame:
    """The writes that lost lately, newest first. Errors: `InvalidRequest` for a limit below 1."""
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit={limit}: it is the number of conflicts to show, or None for all", option="limit")
    found = recent_losses(table.storage)[::-1][:limit]
    return spark.createDataFrame([_loss(one) for one in found], _LOSS_COLUMNS)


def last_commit_until(table: OpenedTable, time: str) -> str:
    """The requested time of the write that had completed last by then. Errors: `InvalidRequest` if there is none."""
    found = WholeTimeline.load(table.storage).completed(WRITE_ACTIONS, until=time)
    if not found:
        raise InvalidRequest(f"as_of={time}: nothing had been committed to {table.storage.uri} by then", option="as_of")
    return found[-1].requested


def _loss(loss: Loss) -> tuple[Any, ...]:
    began = _EPOCH + timedelta(milliseconds=to_ms(loss.instant))
    won = (loss.winner, loss.winner_action, loss.winner_writer)
    lost = (loss.rows_lost, loss.bytes_lost, loss.task_s_lost, loss.time_lost_s)
    return began, loss.instant, loss.writer, *won, loss.early, loss.file_group_count, *lost


def _row(table: OpenedTable, instant: Instant) -> tuple[Any, ...]:
    completion = instant.completion or ""
    completed = _EPOCH + timedelta(milliseconds=to_ms(completion))
    known = (completed, instant.requested, completion, instant.action)
    if instant.action not in WRITE_ACTIONS:
        return (*known, *[None] * 7)
    metadata = CommitMetadata.read(table.storage, instant.path)
    stats = metadata.stats
    return (
        *known,
        metadata.operation_type,
        metadata.extra.get(WRITER_KEY),
        sum(stat.num_writes for stat in stats),
        sum(stat.num_deletes for stat in stats),
        len(stats),
        sum(stat.total_write_bytes for stat in stats),
        len(metadata.replaced_file_groups()),
    )
