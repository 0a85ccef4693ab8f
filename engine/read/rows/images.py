"""Change reads: a row for each key and commit, with its images before and after, in Hudi's format.

No change log is needed: the images come from the file slices before and after each commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa

from lakelatch.engine.options.read import BEGIN_INSTANT, COLUMNS, INCREMENTAL_FORMAT, ReadOptions
from lakelatch.engine.read.rows.batches import for_spark
from lakelatch.engine.read.rows.json_images import json_texts
from lakelatch.engine.read.rows.moments import refuse_future, without_half_shown
from lakelatch.engine.read.rows.tasks import ReadTask
from lakelatch.engine.table.opening import open_table, table_at
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.format.merge.group_changes import GroupChange, Images, changes_between, images_of
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import RESTORE, SERVICE_OPERATIONS
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.lost_completions import ensure_none_lost_to_readers
from lakelatch.timeline.service_metadata import read_rolled_back
from lakelatch.timeline.table_config import CDC_ENABLED

OPERATION, INSTANT, BEFORE, AFTER = "op", "ts_ms", "before", "after"
_HUDI_SCHEMA = pa.schema([(name, pa.string()) for name in (OPERATION, INSTANT, BEFORE, AFTER)])
_TRIES_MAX = 20


@dataclass(frozen=True)
class ImagePlan:
    """The plan of a change read: what each commit did to each bucket. `table` has the columns of the images.

    Images are JSON texts, as in Hudi, or structs if the `schema` says so.
    """

    table: OpenedTable
    slices: tuple[GroupChange, ...]
    schema: pa.Schema = _HUDI_SCHEMA
    completions: Mapping[str, str] = field(default_factory=dict)

    def tasks(self) -> list[ReadTask]:
        """One task for each change."""
        return [ReadTask((index,)) for index in range(len(self.slices))]

    def read_task(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """The rows of a task's changes."""
        for index in task.indexes:
            yield from self.read(self.slices[index])

    def read(self, change: GroupChange) -> Iterator[pa.RecordBatch]:
        """The rows of one change, on any machine."""
        table = self.table
        names = table.schema.names
        for images in images_of(change, table.storage, table.full_schema, table.config, self.completions, names):
            if images.row_count:
                yield from for_spark(self._rows(change, images), self.schema)

    def with_structs(self) -> ImagePlan:
        """The same with images as structs of the table's types."""
        image = pa.struct(list(self.table.schema))
        texts = [(OPERATION, pa.string()), (INSTANT, pa.string())]
        return replace(self, schema=pa.schema([*texts, (BEFORE, image), (AFTER, image)]))

    def _rows(self, change: GroupChange, images: Images) -> pa.Table:
        count = images.row_count
        makers: dict[str, Callable[[], pa.Array | pa.ChunkedArray]] = {
            OPERATION: lambda: pa.repeat(images.operation, count),
            INSTANT: lambda: pa.repeat(change.instant, count),
            BEFORE: lambda: self._image(BEFORE, images.before, count),
            AFTER: lambda: self._image(AFTER, images.after, count),
        }
        return pa.table({name: makers[name]() for name in self.schema.names})

    def _image(self, name: str, rows: pa.Table | None, count: int) -> pa.Array | pa.ChunkedArray:
        kind = self.schema.field(name).type
        if rows is None:
            return pa.nulls(count, kind)
        if pa.types.is_struct(kind):
            return rows.to_struct_array()
        batches = for_spark(rows, self.table.schema)
        return pa.array([text for batch in batches for text in json_texts(batch)], kind)


def image_schema(options: ReadOptions) -> pa.Schema:
    """The columns of a change read, which do not depend on the table's. Errors: `InvalidRequest`."""
    if options.columns is None:
        return _HUDI_SCHEMA
    missing = [name for name in options.columns if name not in _HUDI_SCHEMA.names]
    if missing:
        raise InvalidRequest(
            f"{COLUMNS}={','.join(missing)}: a read with {INCREMENTAL_FORMAT}=cdc has {', '.join(_HUDI_SCHEMA.names)}, "
            "and the table's columns are in the images: name some of these, or leave the option out",
            option=COLUMNS,
        )
    return pa.schema([_HUDI_SCHEMA.field(name) for name in options.columns])


def plan_images(
    storage: Storage, options: ReadOptions, system: System = REAL_SYSTEM, of_any_table: bool = False
) -> ImagePlan:
    """Plans a change read: what each commit of its window did.

    Errors: `InvalidRequest`, also for a table without change data capture unless `of_any_table`, and for a window that
    needs files which a clean has removed.
    """
    config = open_table(storage).config
    schema = image_schema(options)
    if not config.cdc_enabled and not of_any_table:
        raise InvalidRequest(
            f"{INCREMENTAL_FORMAT}=cdc is for tables that were made with {CDC_ENABLED}=true, as in Hudi, and "
            f"{config.name!r} was not: use Table.changes(..., images=True), which works for every table",
            option=INCREMENTAL_FORMAT,
        )
    if options.verify:
        ensure_none_lost_to_readers(storage)
    for _ in range(_TRIES_MAX):
        now_ms = system.realtime_ms()  # before the listing, which then has all that completed by then
        view = replace(TableView.load(storage, config, options.begin), expects=options.expects)
        view = without_half_shown(view, options.end)
        plan = _plan(view, options, now_ms)
        if not view.was_overtaken():
            return replace(plan, schema=schema)
    raise Unavailable(f"{storage.uri} was cleaned during each of {_TRIES_MAX} tries to plan the read: read it again")


def _plan(view: TableView, options: ReadOptions, now_ms: int) -> ImagePlan:
    refuse_future(view, options, now_ms)
    begin = options.begin or ""
    _refuse_restored(view, begin, options.end)
    table = table_at(view.storage, view.config, view.timeline, options.end)
    changes = tuple(_changes(view, view.completed_between(begin, options.end), begin))
    slices = [found for change in changes for found in change.slices]
    view.ensure_recorded(slices, begin)
    if any(found.log_files for found in slices):
        table.config.check_mergeable()
    completions = view.whole.all_completion_times() if table.config.column_groups else {}
    return ImagePlan(table, changes, completions=completions)


def _refuse_restored(view: TableView, begin: str, end: str | None) -> None:
    """`InvalidRequest` if a restore within the window removed commits from before it: their rows are gone."""
    for restore in view.whole.completed((RESTORE,), begin, end):
        undone = read_rolled_back(view.whole.content(restore), restore.path)
        if any(instant <= begin for instant in undone):
            raise InvalidRequest(
                f"the restore {restore.requested} removed commits from before {begin}, and what it changed cannot be "
                f"said without their rows: read the table as of {restore.completion}, and changes after that",
                option=BEGIN_INSTANT,
                restore=restore.requested,
            )


def _changes(view: TableView, written: Sequence[Instant], begin: str) -> Iterator[GroupChange]:
    """The changes of these commits, in order of completion; services change no rows."""
    moments = [(time, list(found)) for time, found in groupby(written, lambda instant: instant.completion or "")]
    inside = [_partitions(view, instants) for _, instants in moments]
    times = [begin, *(time for time, _ in moments)]
    slices = view.slices_at(times, sorted(frozenset().union(*inside)))
    for number, (time, instants) in enumerate(moments):
        old, new = (
            [found for found in slices[moment] if found.partition in inside[number]] for moment in (times[number], time)
        )
        changes = list(changes_between(instants[-1].requested, time, old, new, view.config.bucket_count is not None))
        replace(view, as_of=times[number]).ensure_there(one.before for one in changes if one.before is not None)
        replace(view, as_of=time).ensure_there(one.after for one in changes if one.after is not None)
        yield from changes


def _partitions(view: TableView, instants: Sequence[Instant]) -> frozenset[str]:
    """The partitions whose rows these commits may have changed."""
    found = view.whole.metadata_of(instants)
    groups = [
        one.file_groups() | one.replaced_file_groups() for one in found if one.operation_type not in SERVICE_OPERATIONS
    ]
    return frozenset(partition for of_one in groups for partition, _ in of_one)
