"""What a clean takes away, and what it leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from archiver import Archiver
from made_history import MadeHistory, group
from sweep import find_losses

from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services import restoring
from lakelatch.engine.services.removals.clean_planning import HELD, UNTIL
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.errors import InvalidRequest
from lakelatch.format.names import LogFile
from lakelatch.storage.contract import path_below
from lakelatch.timeline.service_metadata import read_clean_extra
from lakelatch.timeline.snapshot import Snapshot

A, B, C = ("p", group(0)), ("p", group(1)), ("q", group(0))


def keeping(commits: int = 1, **more: Any) -> CleaningOptions:
    return CleaningOptions(commits=commits, **more)


def rounds(table: MadeHistory, number: int, *groups: tuple[str, str]) -> None:
    """Writes and compacts so many times: each round makes a version of each group."""
    for _ in range(number):
        table.write(*groups)
        table.compact_now(*groups)


def extra_of(table: MadeHistory) -> dict[str, str]:
    (clean,) = [one for one in Snapshot.load(table.storage).completed if one.requested == max(table.cleans())]
    return dict(read_clean_extra(table.storage.read(clean.path), clean.path))


def test_what_the_last_commits_need_stays(table: MadeHistory) -> None:
    rounds(table, 6, A, B)
    before, moment = table.files(), table.completions()[-5]
    needed = table.needed_since(moment)
    (result,) = table.clean(keeping(4))
    assert table.files() == needed and set(result.files) == before - needed
    assert result.bytes_removed > 0
    assert find_losses(table.storage, table.config) == []
    for time in table.completions()[-5:]:
        assert table.slices(time)
    with pytest.raises(InvalidRequest, match=result.instant):
        table.slices(table.completions()[-7])


def test_a_second_clean_finds_nothing(table: MadeHistory) -> None:
    rounds(table, 3, A)
    assert len(table.clean(keeping())) == 1
    assert table.clean(keeping()) == [] and len(table.cleans()) == 1


def test_nothing_is_cleaned_before_there_are_enough_commits(table: MadeHistory) -> None:
    rounds(table, 2, A)
    assert table.clean(keeping(10)) == [] and table.cleans() == []


def test_a_file_group_that_was_never_compacted_keeps_its_logs(table: MadeHistory) -> None:
    for _ in range(5):
        table.write(A)
    table.clean(keeping())
    assert len(table.files()) == 5
    table.compact_now(A)
    table.write(B)
    table.write(B)
    (result,) = table.clean(keeping())
    assert len(result.files) == 5


def test_versions(table: MadeHistory) -> None:
    rounds(table, 5, A)
    rounds(table, 1, B)
    table.clean(CleaningOptions(policy="KEEP_LATEST_FILE_VERSIONS", versions=2))
    bases = [path for path in table.files() if path.endswith(".parquet")]
    assert len(bases) == 3
    table.clean(CleaningOptions(policy="KEEP_LATEST_FILE_VERSIONS", versions=1))
    assert len([path for path in table.files() if path.endswith(".parquet")]) == 2


def test_hours(table: MadeHistory) -> None:
    rounds(table, 3, A)
    table.system.advance(3 * 3600)
    rounds(table, 3, A)
    options = CleaningOptions(policy="KEEP_LATEST_BY_HOURS", hours=2)
    latest_of_old = table.completions()[5]
    needed = table.needed_since(latest_of_old)
    table.clean(options)
    assert table.files() == needed
    table.system.advance(3 * 3600)
    table.write(B)
    table.clean(options)
    assert table.files() == table.needed_since(table.completions()[-1])


def test_replaced_file_groups_go_whole_once_nobody_reads_them(table: MadeHistory) -> None:
    rounds(table, 2, A, C)
    replaced = table.overwrite([A], [("p", group(0, 7))])
    table.write(C)
    table.clean(keeping(5))
    assert any(A[1] in path for path in table.files() if path.startswith("p/"))
    assert table.slices(table.completions()[-3])  # the state before the overwrite
    for _ in range(2):
        table.write(C)
    table.clean(keeping(1))
    assert not any(A[1] in path for path in table.files() if path.startswith("p/"))
    assert any(C[1] in path for path in table.files() if path.startswith("q/"))
    assert table.slices(replaced)
    assert find_losses(table.storage, table.config) == []


def test_what_a_waiting_plan_reads_stays_and_goes_after_it(table: MadeHistory) -> None:
    rounds(table, 2, A)
    table.write(A)
    plan = table.plan_compaction(A)
    assert plan is not None
    table.overwrite([A], [("p", group(0, 7))])
    for _ in range(4):
        table.write(C)
    needed = table.needed_at(plan)
    table.clean(keeping(1))
    assert needed and needed <= table.files()
    assert json.loads(extra_of(table)[HELD])[f"plan {plan}"] == ["p"]
    table.compact(plan)
    for _ in range(3):
        table.write(C)
    table.clean(keeping(1))
    assert not needed & table.files()


def test_a_row_that_completes_late_is_kept_with_the_version_it_belongs_to(table: MadeHistory) -> None:
    rounds(table, 2, A)
    late = table.begin([A])
    rounds(table, 3, A)
    table.clean(keeping(1))
    assert {stat.path for stat in late[1]} <= table.files()
    done = table.commit(late)
    table.clean(keeping(1))
    table.write(C)
    table.clean(keeping(1))
    assert {stat.path for stat in late[1]} <= table.files()
    assert late[1][0].path in {path for one in table.slices(done) for path in one.log_paths}


def test_only_partitions_that_have_changed_are_listed_again(table: MadeHistory) -> None:
    rounds(table, 3, A, C)
    rounds(table, 2, A)
    table.clean(keeping(1))
    rounds(table, 3, A)
    listed = table.watch_listings()
    assert len(table.clean(keeping(1))) == 1
    assert "p" in listed and "q" not in listed
    rounds(table, 3, C)
    listed.clear()
    table.clean(keeping(1))
    assert "q" in listed
    listed.clear()
    rounds(table, 2, A)
    table.clean(keeping(1, incremental=False))
    assert "p" in listed and "q" in listed


def test_a_clean_that_is_not_due_waits(table: MadeHistory) -> None:
    rounds(table, 2, A)
    assert table.clean(keeping(1, trigger_commits=4)) != []
    rounds(table, 1, A)
    options = keeping(1, trigger_commits=3)
    assert Clean(options, if_due=True).run(table.context()) == []
    table.write(A)
    assert len(Clean(options, if_due=True).run(table.context())) == 1


def test_what_is_recorded(table: MadeHistory) -> None:
    rounds(table, 3, A)
    table.clean(keeping(2))
    extra = extra_of(table)
    assert extra[UNTIL] == table.completions()[-3] and extra["lakelatch.writer"] == table.one.writer


def test_preview_changes_nothing(table: MadeHistory) -> None:
    rounds(table, 3, A)
    before = table.files()
    plan = table.preview(keeping(1))
    assert plan is not None and plan.paths and table.files() == before and table.cleans() == []
    (result,) = table.clean(keeping(1))
    assert result.files == plan.paths


def test_a_partition_whose_file_groups_were_only_taken_away_is_looked_at(table: MadeHistory) -> None:
    rounds(table, 2, A, C)
    rounds(table, 3, C)
    table.clean(keeping(1))
    table.overwrite([A])
    rounds(table, 3, C)
    table.clean(keeping(1))
    assert not any(path.startswith("p/") for path in table.files())


def test_files_of_a_replaced_file_group_that_come_late_go_with_a_later_clean(table: MadeHistory) -> None:
    rounds(table, 2, A, C)
    (late, *_) = sorted(path for path in table.files() if path.startswith("p/"))
    table.overwrite([A])
    rounds(table, 3, C)
    table.clean(keeping(1))
    table.storage.put(late, b"rows")  # by a request that was under way all the time
    for hours in (1, 30):
        table.system.advance(hours * 3600)
        rounds(table, 2, C)
        assert table.storage.exists(late)
        table.clean(keeping(1))
    assert not table.storage.exists(late)


@pytest.mark.parametrize("replaced", [False, True])
def test_tombstones_of_a_superseded_version_bar_their_names_for_a_day(table: MadeHistory, replaced: bool) -> None:
    """A request for the name that is still under way would make a file which hudi-rs shows again one day."""
    begun = table.begin([A])
    given_up = LogFile(A[1], begun[0].instant, 1, "0-1-1").name
    begun[0].markers.create_data_file(A[0], given_up, b"rows")  # and not in the commit, which leaves a tombstone
    table.commit(begun)
    if replaced:
        table.overwrite([A])
    else:
        rounds(table, 1, A)
    tombstone = path_below(A[0], given_up)
    for hours in (1, 10, 14):
        assert table.storage.stat(tombstone).size_bytes == 0
        rounds(table, 3, C)
        table.clean(keeping(1))
        assert not table.storage.exists(begun[1][0].path)
        table.system.advance(hours * 3600)
    rounds(table, 3, C)
    table.clean(keeping(1))
    assert not table.storage.exists(tombstone)
    assert table.files() == table.needed_since(table.completions()[-2])


def test_fewer_versions_than_the_last_clean_kept(table: MadeHistory) -> None:
    rounds(table, 5, A)
    for _ in range(8):
        table.write(C)
    table.clean(CleaningOptions(policy="KEEP_LATEST_FILE_VERSIONS", versions=3))
    assert len([path for path in table.files() if path.endswith(".parquet")]) == 3
    table.write(C)
    table.clean(CleaningOptions(policy="KEEP_LATEST_FILE_VERSIONS", versions=1))
    assert len([path for path in table.files() if path.endswith(".parquet")]) == 1


def test_commits_that_were_archived_meanwhile_count(table: MadeHistory) -> None:
    """What they superseded is looked for, in a table that has put them away since the last clean."""
    rounds(table, 3, A, C)
    table.clean(keeping(1))
    rounds(table, 3, A)
    before = table.needed_since(table.completions()[-2])
    written = [one.requested for one in Snapshot.load(table.storage).completed if one.action != "clean"]
    Archiver(table.storage).archive(sorted(written)[:8])
    rounds(table, 1, C)
    rounds(table, 1, B)
    table.clean(keeping(3))
    old = [path for path in table.files() if A[1] in path and path.startswith("p/")]
    assert set(old) <= before
    assert table.slices()


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("cleaned_before", [False, True])
def test_a_base_file_of_what_was_taken_back_goes_however_late_it_comes(
    table: MadeHistory, restored: bool, cleaned_before: bool
) -> None:
    """Of what was taken back: no tombstone tells of it, and nobody may write there again."""
    table.write(A)
    rounds(table, 3, C)
    if cleaned_before:
        table.clean(keeping())
    last = table.completions()[-1]
    plan = table.plan_compaction(A)
    assert plan is not None
    table.compact(plan)
    (late,) = [path for path in table.files() if plan in path]
    if restored:
        target = next(one for one in Snapshot.load(table.storage).completed if one.completion == last)
        restoring.restore(table.config, table.manager(), target.requested)
    else:
        restoring.roll_back(table.manager(), plan)
    assert late not in table.files()
    for _ in range(2):  # the second one begins after the instant that took it back
        rounds(table, 2, C)
        assert table.clean(keeping())
    table.storage.put(late, b"rows")
    for hours in (10, 16):
        assert late in table.files()
        table.system.advance(hours * 3600)
        rounds(table, 2, C)
        table.clean(keeping())
    assert late not in table.files() and find_losses(table.storage, table.config) == []


@pytest.mark.parametrize("cleaned", ["never", "before it was taken back", "after it was taken back"])
def test_a_base_file_of_what_was_taken_back_goes_where_each_version_is_kept(table: MadeHistory, cleaned: str) -> None:
    """A restore may leave fewer writes than a clean keeps."""
    table.write(A)
    last = table.completions()[-1]
    for _ in range(3):
        table.write(A)
    plan = table.plan_compaction(A)
    assert plan is not None
    table.compact(plan)
    (late,) = [path for path in table.files() if plan in path]
    if cleaned.startswith("before"):
        assert [one.files for one in table.clean(keeping(4))] == [()]
    target = next(one for one in Snapshot.load(table.storage).completed if one.completion == last)
    restoring.restore(table.config, table.manager(), target.requested)
    if cleaned.startswith("after"):
        table.write(C)
        assert table.clean(keeping(1))
    table.storage.put(late, b"rows")
    table.system.advance(10 * 3600)
    assert not table.clean(keeping(5)) and late in table.files()
    table.system.advance(16 * 3600)
    assert table.clean(keeping(5))
    assert late not in table.files() and find_losses(table.storage, table.config) == []
