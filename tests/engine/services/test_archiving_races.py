"""Archivers that die at each of their steps, two of them at once, and zombies: nothing is lost, and all is finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bare_table import provider_of
from cancelled_plans import cancelled_compaction
from live_table import LiveTable

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.services import restoring
from lakelatch.engine.services.cancelling import request_cancel
from lakelatch.engine.services.removals.archiving import Archived
from lakelatch.failpoints import NAMES, FailpointHit, active, calling
from lakelatch.locks.contract import LockScope
from lakelatch.storage.contract import path_below
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.manifest import (
    HISTORY_FOLDER,
    VERSION_PATH,
    load_manifest,
    manifest_path,
    manifest_versions,
)
from lakelatch.timeline.history.writer import ArchiverOvertaken, HistoryRow, HistoryWriter
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.events import CANCEL_FOLDER
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import TransactionManager

POINTS = [name for name in NAMES if name.startswith("archive.")]
AT_ONCE = ArchivingOptions(
    min_commits=2, max_commits=3, merged_files=2, minimum_age_s=0, orphan_age_s=0
)  # so that nothing has to wait


def run(table: LiveTable, manager: TransactionManager | None = None) -> Archived:
    return table.archive(AT_ONCE, manager)


def written(table: LiveTable, *numbers: int) -> None:
    for number in numbers:
        table.write([(number, number, f"v{number}")])
    table.compact()
    for number in numbers:
        table.write([(number, number, f"v{number}")])


def prepared(tmp_path: Path) -> LiveTable:
    """A table on which a run passes every point: with level files to merge, manifests to remove, and an orphan."""
    table = LiveTable(tmp_path, buckets=1)
    for number in (1, 2, 3, 4):
        written(table, number)
        run(table)
    failed = table.begin().put("p", [(9, 9, "never")])
    failed.transaction.abort()
    table.write([(5, 5, "v5")])
    cancelled_compaction(table)
    written(table, 5, 6)
    return table


def unlocked(table: LiveTable) -> TransactionManager:
    """A manager whose lock grants itself to everybody."""
    scope, times = LockScope(table.storage.uri, {}), HybridTimeGenerator(provider_of(table.storage))
    return table.manager(provider=LyingLockProvider(scope), generator=times)


def everything(table: LiveTable) -> set[str]:
    """Requested times of the completed writes on either timeline."""
    archived = {one.requested for one in History.load(table.storage).instants()}
    return archived | {one.requested for one in Snapshot.load(table.storage).completed}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("visit", [1, 2])
def test_an_archiver_that_dies_at_a_step_is_finished_by_the_next(point: str, visit: int, tmp_path: Path) -> None:
    table = prepared(tmp_path)
    rows, before = table.agreed(), everything(table)
    with active(f"{point}=raise@{visit}"):
        try:
            run(table)
            assert visit == 2, f"{point} was never reached"
        except FailpointHit:
            pass
    assert table.agreed() == rows and everything(table) == before
    pending = {one.requested for one in Snapshot.load(table.storage).pending}
    assert not pending.intersection(one.requested for one in History.load(table.storage).instants())
    run(table)
    assert table.agreed() == rows and everything(table) == before
    _only_once(table)
    written(table, 7)
    run(table)
    assert len(table.agreed()) == len(rows) + 1
    _only_once(table)


def _only_once(table: LiveTable) -> None:
    archived = {one.requested for one in History.load(table.storage).instants()}
    active_now = {one.requested for one in Snapshot.load(table.storage).instants}
    assert not archived & active_now


@pytest.mark.parametrize("point", POINTS)
def test_two_archivers_without_a_lock_lose_nothing(point: str, tmp_path: Path) -> None:
    table = prepared(tmp_path)
    rows, before = table.agreed(), everything(table)
    met: list[str] = []

    def overtake(name: str) -> None:
        if not met:
            met.append(name)
            run(table, unlocked(table))
            assert table.read() == rows

    with calling(overtake, [point]):
        run(table, unlocked(table))
    assert met and table.agreed() == rows and everything(table) == before
    run(table)
    _only_once(table)


@pytest.mark.parametrize("point", POINTS)
def test_a_zombie_that_goes_on_after_two_generations_loses_nothing(point: str, tmp_path: Path) -> None:
    table = prepared(tmp_path)
    met: list[str] = []

    def overtake(name: str) -> None:
        if not met:
            met.append(name)
            for number in (20, 21, 22, 23):
                run(table, unlocked(table))
                written(table, number)

    with calling(overtake, [point]):
        run(table, unlocked(table))
    before = everything(table)
    assert met and len(table.agreed()) == 10
    run(table)
    assert everything(table) == before and len(table.agreed()) == 10
    _only_once(table)


# -- the writer of the history


def row(number: int) -> HistoryRow:
    time = f"202601010000000{number:02d}"
    return HistoryRow(time, to_instant(to_ms(time) + 1), "deltacommit", b"m", None)


def test_a_zombie_whose_manifest_number_was_removed_has_lost(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    HistoryWriter(table.storage, REAL_SYSTEM).append([row(1)])
    zombie = HistoryWriter(table.storage, REAL_SYSTEM)
    others = HistoryWriter(table.storage, REAL_SYSTEM)
    done: list[str] = []

    def go_on(name: str) -> None:
        if done:
            return
        done.append(name)
        for number in range(10, 16):
            others.append([row(number)])
        others.remove_old()
        assert min(manifest_versions(table.storage.names(HISTORY_FOLDER))) > 2

    once = calling(go_on, ["archive.after_level_file"])
    with once, pytest.raises(ArchiverOvertaken):
        zombie.append([row(2)])
    found = {one.requested for one in History.load(table.storage).instants()}
    assert row(2).requested not in found and len(found) == 7
    assert min(manifest_versions(table.storage.names(HISTORY_FOLDER))) > 2
    zombie.append([row(2)])
    assert row(2).requested in {one.requested for one in History.load(table.storage).instants()}


def test_of_two_archivers_that_make_the_same_manifest_one_begins_anew(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    writer, other = (HistoryWriter(table.storage, REAL_SYSTEM) for _ in range(2))
    done: list[str] = []

    def overtake(name: str) -> None:
        if not done:
            done.append(name)
            other.append([row(2)])

    with calling(overtake, ["archive.after_level_file"]), pytest.raises(ArchiverOvertaken):
        writer.append([row(1)])
    writer.append([row(1)])
    assert {one.requested for one in History.load(table.storage).instants()} == {row(1).requested, row(2).requested}


def test_a_manifest_that_a_dead_archiver_left_beside_an_older_version_counts_with_the_next(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    writer = HistoryWriter(table.storage, REAL_SYSTEM)
    writer.append([row(1)])
    table.storage.put(VERSION_PATH, b"1")  # as Java leaves it
    with active("archive.after_manifest=raise@1"), pytest.raises(FailpointHit):
        writer.append([row(2)])
    assert load_manifest(table.storage).version == 1
    writer.append([row(3)])
    assert len(History.load(table.storage).instants()) == 3 and not table.storage.exists(VERSION_PATH)


def test_half_a_manifest_of_java_is_passed_over(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    writer = HistoryWriter(table.storage, REAL_SYSTEM)
    writer.append([row(1)])
    table.storage.put(VERSION_PATH, b"1")
    table.storage.put(manifest_path(2), b'{"files": [')
    writer.append([row(2)])
    assert load_manifest(table.storage).version == 3 and len(History.load(table.storage).instants()) == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b""])
def test_a_level_file_that_is_in_the_way_is_gone_round(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    writer = HistoryWriter(table.storage, REAL_SYSTEM)
    with active("archive.after_level_file=raise@1"), pytest.raises(FailpointHit):
        writer.append([row(1), row(2), row(3)])
    (name,) = table.storage.list(HISTORY_FOLDER).files
    path = path_below(HISTORY_FOLDER, name)
    table.storage.put(path, damage(table.storage.read(path)))
    assert [one.requested for one in writer.append([row(1), row(2), row(3)])] == [row(1).requested, row(2).requested]
    assert writer.append([row(3)])
    assert len(History.load(table.storage).instants()) == 3


def test_files_that_came_back_after_they_were_archived_go_again(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2, 3)
    files = {one.path: table.storage.read(one.path) for one in Snapshot.load(table.storage).instants}
    rows, done = table.agreed(), run(table)
    back = {path for path in files if any(one in path for one in done.instants)}
    for path in back:
        table.storage.put(path, files[path])
    assert table.read() == rows
    table.archive(ArchivingOptions())  # which archives nothing
    there = {f"{TIMELINE_FOLDER}/{name}" for name in table.storage.list(TIMELINE_FOLDER).files}
    assert not there & back and table.agreed() == rows


def test_a_request_to_cancel_what_a_restore_took_away_is_in_nobodys_way(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    first = table.write([(1, 1, "v1")]).instant
    plan = table.plan_clustering("v")
    assert plan is not None
    request_cancel(table.manager(), plan)
    restoring.restore(table.opened.config, table.manager(), first)
    written(table, 1, 2, 3)
    done = run(table)
    assert done.held_at > plan and not table.storage.names(CANCEL_FOLDER)


def test_what_completed_after_a_pending_write_began_stays_though_it_was_requested_before(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2)
    late = table.begin().put("p", [(8, 8, "late")])
    table.write([(3, 3, "before")])
    pending = table.begin().put("p", [(9, 9, "pending")])
    late.commit()
    written(table, 4, 5)
    done = run(table)
    assert done.held_at == late.instant and f"{pending.instant} is pending, and it completed since" in done.held_by
    assert (
        min(one.requested for one in Snapshot.load(table.storage).writes) == late.instant and len(table.agreed()) == 6
    )
