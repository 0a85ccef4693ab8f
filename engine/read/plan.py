"""Planning a read: its slices and columns, as of one snapshot of the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.read import (
    COLUMNS,
    INCREMENTAL,
    INCREMENTAL_FORMAT,
    READ_META,
    READ_OPTIMIZED,
    ReadOptions,
)
from lakelatch.engine.read.forgotten_deletes import ForgottenDeletes
from lakelatch.engine.read.pruning import Condition, CountedSelection, PlanCounts, Pruning
from lakelatch.engine.read.rows.batches import for_spark
from lakelatch.engine.read.rows.images import ImagePlan, image_schema, plan_images
from lakelatch.engine.read.rows.moments import refuse_future, without_half_shown
from lakelatch.engine.read.rows.tasks import ReadTask, shared_or_packed
from lakelatch.engine.read.where import conditions_in, mentioned
from lakelatch.engine.table.opening import look_at, table_at
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest, LakelatchError, Unavailable
from lakelatch.format.avro import COMMIT_TIME_COLUMN, META_COLUMNS, without_meta_columns
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.slice import read_slice
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.log.lost_completions import ensure_none_lost_to_readers
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.staged import StagedStorage
from lakelatch.timeline.table_config import TableConfig

_TRIES_MAX = 20


@dataclass(frozen=True)
class ReadPlan:
    """The plan of a read: slices, columns, and for an incremental read the instants whose rows are wanted.

    `completions` are for merges of tables with column groups, and empty for other tables. Rows that do not fulfil the
    `conditions`, or have other record keys than `keys`, are left out where they can be told apart here. The plan of an
    incremental read has no counts. `wider` file groups are read from files that other engines may clean meanwhile.
    `by_overlays` allows the use and the making of overlays.
    The `timeline` is not pickled.
    """

    table: OpenedTable
    slices: tuple[FileSlice, ...]
    schema: pa.Schema
    instants: tuple[str, ...] | None = None
    completions: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    keys: tuple[str, ...] | None = None
    counts: PlanCounts = field(default_factory=PlanCounts)
    wider: frozenset[FileGroup] = frozenset()
    by_overlays: bool = False
    timeline: Snapshot | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "timeline": None}

    def tasks(self) -> list[ReadTask]:
        """The tasks of the read: each has numbers of slices, or a share of a large one."""
        return shared_or_packed(self.table.storage, self.slices)

    def read_task(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """The rows that one task reads."""
        for index in task.indexes:
            yield from self.read(self.slices[index], task.share)

    def read(self, file_slice: FileSlice, share: tuple[int, int] = (0, 1)) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, on any machine.

        The `share` of a task is its number and the count of tasks, which together read all rows.
        """
        table = self.table
        more = [] if self.instants is None else [COMMIT_TIME_COLUMN]
        columns = list(dict.fromkeys([*self.schema.names, *more]))
        found = file_slice if file_slice.fresh_logs else file_slice.without_logs()
        keys = None if self.keys is None else pa.array(self.keys, pa.string())
        merged = (table.storage, found, table.full_schema, table.config, self.completions)
        for rows in self._still_there(found, read_slice(*merged, columns, self.conditions, keys, share)):
            if self.instants is not None:
                wanted = pa.array(self.instants, pa.string())
                rows = rows.filter(pc.is_in(rows[COMMIT_TIME_COLUMN], value_set=wanted))
            yield from for_spark(rows.select(self.schema.names), self.schema)

    def _still_there(self, found: FileSlice, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        try:
            yield from parts
        except NotFound as error:
            if (found.partition, found.file_id) not in self.wider:
                raise
            raise Unavailable(
                f"{self.table.storage.uri}: a clean of another engine has removed files of {found.file_id} in the "
                f"partition {found.partition!r} since this read was planned: read it again, which needs none of them"
            ) from error


def plan_read(
    path: str,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
    conditions: Iterable[Condition] = (),
    where: str = "",
    staged: StagedStorage | None = None,
) -> ReadPlan:
    """Plans a read, as of one listing of the timeline. Errors: `InvalidRequest`, `CorruptTable`.

    A transaction sees what it has `staged`, above the moment that it reads.

    Slices without rows that fulfil the conditions, and the understood parts of the SQL text `where`, may be left out;
    the planned ones may have other rows, too. Columns mentioned in `where` come after the requested ones.
    """
    read_options = Call(options).read()
    storage: Storage = staged or open_storage(path, read_options.storage)
    if staged is not None:
        read_options = replace(read_options, by_index=False)  # which knows nothing of it
    now_ms = system.realtime_ms()  # before the listing, which then has all that completed by then
    config, look = look_at(storage)
    return _confirmed(storage, config, _Asked(read_options, tuple(conditions), where), system, (now_ms, look))


def plan_query(path: str, options: Mapping[str, object] | None = None) -> ReadPlan | ImagePlan:
    """As `plan_read`, also for change reads."""
    call = Call(options)
    if not call.read().images:
        return plan_read(path, call)
    return plan_images(open_storage(path, call.read().storage), call.read())


def plan_read_of(table: OpenedTable, options: ReadOptions, system: System = REAL_SYSTEM) -> ReadPlan:
    """As `plan_read`, for an open table. The columns are those as of the moment that is read."""
    now_ms = system.realtime_ms()
    first = now_ms, Snapshot.look(table.storage)
    return _confirmed(table.storage, table.config, _Asked(options), system, first)


def read_schema(path: str, options: Mapping[str, object] | None = None) -> pa.Schema:
    """The columns of a read, without planning it. Errors: `InvalidRequest`, `CorruptTable`."""
    read_options = Call(options).read()
    if read_options.images:
        return image_schema(read_options)
    storage = open_storage(path, read_options.storage)
    config, look = look_at(storage)
    table = table_at(storage, config, look, read_options.end or read_options.as_of)
    return selected(table.full_schema, read_options)


@dataclass(frozen=True)
class _Asked:
    """The options and conditions of a read; they refer to the columns as of the moment that is read."""

    options: ReadOptions
    conditions: tuple[Condition, ...] = ()
    where: str = ""

    @property
    def lists_all(self) -> bool:
        """Whether the files of all partitions are listed, whatever the columns are."""
        return not self.conditions and not self.where and self.options.query_type != INCREMENTAL

    def of(self, table: OpenedTable) -> tuple[Pruning, ReadOptions]:
        full, options = table.full_schema, self.options
        pruning = Pruning(table, (*self.conditions, *conditions_in(self.where, full)))
        if self.where:
            names = dict.fromkeys([*selected(full, options).names, *mentioned(self.where, full)])
            options = replace(options, columns=tuple(names), meta_columns=False)
        return pruning, options


def _confirmed(
    storage: Storage, config: TableConfig, asked: _Asked, system: System, first: tuple[int, Snapshot]
) -> ReadPlan:
    """The plan of the first snapshot during which no clean overtook the read.

    The first snapshot is a single listing of the timeline, which the last request of the plan confirms. If that fails,
    the result or error is discarded, and further snapshots list the timeline until two listings agree.
    """
    moment = asked.options.end or asked.options.as_of
    now_ms, look = first
    view = replace(TableView.of_look(storage, config, look, moment), expects=asked.options.expects)
    if asked.options.verify:
        ensure_none_lost_to_readers(storage)
    for _ in range(_TRIES_MAX):
        try:
            table = _table_of(view, asked, moment)
            whole = without_half_shown(view, moment)
            pruning, found = asked.of(table if whole is view else _table_of(whole, asked, moment))
            view = whole
            plan = _with_conditions(_plan(pruning, view, found, now_ms), pruning)
        except LakelatchError as error:
            if not (view.single_listing or isinstance(error, Unavailable)) or not view.was_overtaken():
                raise
        else:
            if not view.was_overtaken():
                return replace(plan, timeline=view.timeline)
        now_ms = system.realtime_ms()
        view = view.again()
    raise Unavailable(f"{storage.uri} was cleaned during each of {_TRIES_MAX} tries to plan the read: read it again")


def _table_of(view: TableView, asked: _Asked, moment: str | None) -> OpenedTable:
    """The table as of a view. Without conditions its files are listed at the same time as its columns are read."""
    found: list[OpenedTable] = []
    view.storage.together(
        lambda: found.append(table_at(view.storage, view.config, view.timeline, moment)),
        *([view.look_ahead] if asked.lists_all else []),
    )
    return found[0]


def _plan(pruning: Pruning, view: TableView, read_options: ReadOptions, now_ms: int) -> ReadPlan:
    table = pruning.table
    if read_options.images:
        raise InvalidRequest(
            f"{INCREMENTAL_FORMAT}=cdc: what commits changed is read by lakelatch.read, Table.changes and "
            "spark.read alone, and neither by a view nor as a stream; remove the option",
            option=INCREMENTAL_FORMAT,
        )
    refuse_future(view, read_options, now_ms)
    schema = selected(table.full_schema, read_options)
    completions = view.whole.all_completion_times() if table.config.column_groups else {}
    if read_options.query_type == INCREMENTAL:
        written = view.completed_between(read_options.begin or "", read_options.end)
        groups = frozenset(group for group in view.file_groups_of(written) if pruning.holds_group(group[1]))
        partitions = sorted(found for found in {partition for partition, _ in groups} if pruning.holds(found))
        slices = [
            found
            for found in view.slices(partitions)
            if (found.partition, found.file_id) in groups and not found.is_empty
        ]
        view.ensure_there(slices)
        view.ensure_recorded(slices, read_options.begin or "")
        _check_mergeable(table, slices)
        instants = tuple(instant.requested for instant in written)
        slices, wider = ForgottenDeletes(view).remembered(slices)
        return ReadPlan(table, tuple(slices), schema, instants, completions, wider=wider)
    selection = CountedSelection(pruning)
    there = view.latest(selection, read_options.by_index and not read_options.verify)
    latest = [found for found in there if pruning.holds_group(found.file_id)]
    if read_options.query_type == READ_OPTIMIZED:  # the latest slice has a base file if any has
        slices = [found.without_logs() for found in latest if found.base_file]
    else:
        slices = [found for found in latest if not found.is_empty]
    held = slices if view.index is None else pruning.held(slices, view.index.statistics)
    counts = PlanCounts(
        partitions=len({found.partition for found in there}),
        partitions_there=selection.there,
        groups_there=len(there),
        by_buckets=len(there) - len(latest),
        by_statistics=len(slices) - len(held),
        index="" if view.index is None else view.index.moment,
    )
    _check_mergeable(table, held)
    view.ensure_there(held)
    held, wider = ForgottenDeletes(view).remembered(held)
    by_overlays = read_options.by_overlays
    return ReadPlan(
        table, tuple(held), schema, completions=completions, counts=counts, wider=wider, by_overlays=by_overlays
    )


def _with_conditions(plan: ReadPlan, pruning: Pruning) -> ReadPlan:
    keys = pruning.record_keys
    return replace(plan, conditions=pruning.conditions, keys=None if keys is None else tuple(keys.to_pylist()))


def _check_mergeable(table: OpenedTable, slices: list[FileSlice]) -> None:
    """Checks in the driver, so that the caller gets the error and not an executor."""
    if any(found.log_files for found in slices):
        table.config.check_mergeable()


def all_columns(options: Mapping[str, object] | None) -> dict[str, object]:
    """The options of a read of all columns, for a condition whose columns are unknown."""
    given = {key: value for key, value in (options or {}).items() if key.lower() not in (COLUMNS, READ_META)}
    return {**given, READ_META: True}


def selected(schema: pa.Schema, options: ReadOptions) -> pa.Schema:
    """The columns that a read asks for. Errors: `InvalidRequest`."""
    if options.columns is None:
        return schema if options.meta_columns else without_meta_columns(schema)
    missing = [name for name in options.columns if name not in schema.names]
    if missing:
        raise InvalidRequest(f"columns={','.join(missing)} are not in the table ({', '.join(schema.names)})")
    first = [name for name in META_COLUMNS if options.meta_columns and name not in options.columns]
    return pa.schema([schema.field(name) for name in (*first, *options.columns)])
