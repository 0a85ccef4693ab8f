"""Making a file index, after a commit or by maintenance: one object, and two older ones stay."""

from __future__ import annotations

from functools import partial
from itertools import islice

from lakelatch.format.file_slices import FileSlice
from lakelatch.format.index.file_index import INDEX_FOLDER, FileIndex, index_moment, index_path, writes_until
from lakelatch.format.index.statistics import Statistics, ranges_of
from lakelatch.format.names import parse_data_file
from lakelatch.format.slices.partitions import FEW_FOLDERS
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.log.half_shown import half_shown_now
from lakelatch.timeline.recorded_options import SIDE_BY_SIDE_LOG_VERSION
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig

_KEPT = 3  # the newest, and those that readers may have found a moment ago
#: So many footers are read for an index; the next one goes on.
_FOOTERS_MAX = 1000


def index_of(view: TableView, slices: tuple[FileSlice, ...]) -> FileIndex | None:
    """The index of a view with these latest slices; None if the completion time of one of their files is unknown.

    Such files count only by being older than the timeline, which is no fixed moment. Footers are read for statistics.
    """
    files: dict[str, tuple[str, ...]] = {}
    for found in slices:
        files[found.partition] = (*files.get(found.partition, ()), *found.names)
    parsed = (parse_data_file(name) for found in slices for name in found.names)
    instants = {file.instant for file in parsed if file is not None}
    if view.whole.unrecorded(instants):
        return None
    moment = view.whole.latest
    completions = view.whole.completion_times(instants)
    return FileIndex(moment, writes_until(view.timeline, moment), completions, files, _statistics_of(view, slices))


def _statistics_of(view: TableView, slices: tuple[FileSlice, ...]) -> Statistics:
    """The statistics of the index by which the view found its slices, and of some more base files.

    Only slices without logs have them, as logs change the rows of a base file.
    """
    before = {} if view.index is None else view.index.statistics.by_file()
    bases = {(found.partition, found.base_file): found for found in slices if found.base_file}
    known = {key: before[key] for key in bases if key in before}
    wanted = {key: found for key, found in bases.items() if key not in known and not found.fresh_logs}
    asked = list(islice(wanted.items(), _FOOTERS_MAX))
    read = view.storage.together(*(partial(ranges_of, view.storage, found.path_of(name)) for (_, name), found in asked))
    more = {key: ranges for (key, _), ranges in zip(asked, read, strict=True) if ranges is not None}
    return Statistics.of({**known, **more})


def make_index(storage: Storage, config: TableConfig, least_writes: int = 1) -> FileIndex | None:
    """Writes an index of the current table, and removes old ones; None if it would not pay, or the view was overtaken.

    It does not pay if fewer than `least_writes` have completed since the newest one. It is made from the last index and
    the commits since, or from listings if no index is usable. Errors: those of the storage, and `CorruptTable`;
    existing indexes stay valid then.
    """
    if not config.partition_fields:
        return None
    names: list[str] = []
    looks: list[Snapshot] = []
    storage.together(
        lambda: names.extend(storage.names(INDEX_FOLDER)),
        lambda: looks.append(Snapshot.look(storage)),
    )
    moments = sorted(filter(None, map(index_moment, names)))
    if config.log_version >= SIDE_BY_SIDE_LOG_VERSION and half_shown_now(storage, looks[0]):
        return None  # what is still to be shown would be older than the index, and in nobody's commits since
    view = TableView.of_look(storage, config, looks[0])
    newest = moments[-1] if moments else ""
    if len(view.whole.completed(WRITE_ACTIONS, after=newest)) < least_writes:
        return None
    slices = view.latest()
    if len({found.partition for found in slices}) < FEW_FOLDERS:
        return None
    index = index_of(view, slices)
    if index is None or view.was_overtaken():
        return None
    storage.put_if_absent(index.path, index.to_bytes())
    for old in moments[: 1 - _KEPT]:
        storage.delete(index_path(old))
    return index
