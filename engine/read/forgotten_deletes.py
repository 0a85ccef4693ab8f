"""Deletes that a compaction plan of ours asked to keep, and that the engine which executed it dropped.

Until our next compaction keeps them after all, a read of a row that completed later merges the files of that plan once
more, and cleans retain these. Then a note names the files in which the deletes are kept. It is put after these files,
so a reader with an older listing finds in the note what its listing lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TypeAlias

from lakelatch.engine.options.table_services.compaction import KEEP_DELETES
from lakelatch.errors import CorruptTable
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import (
    NO_TASK,
    BaseFile,
    keeps_deletes_of,
    kept_deletes_file,
    parse_data_file,
    planned_base_file,
)
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import COMMIT, COMPACTION
from lakelatch.timeline.instant import Instant, requested
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_commit
from lakelatch.timeline.metadata import WRITER_KEY, CompactionOperation, CompactionPlan, FileGroup
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig

_NOTES_FOLDER = ".hoodie/.lakelatch/kept"  # a note for each compaction of others whose deletes are kept
_KEPT = "kept"
_Note: TypeAlias = Mapping[str, frozenset[str]]  # names of files with kept deletes, by partition


def note_of(instant: str) -> str:
    """The path of the note that the deletes of this compaction are kept."""
    return f"{_NOTES_FOLDER}/{instant}"


def put_note(storage: Storage, instant: str, partitions: Iterable[str]) -> None:
    """Notes that all deletes of a compaction are kept, in the files that its partitions now have for them."""
    folders = sorted(set(partitions))
    listings = storage.together(*(partial(storage.list, folder) for folder in folders))
    kept = {
        folder: names
        for folder, listing in zip(folders, listings, strict=True)
        if (names := [name for name in listing.files if keeps_deletes_of(name, instant)])
    }
    storage.put_if_absent(note_of(instant), checksummed_json({_KEPT: kept}, note_of(instant)))


def carried_out_by_others(storage: Storage, timeline: Snapshot) -> Iterator[tuple[str, CompactionPlan]]:
    """The compactions on the active timeline that another engine completed, with their plans."""
    for found in timeline.by_action.get(COMMIT, ()):
        plan = requested(found.requested, COMPACTION)
        if timeline.has(plan) and not _is_ours(storage, found):
            try:
                yield found.requested, CompactionPlan.read(storage, plan.path)
            except NotFound:  # archived meanwhile
                continue


def is_carried_out_by_others(whole: WholeTimeline, compaction: str) -> bool:
    """Whether another engine completed this compaction, and its plan is on the active timeline."""
    if not whole.active.has(requested(compaction, COMPACTION)):
        return False
    completed = whole.find(compaction)
    return completed is not None and completed.action == COMMIT and not _is_ours(whole.storage, completed)


def may_forget(config: TableConfig, partition: str, base: BaseFile) -> bool:
    """Whether another engine made the base file, and readers could merge its compaction's inputs instead of it."""
    ours = planned_base_file(partition, base.file_id, base.instant).write_token
    return base.write_token not in (ours, NO_TASK) and config.merge_mode == EVENT_TIME and not config.column_groups


@dataclass(frozen=True)
class ForgottenDeletes:
    """The dropped deletes of one view of a table; each compaction is looked up once.

    Costs requests only for slices with logs whose base file is another engine's and whose plan is on the timeline.
    """

    view: TableView
    _notes: dict[str, _Note | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def kept(self, found: FileSlice) -> FileSlice | None:
        """The slice with its kept deletes, even if they came after it was listed; None if they are not kept yet."""
        known, planned = self._look(found)
        return known if planned is None else None

    def remembered(self, slices: Iterable[FileSlice]) -> tuple[list[FileSlice], frozenset[FileGroup]]:
        """The slices, with the inputs of the other engine's compaction instead of its base file where deletes are lost.

        Also returns the file groups of those. Other engines do not know that these files are needed, and may clean them
        at any time; deletes whose files are gone are lost.
        """
        looked = [self._look(found) for found in slices]
        paths = [path for found, planned in looked if planned for path in _paths(found, planned)]
        storage = self.view.storage
        there = storage.together(*(partial(storage.exists, path) for path in paths))
        gone = {path for path, is_there in zip(paths, there, strict=True) if not is_there}
        lacking = {
            found.base_instant for found, planned in looked if planned and not gone.isdisjoint(_paths(found, planned))
        }
        for instant in lacking:  # its deletes may have been kept since, and cleaned after that
            self._notes.pop(instant, None)
        known: list[FileSlice] = []
        wider: set[FileGroup] = set()
        for found, planned in looked:
            if planned is None or not gone.isdisjoint(_paths(found, planned)):
                known.append(found if planned is None else self._look(found)[0])
                continue
            logs = (*planned.delta_files, *found.fresh_logs)
            base_instant, base_file = planned.base_instant, planned.base_file
            known.append(replace(found, base_instant=base_instant, base_file=base_file, log_files=logs))
            wider.add((found.partition, found.file_id))
        return known, frozenset(wider)

    def _look(self, found: FileSlice) -> tuple[FileSlice, CompactionOperation | None]:
        """The slice with its kept deletes, and None; or, if they are not kept yet, the plan's operation for it."""
        planned = self._planned(found)
        note = None if planned is None else self._note(found.base_instant)
        if note is None:
            return found, planned
        name = kept_deletes_file(found.partition, found.file_id, found.base_instant).name
        return found.with_log(name) if name in note.get(found.partition, ()) else found, None

    def _planned(self, found: FileSlice) -> CompactionOperation | None:
        """The operation of our plan which another engine executed, if the slice lacks the deletes that it dropped."""
        base = None if found.base_file is None else parse_data_file(found.base_file)
        if not isinstance(base, BaseFile) or not found.fresh_logs:
            return None
        if not may_forget(self.view.config, found.partition, base):
            return None
        if any(keeps_deletes_of(name, base.instant) for name in found.log_files):
            return None
        if not self.view.timeline.has(requested(base.instant, COMPACTION)):
            return None
        return planned_with_deletes(self.view.storage, base.instant).get((found.partition, found.file_id))

    def _note(self, instant: str) -> _Note | None:
        if instant not in self._notes:
            try:
                self._notes[instant] = _read_note(self.view.storage, instant)
            except NotFound:
                self._notes[instant] = None
        return self._notes[instant]


def _paths(found: FileSlice, planned: CompactionOperation) -> list[str]:
    base = [] if planned.base_file is None else [planned.base_file]
    return [found.path_of(name) for name in (*planned.delta_files, *base)]


@lru_cache(maxsize=256)  # a note never changes; that there is none is an error, and not cached
def _read_note(storage: Storage, instant: str) -> _Note:
    """The names of the files in which the deletes of a compaction are kept, by partition."""
    path = note_of(instant)
    values = open_checksummed_json(storage.read(path), path)
    if values is None:
        raise CorruptTable(f"{path} is not as it was written: remove it, and the next compaction makes it", path=path)
    return {folder: frozenset(names) for folder, names in values[_KEPT].items()}


@lru_cache(maxsize=256)  # a plan never changes
def planned_with_deletes(storage: Storage, instant: str) -> Mapping[FileGroup, CompactionOperation]:
    """The operations of a compaction plan by file group, if it asks to keep deletes; none otherwise."""
    try:
        plan = CompactionPlan.read(storage, requested(instant, COMPACTION).path)
    except NotFound:  # archived meanwhile
        return {}
    keeps = plan.extra.get(KEEP_DELETES) == "true"
    return {(one.partition, one.file_id): one for one in plan.operations} if keeps else {}


@lru_cache(maxsize=4096)  # a completed file never changes
def _is_ours(storage: Storage, compaction: Instant) -> bool:
    return WRITER_KEY in read_commit(storage, compaction).extra
