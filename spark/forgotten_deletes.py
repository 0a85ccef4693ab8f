"""Deletes that a plan of ours asked to keep, and the engine that carried it out has forgotten.

Until the next compaction of ours has kept them after all, whoever reads a row that came later merges what the plan
named once more: its files are there until a clean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial

from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import NO_TASK, keeps_deletes_of, parse_data_file, planned_base_file
from lakelatch.format.table_view import TableView
from lakelatch.services.options.compaction import KEEP_DELETES
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import COMPACTION
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan
from lakelatch.timeline.table_config import EVENT_TIME
from lakelatch.timeline.timeline import requested
from lakelatch.transactions.conflicts.contract import FileGroup

_NOTES_FOLDER = ".hoodie/.lakelatch/kept"  # an empty file for each compaction of others whose deletes are kept


def note_of(instant: str) -> str:
    """Where it is said that the deletes of this compaction are kept."""
    return f"{_NOTES_FOLDER}/{instant}"


def with_forgotten_deletes(view: TableView, slices: Iterable[FileSlice]) -> list[FileSlice]:
    """The slices, with what the compaction of another engine had read in the place of its base file where that counts.

    Costs nothing but for slices with logs whose base file is not of ours. What a clean has removed stays forgotten.
    """
    return [_wider(view, found, forgotten_by(view, found)) for found in slices]


def forgotten_by(view: TableView, found: FileSlice) -> CompactionOperation | None:
    """What was planned for the slice's base file by us and carried out by others, if logs have come since then.

    None as soon as its deletes are kept, and where the plan is not on the timeline any more.
    """
    base = None if found.base_file is None else parse_data_file(found.base_file)
    if base is None or not found.fresh_logs or view.config.merge_mode != EVENT_TIME or view.config.column_groups:
        return None
    ours = planned_base_file(found.partition, found.file_id, base.instant).write_token
    if base.write_token in (ours, NO_TASK) or any(keeps_deletes_of(name, base.instant) for name in found.log_files):
        return None
    if requested(base.instant, COMPACTION).file_name not in {one.file_name for one in view.timeline.instants}:
        return None
    operation = _planned(view.storage, base.instant).get((found.partition, found.file_id))
    return None if operation is None or view.storage.exists(note_of(base.instant)) else operation


def _wider(view: TableView, found: FileSlice, planned: CompactionOperation | None) -> FileSlice:
    if planned is None:
        return found
    names = (*planned.delta_files, *([planned.base_file] if planned.base_file else ()))
    if not all(view.storage.together(*(partial(view.storage.exists, found.path_of(name)) for name in names))):
        return found
    logs = (*planned.delta_files, *found.fresh_logs)
    return replace(found, base_instant=planned.base_instant, base_file=planned.base_file, log_files=logs)


@lru_cache(maxsize=256)  # a plan never changes
def _planned(storage: Storage, instant: str) -> Mapping[FileGroup, CompactionOperation]:
    """What a compaction plan is about, if it asks for its deletes."""
    try:
        plan = CompactionPlan.read(storage, requested(instant, COMPACTION).path)
    except NotFound:  # archived meanwhile
        return {}
    keeps = plan.extra.get(KEEP_DELETES) == "true"
    return {(one.partition, one.file_id): one for one in plan.operations} if keeps else {}
