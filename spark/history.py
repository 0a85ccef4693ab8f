"""A table's history and conflicts, as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelatch.engine.table.history import conflict_rows, history_rows
from lakelatch.engine.table.table import OpenedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_COLUMNS = (
    "completed timestamp, instant string, completion string, action string, operation string, writer string, "
    "rows_written long, rows_deleted long, files_written long, bytes_written long, file_groups_replaced long, "
    "undone array<string>, undone_by string"
)


_LOSS_COLUMNS = (
    "began timestamp, instant string, writer string, winner string, winner_action string, winner_writer string, "
    "early boolean, file_groups long, rows_lost long, bytes_lost long, task_s_lost double, time_lost_s double"
)


def history_of(spark: SparkSession, table: OpenedTable, limit: int | None) -> DataFrame:
    """See `history_rows`."""
    return spark.createDataFrame(history_rows(table, limit), _COLUMNS)


def conflicts_of(spark: SparkSession, table: OpenedTable, limit: int | None) -> DataFrame:
    """See `conflict_rows`."""
    return spark.createDataFrame(conflict_rows(table, limit), _LOSS_COLUMNS)
