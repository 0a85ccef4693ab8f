"""Archiving: what leaves the active timeline, what stays and why, and that nobody reads another table afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cancelled_plans import cancelled_compaction
from live_table import LiveTable
from storages.counting import CountingStorage

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services.removals.archiving import Archived, archive
from lakelatch.failpoints import FailpointHit, active
from lakelatch.storage.contract import path_below
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import CLEAN, WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.manifest import HISTORY_FOLDER, load_manifest
from lakelatch.timeline.instant import TIMELINE_FOLDER, requested
from lakelatch.timeline.snapshot import Snapshot

AT_ONCE = ArchivingOptions(min_commits=2, max_commits=3, merged_files=3, minimum_age_s=0)


def run(table: LiveTable, options: ArchivingOptions = AT_ONCE) -> Archived:
    return table.archive(options)


def writes(table: LiveTable) -> list[str]:
    return sorted(one.requested for one in Snapshot.load(table.storage).completed if one.action in WRITE_ACTIONS)


def write(table: LiveTable, *numbers: int) -> list[str]:
    return [table.write([(number, number, f"v{number}")]).instant for number in numbers]


def written(table: LiveTable, *numbers: int) -> None:
    """Writes, a compaction, and more writes: the first ones may leave."""
    write(table, *numbers)
    table.compact()
    write(table, *numbers)


def cleaned(table: LiveTable) -> None:
    """No older slices are left to which the table could be taken back."""
    options = CleaningOptions(commits=1, parallelism=1)
    assert table.clean(options)[0].files


def age(table: LiveTable, path: str, hours: int = 48) -> None:
    status = os.stat(table.root / path)
    os.utime(table.root / path, (status.st_atime, status.st_mtime - hours * 3600))


def test_what_is_old_leaves_and_everybody_reads_the_same_rows(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2, 3)
    rows, before = table.agreed(), writes(table)
    done = run(table)
    assert list(done.instants) == before[:-2] and writes(table) == before[-2:]
    assert "among the last 2 writes" in done.held_by and done.held_at == before[-2]
    assert table.agreed() == rows
    written(table, 4, 5)
    assert len(table.agreed()) == 5


@pytest.mark.parametrize(("due", "listings"), [(True, 5), (False, 3)])
def test_an_archiver_lists_the_timeline_a_few_times(tmp_path: Path, due: bool, listings: int) -> None:
    table, far = LiveTable(tmp_path), CountingStorage(str(tmp_path))
    written(table, *((1, 2, 3) if due else (1,)))
    for path in list(table.storage.walk("")):
        far.put(path, table.storage.read(path))
    far.forget()
    assert bool(archive(table.manager(far), table.opened.config, AT_ONCE).instants) is due
    assert sum(call.path == TIMELINE_FOLDER for call in far.calls) == listings, far.story()


def test_few_enough_writes_all_stay(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    write(table, 1, 2, 3)
    assert run(table) == Archived(held_by="no more than 3 writes are on the active timeline")
    assert "history" not in table.storage.list(TIMELINE_FOLDER).folders


def test_plans_and_metadata_are_in_the_history_as_they_were(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    write(table, 1, 2)
    plan = table.plan()
    assert plan is not None
    planned = table.storage.read(requested(plan, "compaction").path)
    table.execute(plan)
    write(table, 3, 4)
    files = {one.requested: table.storage.read(one.path) for one in Snapshot.load(table.storage).completed}
    done = run(table)
    history = History.load(table.storage)
    assert plan in done.instants
    for one in done.instants:
        archived = history.find(one)
        assert archived is not None and history.metadata(archived) == files[one]
        assert history.plan(archived) == (planned if one == plan else None)


def test_level_files_are_merged_and_old_ones_removed(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    known: set[str] = set()
    for number in range(14):
        written(table, number)
        known.update(run(table).instants)
    manifest = load_manifest(table.storage)
    assert max(file.level for file in manifest.files) >= 2 and len(manifest.files) < 8
    assert {one.requested for one in History.load(table.storage).instants()} == known
    names = table.storage.list(HISTORY_FOLDER).files
    assert len([name for name in names if name.startswith("manifest_")]) == 3 and len(names) < 20
    assert len(table.agreed()) == 14


# -- what stays


def test_a_log_that_waits_for_a_compaction_stays(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    before = write(table, 1, 2, 3, 4, 5, 6)
    done = run(table)
    assert not done.instants and done.held_at == before[0] and "waits for a compaction" in done.held_by
    assert len(table.agreed()) == 6


def test_a_log_that_completed_after_a_compaction_was_planned_stays_though_it_was_requested_before(
    tmp_path: Path,
) -> None:
    table = LiveTable(tmp_path, buckets=1)
    write(table, 1)
    late = table.begin().put("p", [(9, 9, "late")])
    table.compact()
    late.commit()
    write(table, 2, 3, 4)
    cleaned(table)
    done = run(table)
    assert done.held_at == late.instant and "waits for a compaction" in done.held_by
    assert len(table.agreed()) == 5


def test_logs_behind_a_base_file_leave_and_hudi_rs_reads_them(tmp_path: Path) -> None:
    table = LiveTable(tmp_path, buckets=1)
    write(table, 1)
    table.compact()
    logs = write(table, 2, 3, 4, 5)
    done = run(table)
    assert set(logs[:-2]) < set(done.instants)
    assert len(table.agreed()) == 5


def test_a_pending_write_keeps_itself_and_the_last_one_before_it(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2)
    last = writes(table)[-1]
    pending = table.begin().put("p", [(9, 9, "late")])
    written(table, 3, 4)
    done = run(table)
    assert done.held_at == last and pending.instant in done.held_by and writes(table)[0] == last
    assert len(table.agreed()) == 4
    pending.commit()
    assert len(table.agreed()) == 5


def test_a_pending_plan_and_a_cancellation_of_one_are_in_the_way(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2)
    last = writes(table)[-1]
    plan = table.plan()
    assert plan is not None
    write(table, 3, 4, 5)
    assert run(table).held_at == last and f"the compaction {plan} is pending" in run(table).held_by
    table.execute(plan)
    with active("cancel.after_sweep=raise"), pytest.raises(FailpointHit):
        cancelled_compaction(table)
    (over,) = Snapshot.load(table.storage).aborted
    age(table, over.path)
    written(table, 6, 7)
    done = run(table)
    assert done.held_at < over.requested and f"{over.requested} is claimed, or its cancellation" in done.held_by
    cleaned(table)  # which carries it out
    assert run(table).held_at > over.requested


def test_a_claim_that_is_not_on_the_timeline_yet_is_in_the_way(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2)
    last = writes(table)[-1]
    claimed = to_instant(to_ms(last) + 1)
    table.storage.put(f".hoodie/.heartbeat/{claimed}", b"")
    write(table, 3, 4, 5)
    done = run(table)
    assert done.held_at == last and claimed in done.held_by


def test_a_savepoint_keeps_its_commit_and_all_after_it(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2)
    kept = writes(table)[3]  # the first one after the compaction
    table.storage.put(f"{TIMELINE_FOLDER}/{kept}_{to_instant(to_ms(writes(table)[-1]) + 5)}.savepoint", b"Obj")
    written(table, 3, 4)
    done = run(table)
    assert done.held_at == kept and "savepoint" in done.held_by and writes(table)[0] == kept


def test_replaced_files_keep_their_replace_commit_until_they_are_gone(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2)
    replaced = [name for name in table.storage.list("p").files if name.startswith((".0000", "0000"))]
    overwrite = table.write([(7, 7, "v7")], operation="insert_overwrite").instant
    written(table, 3, 4)
    done = run(table)
    assert done.held_at == overwrite and "waits for a clean" in done.held_by
    rows = table.agreed()
    for name in replaced:
        table.storage.delete(path_below("p", name))
    done = run(table)
    assert overwrite in done.instants and table.agreed() == rows
    later = write(table, 5)  # goes on in the successor
    assert len(table.agreed()) == len(rows) + 1 and later


def test_a_file_of_a_failed_write_is_in_the_way_until_it_may_go(tmp_path: Path) -> None:
    table = LiveTable(tmp_path, buckets=1)
    written(table, 1, 2)
    failed = table.begin().put("p", [(9, 9, "never")])
    failed.transaction.abort()
    (orphan,) = [name for name in table.storage.list("p").files if failed.instant in name]
    path = path_below("p", orphan)
    table.storage.put(path, table.storage.read(path_below("p", sorted(table.storage.list("p").files)[0])))  # late
    last = max(one for one in writes(table) if one < failed.instant)
    written(table, 3, 4)
    done = run(table)
    assert done.held_at == last and path in done.held_by
    age(table, path)
    done = run(table)
    assert done.removed == (path,) and failed.instant not in done.instants
    assert any(one > failed.instant for one in done.instants) and len(table.agreed()) == 4


def test_a_tombstone_in_a_live_file_group_is_not_in_the_way(tmp_path: Path) -> None:
    table = LiveTable(tmp_path, buckets=1)
    written(table, 1, 2)
    failed = table.begin().put("p", [(9, 9, "never")])
    failed.transaction.abort()
    written(table, 3, 4)
    done = run(table)
    assert any(one > failed.instant for one in done.instants) and not done.removed
    assert len(table.agreed()) == 4
    table.compact()
    write(table, 5)
    assert len(table.agreed()) == 5


def test_a_plan_that_was_cancelled_is_in_the_way_for_a_day_and_is_taken_away_then(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2)
    plan = cancelled_compaction(table)
    last = max(one for one in writes(table) if one < plan)
    written(table, 3, 4)
    done = run(table)
    assert done.held_at == last and f"{plan} was cancelled" in done.held_by
    (over,) = Snapshot.load(table.storage).aborted
    age(table, over.path)
    done = run(table)
    assert any(one > plan for one in done.instants) and not Snapshot.load(table.storage).aborted
    assert not [name for name in table.storage.list("p").files if plan in name]
    assert len(table.agreed()) == 4


def test_what_is_young_stays(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2, 3)
    cleaned(table)
    options = ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=3600)
    done = run(table, options)
    assert not done.instants and "younger than 3600 s" in done.held_by
    for one in Snapshot.load(table.storage).completed[:2]:
        age(table, one.path)
    assert len(run(table, options).instants) == 2


def test_the_instants_that_a_clean_kept_stay_and_the_clean(tmp_path: Path) -> None:
    from lakelatch.timeline import service_metadata

    table = LiveTable(tmp_path)
    written(table, 1, 2, 3)
    kept = writes(table)[4]
    last_ms = to_ms(writes(table)[-1])
    clean = f"{TIMELINE_FOLDER}/{to_instant(last_ms + 1)}_{to_instant(last_ms + 2)}.{CLEAN}"
    table.storage.put(clean, clean_metadata(kept))
    assert service_metadata.read_earliest_retained(table.storage.read(clean), clean) == kept
    written(table, 4, 5)
    done = run(table)
    assert done.held_at == kept and "clean" in done.held_by
    assert table.storage.exists(clean) and len(table.agreed()) == 5


def clean_metadata(kept: str) -> bytes:
    import io

    import fastavro

    schema = {
        "type": "record",
        "name": "HoodieCleanMetadata",
        "fields": [
            {"name": "earliestCommitToRetain", "type": "string"},
            {"name": "partitionMetadata", "type": {"type": "map", "values": "string"}},
        ],
    }
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [{"earliestCommitToRetain": kept, "partitionMetadata": {}}])
    return sink.getvalue()


# -- what is read back


def test_time_travel_and_incremental_reads_go_over_what_was_archived(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2, 3)
    completions = sorted(one.completion or "" for one in Snapshot.load(table.storage).completed)
    past = {time: table.as_of(time) for time in completions}
    since = {time: table.since(time) for time in completions}
    assert len(run(table).instants) >= 4
    assert {time: table.as_of(time) for time in completions} == past
    assert {time: table.since(time) for time in completions} == since


def test_was_my_commit_committed_is_answered_from_the_history(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2, 3)
    manager = table.manager()
    log = manager.context.log
    events = [event for event in log.events_after(0, log.tail()) if event.kind == "complete"]
    done = run(table)
    first = next(event for event in events if event.instant in done.instants)
    assert not table.storage.exists(first.path)
    assert log.projections.was_shown(first)
    assert not log.projections.was_shown(type(first)(**{**vars(first), "time": "20990101000000000"}))


def test_a_rolled_back_instant_stays_rolled_back_when_its_rollback_is_archived(tmp_path: Path) -> None:
    table = LiveTable(tmp_path, buckets=1)
    written(table, 1, 2)
    failed = table.begin().put("p", [(9, 9, "never")])
    failed.transaction.abort()
    written(table, 3, 4, 5)
    rollback = next(one for one in Snapshot.load(table.storage).completed if one.action == "rollback")
    done = run(table)
    assert rollback.requested in done.instants
    assert not [name for name in table.storage.list(TIMELINE_FOLDER).files if rollback.requested in name]
    assert len(table.agreed()) == 5 and table.manager().recover() == []


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"hoodie.keep.min.commits": "30"}, "hoodie.keep.max.commits=30 is not above hoodie.keep.min.commits=30"),
        ({"hoodie.keep.min.commits": "few"}, "hoodie.keep.min.commits='few' is no whole number"),
        ({"hoodie.archive.beyond.savepoint": "true"}, "is not supported"),
        ({"hoodie.timeline.compaction.batch.size": "1"}, "is out of range"),
    ],
)
def test_bad_options_are_refused(values: dict[str, str], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        ArchivingOptions.from_options(values)


def test_hudis_defaults_are_taken() -> None:
    options = ArchivingOptions.from_options({})
    assert (options.automatic, options.min_commits, options.max_commits, options.merged_files) == (True, 20, 30, 10)


def test_the_api_and_the_command_archive_without_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import lakelatch
    from lakelatch.console.main import main

    table = LiveTable(tmp_path)
    written(table, 1, 2, 3)
    options = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "lakelatch.archive.minimum.age.seconds": 0}
    done = lakelatch.archive(str(tmp_path), options)
    assert len(done.instants) == 5
    written(table, 4)
    told = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
    assert main(["archive", str(tmp_path), *told]) == 0
    assert "instants archived" in capsys.readouterr().out
    assert main(["archive", str(tmp_path), *told]) == 0
    assert "everything stays: no more than 3 writes" in capsys.readouterr().out


def test_what_begins_and_completes_during_the_look_is_not_passed(tmp_path: Path) -> None:
    table = LiveTable(tmp_path)
    written(table, 1, 2)
    last = max(one.completion or "" for one in Snapshot.load(table.storage).completed)
    looks: list[str] = []

    def write_meanwhile(operation: str, path: str) -> None:
        if operation == "list" and path == ".hoodie/.cancel":
            looks.append(path)
            if len(looks) == 2:  # the first one is for requests that are left over
                written(table, 3, 4, 5)

    manager = table.manager(FaultyStorage(table.storage, before=write_meanwhile))
    done = table.archive(manager=manager, options=AT_ONCE)
    assert len(looks) > 1 and done.instants and max(done.instants) < last
