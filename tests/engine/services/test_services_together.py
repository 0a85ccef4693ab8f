"""What one service does beside what another one has done: the seams between them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bare_table import age
from live_table import LiveTable
from made_history import MadeHistory, group
from sweep import find_losses
from taken_back_table import new_table

from lakelatch import failpoints
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services import cancelling, restoring, savepoints
from lakelatch.engine.services.removals import archiving
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.errors import InvalidRequest
from lakelatch.format.bucket_index import bucket_of_file_id, successor_file_id
from lakelatch.format.names import planned_base_file
from lakelatch.storage.contract import path_below
from lakelatch.timeline.actions import CLUSTERING, ROLLBACK, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.cancel_requests import plan_of
from lakelatch.transactions.base.settings import OPTIMISTIC

KEEP_ONE = CleaningOptions(commits=1, parallelism=1)
SOON = ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=0)


def clean(table: LiveTable, options: CleaningOptions = KEEP_ONE) -> list[str]:
    """The paths of what is gone."""
    done = table.clean(options)
    return [path for result in done for path in result.files]


def archive(table: LiveTable) -> archiving.Archived:
    return table.archive(SOON)


def compacted(table: LiveTable) -> str:
    done = table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    assert done is not None
    return done.instant


@pytest.mark.parametrize("what", ["compaction", "clustering", "overwrite", "dropped partition"])
def test_what_superseded_files_that_a_clean_has_removed_is_not_rolled_back(tmp_path: Path, what: str) -> None:
    table = new_table(tmp_path)
    table.write([(1, 1, "a"), (2, 2, "b")], "p")
    if what == "compaction":
        instant = compacted(table)
    elif what == "clustering":
        done = table.cluster()
        assert done is not None
        instant = done.instant
    elif what == "overwrite":
        instant = table.write([(1, 3, "c")], "p", "insert_overwrite").instant
    else:
        instant = table.drop("p").instant
    for number in range(4):
        table.write([(number, 10 + number, "q")], "q")
    gone = clean(table)
    assert any(path.startswith("p/") for path in gone)
    rows = table.agreed()
    with pytest.raises(InvalidRequest, match="clean"):
        table.roll_back(instant)
    assert table.agreed() == rows


def test_what_a_clean_that_waits_is_about_to_remove_is_not_made_live_again(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.write([(1, 1, "a"), (2, 2, "b")], "p")
    instant = compacted(table)
    for number in range(4):
        table.write([(number, 10 + number, "q")], "q")
    waiting = Clean(KEEP_ONE).schedule(table.context())
    assert waiting is not None
    with pytest.raises(InvalidRequest, match=f"clean {waiting}"):
        table.roll_back(instant)
    Clean(KEEP_ONE).execute(table.context(), waiting)
    assert len(table.agreed()) == 6


def test_a_write_of_logs_alone_is_rolled_back_whatever_was_cleaned(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(4):
        table.write([(1, number, "a"), (2, number, "b")], "p")
        compacted(table)
    rows = table.agreed()
    last = table.write([(1, 9, "z")], "p")
    assert clean(table)
    table.roll_back(last.instant)
    assert table.agreed() == rows


def test_what_an_archived_write_builds_on_is_not_rolled_back(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.write([(1, 1, "a"), (2, 2, "b")], "p")
    late = table.begin().put("p", [(1, 5, "late"), (2, 5, "late")])
    overwritten = table.write([(1, 3, "c"), (2, 3, "c")], "p", "insert_overwrite")
    late.commit()
    for number in range(4):
        table.write([(number, 10 + number, "q")], "q")
        table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    clean(table)
    archive(table)
    rows = table.agreed()
    with pytest.raises(InvalidRequest):
        table.roll_back(overwritten.instant)
    assert table.agreed() == rows


def test_a_savepoint_that_is_refused_holds_nobody_up(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(4):
        table.write([(1, number, "a"), (2, number, "b")], "p")
        compacted(table)
    first = sorted(Snapshot.load(table.storage).completed)[0].requested
    assert clean(table)
    with pytest.raises(InvalidRequest, match="clean"):
        table.savepoint(first)
    assert not [one for one in Snapshot.load(table.storage).instants if one.action == SAVEPOINT]
    table.write([(1, 9, "z")], "p")
    compacted(table)
    assert clean(table)


def test_an_archive_does_not_pass_a_cancelled_plan_that_the_last_clean_took_for_the_earliest(tmp_path: Path) -> None:
    """Java's readers and hudi-rs take whatever is older than the first write for committed, its tombstones too."""
    table = LiveTable(tmp_path, OPTIMISTIC)
    table.write([(1, 1, "a"), (2, 2, "b")])
    table.cluster()
    for number in range(3):
        table.write([(1, 3 + number, "c"), (2, 3 + number, "d")])
    plan = table.plan_clustering("v", {"lakelatch.service.cancellable": "true"})
    assert plan is not None
    for number in range(2):
        table.write([(1, 7 + number, "e"), (2, 7 + number, "f")])
    waiting = Clean(CleaningOptions(commits=2, parallelism=1)).schedule(table.context())
    assert waiting is not None
    Clean(KEEP_ONE).execute(table.context(), waiting)
    assert cancelling.execute_open(table.manager()) in ([], [plan])
    table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    for _ in range(2):
        archive(table)
        assert len(table.agreed()) == 2
    assert min(one.requested for one in Snapshot.load(table.storage).completed) < plan


def test_the_past_without_a_file_that_is_a_bucket_by_itself_is_refused_by_name(tmp_path: Path) -> None:
    """A reader of the past counts files that cleans have removed, and must not stumble over their absence."""
    table = new_table(tmp_path)
    first = table.write([(key, 1, "a") for key in range(6)])
    table.write([(key, 2, "b") for key in range(6)], operation="insert_overwrite")
    table.write([(key, 3, "c") for key in range(6)])
    for number in range(3):
        table.write([(number, 10 + number, "q")], "q")
    assert clean(table)
    with pytest.raises(InvalidRequest, match="clean"):
        table.as_of(first.completion)


def test_a_savepoint_whose_process_died_holds_cleaners_up_for_a_day(table: MadeHistory) -> None:
    place = ("p", group(0))
    for _ in range(3):
        table.write(place)
        table.compact_now(place)
    found = sorted(one.requested for one in Snapshot.load(table.storage).completed)
    with failpoints.active("savepoint.after_inflight=raise"), pytest.raises(Exception, match="told to fail"):
        savepoints.create_savepoint(table.config, table.manager(), found[0])
    assert not [path for done in table.clean(KEEP_ONE) for path in done.files]
    table.system.advance(25 * 3600)
    assert [path for done in table.clean(KEEP_ONE) for path in done.files]
    assert not Snapshot.load(table.storage).pending
    assert find_losses(table.storage, table.config) == []


def spared_clustering(table: LiveTable) -> tuple[str, str]:
    """A clustering that was carried out but for one file group: its instant, and the path of the file it left out."""
    table.write([(key, 1, "a") for key in range(8)])
    plan = table.plan_clustering("v")
    assert plan is not None
    found = plan_of(table.storage, Instant(plan, CLUSTERING, "requested"))
    assert found is not None and len(found.groups) == 2
    group = sorted(found.groups)[0]
    cancelling.request_cancel(table.manager(), plan, [group])
    table.execute_clustering(plan)
    bucket = bucket_of_file_id(group[1])
    assert bucket is not None
    return plan, path_below("p", planned_base_file("p", successor_file_id(bucket, plan), plan).name)


def test_a_late_file_of_the_part_of_a_clustering_that_was_called_off_is_never_shown(tmp_path: Path) -> None:
    """Its executor was paused before the put, and everything else went on for hours."""
    table = LiveTable(tmp_path)
    plan, late = spared_clustering(table)
    made_by = next(name for name in table.storage.list("p").files if plan in name and name.endswith(".parquet"))
    content = table.storage.read(path_below("p", made_by))
    for number in range(4):
        table.write([(key, 10 + number, "b") for key in range(8)])
        table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
        clean(table)
        archive(table)
    rows = table.agreed()
    table.storage.put_if_absent(late, content)
    assert table.agreed() == rows
    archive(table)
    assert table.agreed() == rows
    clean(table)
    a_day_later(table)
    for number in range(4):
        table.write([(key, 20 + number, "c") for key in range(8)])
        table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
        clean(table)
        archive(table)
    assert not table.storage.exists(late)
    assert plan not in [one.requested for one in Snapshot.load(table.storage).completed]
    assert len(table.agreed()) == 8


def a_day_later(table: LiveTable) -> None:
    for folder, _, names in os.walk(table.root):
        for name in names:
            status = os.stat(f"{folder}/{name}")
            os.utime(f"{folder}/{name}", (status.st_atime, status.st_mtime - 2 * 86_400))


@pytest.mark.parametrize("what", ["compaction", "clustering"])
@pytest.mark.parametrize("how", ["restore", "rollback", "savepoint"])
def test_what_an_archive_has_passed_is_read_alike_when_older_slices_are_live_again(
    tmp_path: Path, what: str, how: str
) -> None:
    """hudi-rs takes archived logs for completed when they were requested, which is another slice without a base."""
    table = new_table(tmp_path)
    table.write([(key, 1, "a") for key in range(1, 5)])
    table.write([(5, 2, "b")])
    target = table.write([(1, 4, "c"), (2, 4, "c")])
    rows = table.agreed()
    if how == "savepoint":
        table.savepoint(target.instant)
    done = table.cluster() if what == "clustering" else table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    assert done is not None
    if how == "savepoint":
        table.write([(2, 9, "z")])
    archive(table)
    if how == "rollback":
        table.roll_back(done.instant)
    else:
        table.restore(target.instant)
    assert table.agreed() == rows


def test_superseded_logs_leave_once_nothing_that_stays_came_before_what_superseded_them(tmp_path: Path) -> None:
    """A table that nobody cleans is archived all the same."""
    table = new_table(tmp_path)
    first = table.write([(1, 1, "a"), (2, 1, "a")])
    compacted(table)
    for number in range(3):
        table.write([(1, 2 + number, "b")])
    archive(table)
    assert first.instant not in [one.requested for one in Snapshot.load(table.storage).completed]
    assert len(table.agreed()) == 2


def late_log(table: LiveTable) -> list[str]:
    """A log that was requested before its base file and completed after it, in a slice that is the last but one; the
    requested times of all writes."""
    table.write([(1, 1, "one")])
    late = table.begin().put("p", [(9, 9, "late")])
    table.compact()
    late.commit()
    table.compact()
    for number in (2, 3, 4):
        table.write([(number, number, "other")], "q")
    return sorted(one.requested for one in Snapshot.load(table.storage).completed if one.action in WRITE_ACTIONS)


def keep(table: LiveTable, count: int) -> archiving.Archived:
    options = ArchivingOptions(min_commits=count, max_commits=count + 1, minimum_age_s=0)
    return table.archive(options)


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("how", ["roll back", "restore"])
def test_a_late_log_stays_for_as_long_as_its_slice_can_come_back(tmp_path: Path, count: int, how: str) -> None:
    """With four that stay, the compaction that came instead is the first of these."""
    table = LiveTable(tmp_path, buckets=1)
    _, late, _, again, *_ = late_log(table)
    rows = table.agreed()
    assert ("p", 9, 9, "late") in rows and len(rows) == 5
    done = keep(table, count)
    assert table.agreed() == rows
    there = {one.requested for one in Snapshot.load(table.storage).completed}
    if again in there:
        assert late in there, done
    try:
        if how == "roll back":
            restoring.roll_back(table.manager(), again)
        else:
            restoring.restore(table.opened.config, table.manager(), late)
    except InvalidRequest as error:
        assert again not in there, error
    else:
        assert again in there
        assert table.agreed() == [row for row in rows if how == "roll back" or row[0] == "p"]


@pytest.mark.parametrize("other", ["write", "claim", "clustering"])
def test_the_first_write_is_not_rolled_back_before_what_would_count_then_has_ended(tmp_path: Path, other: str) -> None:
    """hudi-rs takes whatever is older than the first completed write for committed."""
    table = new_table(tmp_path)
    first = table.write([(1, 1, "a"), (2, 1, "a")], "q")
    if other == "write":
        table.begin().put("p", [(1, 1, "not yet")])
    elif other == "claim":
        table.manager().begin(for_tasks=False)  # which is on the timeline with its first file
    else:
        plan = table.plan_clustering("v")
        assert plan is not None
        cancelling.request_cancel(table.manager(), plan)
        cancelling.execute_open(table.manager())
    with pytest.raises(InvalidRequest, match="first write"):
        table.roll_back(first.instant)
    table.write([(1, 2, "b")], "q")
    with pytest.raises(InvalidRequest, match=r"first write|builds on"):
        table.roll_back(first.instant)
    assert len(table.agreed()) == 2


def test_the_first_write_is_not_rolled_back_before_what_was_undone_a_moment_ago(tmp_path: Path) -> None:
    """A late request may bring back a base file of it, which hudi-rs would take for committed then."""
    table = new_table(tmp_path)
    first = table.write([(1, 1, "a"), (2, 1, "a")], "q")
    compaction = compacted(table)
    table.roll_back(compaction)
    table.write([(3, 2, "b")], "p")
    with pytest.raises(InvalidRequest, match=f"commit {compaction}, which was undone"):
        table.roll_back(first.instant)
    assert len(table.agreed()) == 3
    (undoing,) = (one for one in Snapshot.load(table.storage).completed if one.action == ROLLBACK)
    age(table.storage, undoing.path)
    table.roll_back(first.instant)
    assert [row[0] for row in table.agreed()] == ["p"]
