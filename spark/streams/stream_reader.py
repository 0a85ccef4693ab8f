"""`spark.readStream.format("lakelatch")`: a query follows the table by completion times.

An offset is a completion time, and a micro-batch is the incremental read of the window between two of them. So a batch
that Spark repeats has the rows that it had, and no commit is in two windows or in none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.read import (
    BEGIN_INSTANT,
    COLUMNS,
    EARLIEST,
    END_INSTANT,
    INCREMENTAL,
    LATEST,
    MAX_COMMITS,
    MAX_FILES,
    QUERY_TYPE,
    READ_META,
    START_OFFSET,
    UNLIMITED,
)
from lakelatch.engine.read.plan import ReadPlan, all_columns, plan_read, read_schema
from lakelatch.engine.read.rows.moments import without_half_shown
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import InvalidRequest
from lakelatch.format.slices.table_view import TableView
from lakelatch.spark.read.wanted import Wanted
from lakelatch.spark.session.shown_errors import shown_plainly
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.actions import SERVICE_OPERATIONS
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.table_config import TableConfig

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    class SupportsTriggerAvailableNow: ...
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before 4.2, which asks no reader for it

        class SupportsTriggerAvailableNow: ...


_COMPLETION, _TABLE = "completion", "table"  # in an offset; that of a table without an id has no `table`
_BEGINNING = "0" * 17


@dataclass
class WindowPartition(InputPartition):
    """One file slice of one window, with all that is needed to read it; `older` columns held less then."""

    plan: ReadPlan
    older: frozenset[str]


class LakelatchStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads windows of commits. Lives as long as the query; copies of it read on the executors."""

    def __init__(self, path: str, options: Mapping[str, object], schema: StructType) -> None:
        call = Call(options)
        self._stream = call.stream()
        own = (START_OFFSET, MAX_COMMITS, MAX_FILES)
        given = {key: value for key, value in call.items() if key not in own}
        self._wanted = Wanted.of(schema, read_schema(path, all_columns(given)))
        self._path, self._options = path, {**given, COLUMNS: ",".join(self._wanted.names), READ_META: "false"}
        self._storage = open_storage(path, call.read().storage)
        self._target: str | None = None  # where a query ends that was started to read what is there

    @shown_plainly
    def initialOffset(self) -> dict[str, str]:
        if self._stream.start == LATEST:
            return self._latest()
        return {_COMPLETION: _BEGINNING if self._stream.start == EARLIEST else self._stream.start}

    @shown_plainly
    def latestOffset(self, start: dict[str, str] | None = None, limit: Any = None) -> dict[str, str]:
        """Spark before 4.2 says neither where the batch begins nor what limits it, so its batches have no limit."""
        if start is None:
            return self._latest()
        begin = start[_COMPLETION]
        view, found = self._completed(begin)
        self._ensure_same_table(start, view.config)
        # Those of services would only make batches without rows.
        found = [one for one in found if view.metadata(one).operation_type not in SERVICE_OPERATIONS]
        if self._target is not None:
            found = [one for one in found if (one.completion or "") <= self._target]
        if type(limit).__name__ != "ReadAllAvailable":
            found = self._first(view, found)
        return _offset(found[-1].completion or begin, view) if found else start

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        return ReadMaxFiles(self._stream.max_files) if self._stream.limited else ReadAllAvailable()

    @shown_plainly
    def reportLatestOffset(self) -> dict[str, str]:
        return self._latest()

    @shown_plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()[_COMPLETION]

    @shown_plainly
    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        if _TABLE in start or _TABLE in end:
            config = open_table(self._storage).config
            self._ensure_same_table(start, config)  # Spark before 4.2 has shown it to nobody until now
            self._ensure_same_table(end, config)
        if start[_COMPLETION] >= end[_COMPLETION]:
            return []
        window = {QUERY_TYPE: INCREMENTAL, BEGIN_INSTANT: start[_COMPLETION], END_INSTANT: end[_COMPLETION]}
        then = read_schema(self._path, {**all_columns(self._options), **window})
        names, older = self._wanted.at(then)
        try:
            plan = plan_read(self._path, {**self._options, **window, COLUMNS: ",".join(names or then.names[:1])})
        except InvalidRequest as error:
            raise InvalidRequest(
                f"what was written after {start[_COMPLETION]} and until {end[_COMPLETION]} cannot be told any more: "
                f"{error.message}. A query that has fallen so far behind begins anew, with a new checkpoint and "
                f"{START_OFFSET}={LATEST} or a later time, together with a batch read of the table as it is",
                option=START_OFFSET,
            ) from error
        return [WindowPartition(replace(plan, slices=(found,)), older) for found in plan.slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, WindowPartition):
            plan = partition.plan
            for found in plan.slices:
                yield from (self._wanted.batch(batch, partition.older) for batch in plan.read(found))

    def _latest(self) -> dict[str, str]:
        view, found = self._completed(_BEGINNING)
        return _offset(found[-1].completion or _BEGINNING, view) if found else {_COMPLETION: _BEGINNING}

    def _ensure_same_table(self, offset: Mapping[str, str], config: TableConfig) -> None:
        """A time says nothing of another table: what was committed there before it would be passed over."""
        if offset.get(_TABLE, config.table_id) != config.table_id:
            raise InvalidRequest(
                f"the query's checkpoint is of another table than the one at {self._storage.uri}, or of one that was "
                "there before and was dropped. Start the query with a new checkpointLocation to read this table"
            )

    def _completed(self, begin: str) -> tuple[TableView, list[Instant]]:
        """The instants completed since, in order. Two listings agree on them, so nothing older appears later."""
        view = without_half_shown(TableView.load(self._storage, open_table(self._storage).config))
        return view, view.completed_between(begin, None)

    def _first(self, view: TableView, found: list[Instant]) -> list[Instant]:
        """As many as the options allow, and one at least."""
        found = found[: self._stream.max_commits]
        if self._stream.max_files == UNLIMITED:
            return found
        files = 0
        for index, instant in enumerate(found):
            files += len(view.metadata(instant).stats)
            if files > self._stream.max_files and index:
                return found[:index]
        return found


def _offset(completion: str, view: TableView) -> dict[str, str]:
    return {_COMPLETION: completion, **({_TABLE: view.config.table_id} if view.config.table_id else {})}
