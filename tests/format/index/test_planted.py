"""Mistakes planted in the file index: services in random order find each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from live_table import LiveTable
from random_tables.index_checks import IndexChecks
from random_tables.services import Services, steps_of

from lakelatch.engine.read.pruning import Pruning
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.index import file_index, statistics
from lakelatch.format.index.file_index import FileIndex
from lakelatch.format.index.statistics import Statistics
from lakelatch.format.names import parse_data_file
from lakelatch.format.slices import index_making as making
from lakelatch.format.slices import index_reading as reading
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.transactions.base.settings import NON_BLOCKING

Plant = Callable[[pytest.MonkeyPatch], None]
STEPS = 60


def what_was_taken_back_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FileIndex, "writes_since", lambda index, whole: whole.completed(WRITE_ACTIONS, after=index.moment)
    )


def what_was_archived_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    true = FileIndex.writes_since

    def active_alone(index: FileIndex, whole: object) -> object:
        found = true(index, whole)  # type: ignore[arg-type]
        return found and [one for one in found if one in whole.active.completed]  # type: ignore[attr-defined]

    monkeypatch.setattr(FileIndex, "writes_since", active_alone)


def what_came_since_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileIndex, "after", lambda index, commits: index)


def one_file_of_each_partition_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    true = file_index.files_of

    def first_alone(metadata: object) -> object:
        found = true(metadata)  # type: ignore[arg-type]
        return found and {partition: names[:1] for partition, names in found.items()}

    monkeypatch.setattr(reading, "files_of", first_alone)


def log_files_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSlice, "names", property(lambda found: (found.base_file,) if found.base_file else ()))


def completions_are_those_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    true = making.index_of

    def as_requested(view: object, slices: object) -> object:
        index = true(view, slices)  # type: ignore[arg-type]
        return index and FileIndex(index.moment, index.writes, {one: one for one in index.completions}, index.files)

    monkeypatch.setattr(sys.modules[IndexChecks.__module__], "index_of", as_requested)


def statistics_are_those_of_file_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Pruning.held

    def of_groups(one: Pruning, slices: list[FileSlice], known: Statistics) -> object:
        named = {
            (partition, parsed.file_id): name
            for partition, names in known.files.items()
            for name in names
            if (parsed := parse_data_file(name)) is not None
        }
        older = {replace(one, base_file=named.get((one.partition, one.file_id), one.base_file)): one for one in slices}
        return [older[found] for found in true(one, older, known)]

    monkeypatch.setattr(Pruning, "held", of_groups)


def logs_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Pruning.held

    def without(one: Pruning, slices: list[FileSlice], known: Statistics) -> object:
        found = {one.without_logs(): one for one in slices}
        return [found[held] for held in true(one, found, known)]

    monkeypatch.setattr(Pruning, "held", without)


def the_greatest_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    true = statistics._range_in

    def less(*given: object) -> object:
        found = true(*given)  # type: ignore[arg-type]
        return found and replace(found, greatest=found.least)

    monkeypatch.setattr(statistics, "_range_in", less)


PLANTS: tuple[Plant, ...] = (
    *(what_was_taken_back_counts, what_was_archived_is_not_read, what_came_since_is_not_read),
    *(one_file_of_each_partition_is_read, log_files_are_left_out, completions_are_those_of_requests),
    *(statistics_are_those_of_file_groups, logs_are_not_looked_at, the_greatest_is_not_there),
)


@pytest.mark.long
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_services_in_random_order_find_a_planted_mistake(
    tmp_path: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(8):
        services = Services(LiveTable(tmp_path / str(seed), NON_BLOCKING))
        columns = ("id", "ts", "v")
        checks = IndexChecks(services.table.storage, services.table.opened.config, reads=columns)
        for step in steps_of(seed, STEPS):
            services.step(*step)
            if checks.look():
                print(seed, step)
                return
    raise AssertionError("nothing was found")
