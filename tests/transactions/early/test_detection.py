"""Two writers meet in a file group while both are at work: the one that was requested later learns it, and only it."""

from __future__ import annotations

import pickle

import pytest
from bare_table import add_file, commit, write
from early_writes import GROUP, Writer, early_manager
from one_table import Table

from lakelatch.errors import InvalidRequest, TransactionEnded, WriteConflict
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER, heartbeat_path
from lakelatch.locks.contract import LockScope
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.checks import in_order
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.base.outcome import Conflicted, Staged
from lakelatch.transactions.conflicts.report import CONFLICTS_FOLDER, recent_losses
from lakelatch.transactions.early.notes import aborted_path
from lakelatch.transactions.markers.files import MARKERS_FOLDER

SAME_BUCKET = "00000003-5a1c-44b5-93a1-4fa8f12f3d2b-0"
STRATEGIES = ["simple_direct", "transactional_direct"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("group", [GROUP, SAME_BUCKET], ids=["the file group", "its bucket"])
def test_the_later_writer_ends_where_an_earlier_one_is(table: Table, strategy: str, group: str) -> None:
    early, late = Writer.begin(table, strategy), Writer.begin(table, strategy)
    kept = early.write(group)
    marker = early.transaction.markers.path_of("p", kept.path.removeprefix("p/"))
    with pytest.raises(WriteConflict) as caught:
        late.write()
    conflict = caught.value
    assert conflict.early and conflict.winner == early.instant and conflict.file_groups == [("p", GROUP)]
    assert conflict.seen_time == to_instant(table.storage.stat(marker).modified_ms)
    assert "is at work on" in str(conflict) and early.transaction.state.action in str(conflict)
    assert type(pickle.loads(pickle.dumps(conflict))) is WriteConflict
    assert late.told and not early.told
    assert table.data_files() == [kept.path]
    late.transaction.abort(late.transaction.found_early())
    assert early.commit(kept).instant == early.instant
    assert table.completed() == [early.instant] and table.leftovers() == [] and table.data_files() == [kept.path]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_earlier_writer_goes_on_and_tells_the_later_one(table: Table, strategy: str) -> None:
    early, late = Writer.begin(table, strategy), Writer.begin(table, strategy)
    late.write()
    with late.attempt() as files:
        files.announce("elsewhere", late.name())
        stat = early.write()
        table.system.advance(1)
        with pytest.raises(WriteConflict, match=early.instant):
            files.look()
        with pytest.raises(WriteConflict, match=early.instant):
            files.announce("q", late.name())
    with pytest.raises(WriteConflict) as caught:
        late.commit()
    assert caught.value.early and caught.value.winner == early.instant and caught.value.seen_time
    assert early.commit(stat).instant == early.instant
    assert table.completed() == [early.instant] and table.leftovers() == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_other_partitions_and_buckets_are_in_nobodys_way(table: Table, strategy: str) -> None:
    early, late = Writer.begin(table, strategy), Writer.begin(table, strategy)
    stats = [early.write(), late.write(partition="q"), late.write("00000004-x"), late.write(partition="")]
    early.commit(stats[0])
    assert late.commit(*stats[1:]).instant == late.instant


def test_a_write_marked_aborted_is_over_for_every_attempt_at_once(table: Table) -> None:
    """A second attempt, and every other task, looks at one file and ends: nothing is announced or listed."""
    early, late = Writer.begin(table), Writer.begin(table)
    early.write()
    with pytest.raises(WriteConflict):
        late.write()
    calls: list[tuple[str, str]] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: calls.append((operation, path)))
    for _ in range(3):
        with pytest.raises(WriteConflict) as caught:
            late.write("00000009-other", storage=storage)
        assert caught.value.winner == early.instant
    assert calls == [("read", aborted_path(late.instant))] * 3


def test_under_leases_an_aborted_write_leaves_no_marker_and_no_lease(table: Table) -> None:
    early, late = Writer.begin(table, "transactional_direct"), Writer.begin(table, "transactional_direct")
    early.write()
    with pytest.raises(WriteConflict):
        late.write()
    assert late.transaction.markers.announced() == []
    assert [holder.key for holder in table.provider().holders("file_group/")] == []


def test_dead_and_ended_writers_are_not_concurrent(table: Table) -> None:
    dead, gone, vanished = (Writer.begin(table) for _ in range(3))
    late = Writer.begin(table)
    for writer in (dead, gone, vanished):
        writer.transaction.markers.announce("p", writer.name())
    table.expire(dead.instant)
    table.storage.delete(heartbeat_path(gone.instant))
    for suffix in ("requested", "inflight"):  # as a rollback leaves it that was stopped before it cleaned up
        table.storage.delete(f".hoodie/timeline/{vanished.instant}.deltacommit.{suffix}")
    table.storage.put(f"{HEARTBEAT_FOLDER}/no-instant", b"")
    table.storage.put(f"{MARKERS_FOLDER}/20200101000000000/p/{late.name()}.marker.CREATE", b"")
    assert late.commit(late.write()).instant == late.instant


def test_a_write_that_has_lost_and_keeps_its_files_is_not_concurrent(table: Table) -> None:
    lost = Writer.begin(table)
    stat = lost.write()
    write(table.manager(), "unrelated")
    other = table.manager().begin()
    commit(other, add_file(other, GROUP, partition="p"))
    intent = Commit(lost.transaction.context)
    intent.start(lost.transaction, Staged(CommitMetadata((stat,), "UPSERT")), in_order(), keep_files=True)
    outcome = run(lost.transaction.context, intent)
    assert isinstance(outcome, Conflicted) and outcome.files_kept
    assert table.storage.exists(stat.path) and table.storage.exists(heartbeat_path(lost.instant))
    late = Writer.begin(table)
    kept = late.write()
    assert late.commit(kept).instant == late.instant
    lost.transaction.abort(outcome.conflict)
    assert table.leftovers() == [] and table.data_files().count(stat.path) == 0


@pytest.mark.parametrize("action", ["compaction", "logcompaction", "clustering"])
def test_table_services_are_not_concurrent_writers(table: Table, action: str) -> None:
    """Java's make markers; they are live, and earlier."""
    manager = early_manager(table)
    plan = manager.schedule(lambda folder: b"plan", action)
    assert plan is not None
    service = manager.execute(plan, action)
    late = Writer.begin(table)
    service.markers.open()
    service.markers.announce("p", f"{GROUP}_0-0-0_{plan}.parquet")
    late.write()
    assert not late.told
    if action == "compaction":  # its requested file still says what it was
        service.commit(CommitMetadata((), "COMPACT", compacted=True))
        late.write()
        assert not late.told


def test_what_had_completed_before_is_not_concurrent_though_its_cleanup_failed(table: Table) -> None:
    faulty = FaultyStorage(table.storage, [Fault(UNAVAILABLE, "delete", ".hoodie/.heartbeat")])
    done = early_manager(table, storage=faulty).begin()
    commit(done, add_file(done, GROUP, partition="p"))
    assert table.storage.exists(heartbeat_path(done.instant))
    late = Writer.begin(table)
    assert late.commit(late.write()).instant == late.instant


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("order", ["winner began earlier", "winner began later"])
def test_what_has_completed_since_is_concurrent_as_long_as_its_markers_are_there(
    table: Table, strategy: str, order: str
) -> None:
    faulty = FaultyStorage(table.storage, [Fault(UNAVAILABLE, "delete", ".hoodie/.temp")])
    others = early_manager(table, storage=faulty)
    before = others.begin() if order == "winner began earlier" else None
    loser = Writer.begin(table, strategy)
    winner = before or others.begin()
    done = commit(winner, add_file(winner, GROUP, partition="p"))
    with pytest.raises(WriteConflict) as caught:
        loser.write()
    assert caught.value.winner == winner.instant and caught.value.seen_time == done.completion
    assert "completed first" in str(caught.value)


@pytest.mark.parametrize("check_commits", [True, False])
def test_writers_that_committed_and_cleaned_up_are_found_in_the_log_if_asked(table: Table, check_commits: bool) -> None:
    loser = Writer.begin(table, check_commits=check_commits)
    quick = Writer.begin(table)
    done = quick.commit(quick.write())
    assert not table.storage.exists(heartbeat_path(quick.instant))
    if check_commits:
        loser.write(partition="q")
        with pytest.raises(WriteConflict) as caught:
            loser.write()
        assert caught.value.early and (caught.value.seen_slot, caught.value.seen_time) == (done.slot, done.completion)
    else:
        stat = loser.write()
        with pytest.raises(WriteConflict) as caught:
            loser.commit(stat)
        assert not caught.value.early
    assert caught.value.winner == quick.instant


def test_the_log_is_read_once_and_only_what_is_new_after_that(table: Table) -> None:
    loser = Writer.begin(table, check_commits=True)
    for number in range(5):
        other = Writer.begin(table)
        other.commit(other.write(f"{number:08d}-x", "q"))
    reads: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "read" and path.startswith(LOG_FOLDER):
            reads.append(path)

    with loser.attempt(FaultyStorage(table.storage, before=before)) as files:
        for number in range(10):
            files.announce("p", f".{number:08d}-y_1.log")
    assert len(reads) == 5  # each slot once


def test_a_look_lists_one_partition_of_each_live_instant_and_no_more(table: Table) -> None:
    others = [Writer.begin(table) for _ in range(6)]
    for number, other in enumerate(others):
        for partition in ("p", "q", "r/s"):
            other.transaction.markers.announce(partition, f".{number + 10:08d}-x_1.log")
    late = Writer.begin(table)
    calls: list[tuple[str, str]] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: calls.append((operation, path)))
    late.write(partition="r/s", storage=storage)
    listed = [path for operation, path in calls if operation == "list"]
    folders = [f"{MARKERS_FOLDER}/{other.instant}" for other in others]  # a marker server's files lie there as well
    assert listed == [HEARTBEAT_FOLDER, *(path for folder in folders for path in (folder, f"{folder}/r/s"))]
    claim_read = ("read", heartbeat_path(late.instant))  # once the beat is a fifth of a second old, on a slow machine
    others_read = [call for call in calls if call != claim_read]
    assert len(others_read) == len(listed) + 10  # abort three times, marker, open, heartbeat twice, its age, file, note


def test_two_writers_never_end_each_other(table: Table) -> None:
    """They meet in two file groups, in opposite order, and each has begun in one of them before the other looks."""
    early, late = Writer.begin(table), Writer.begin(table)
    stats = [early.write("00000001-x")]
    late.write("00000002-x")
    with pytest.raises(WriteConflict):
        late.write("00000001-x")
    stats.append(early.write("00000002-x"))
    assert early.commit(*stats).instant == early.instant


def test_a_write_is_marked_aborted_only_by_writers_that_go_on(table: Table) -> None:
    """The second of three loses to the first; the third, which meets only the second, has no need to lose."""
    first, second, third = (Writer.begin(table) for _ in range(3))
    first.write("00000001-x")
    stat = third.write("00000002-x")
    with pytest.raises(WriteConflict):
        second.write("00000001-x")
    with pytest.raises(WriteConflict):
        second.write("00000002-x")
    assert not third.told
    second.transaction.abort(second.transaction.found_early())
    assert third.commit(stat).instant == third.instant


@pytest.mark.parametrize("fate", ["at work", "completed", "dead", "rolled back"])
def test_a_commit_looks_whether_its_winner_still_stands(table: Table, fate: str) -> None:
    early, late = Writer.begin(table), Writer.begin(table)
    stat, kept = late.write(), early.write()
    assert late.told
    if fate == "completed":
        early.commit(kept)
    elif fate == "dead":
        table.expire(early.instant)
    elif fate == "rolled back":
        early.transaction.abort()
    if fate in ("dead", "rolled back"):
        assert late.commit(stat).instant == late.instant
        return
    with pytest.raises(WriteConflict) as caught:
        late.commit(stat)
    assert caught.value.early and caught.value.winner == early.instant
    assert table.completed() == ([early.instant] if fate == "completed" else [])
    assert late.transaction.status == "aborted"


def test_the_error_counts_all_that_tasks_have_done(table: Table) -> None:
    early, late = Writer.begin(table), Writer.begin(table)
    early.write()
    table.system.advance(1)
    late.write(partition="q")
    with late.attempt() as files:
        files.create("r", late.name(), b"four", 5)
        table.system.advance(2)
    with pytest.raises(WriteConflict), late.attempt() as files:
        table.system.advance(4)
        files.announce("p", late.name())
    conflict = late.transaction.found_early()
    assert conflict is not None
    assert (conflict.rows_lost, conflict.bytes_lost, conflict.task_s_lost) == (15, 8, 6.0)
    assert conflict.time_lost_s == 7.0
    late.transaction.abort(conflict)
    (loss,) = recent_losses(table.storage)
    assert (loss.instant, loss.winner, loss.early, loss.rows_lost) == (late.instant, early.instant, True, 15)
    assert loss.task_s_lost == 6.0 and loss.file_groups == (("p", GROUP),)


def test_tasks_end_when_their_instant_has_ended(table: Table) -> None:
    writer = Writer.begin(table)
    with pytest.raises(TransactionEnded), writer.attempt() as files:
        for turn in files.watched(range(3)):
            assert turn == 0
            writer.transaction.abort()
            table.system.advance(1)
    assert table.leftovers() == []


def test_a_look_waits_for_its_time(table: Table) -> None:
    early, late = Writer.begin(table), Writer.begin(table, delay_ms=2000, period_ms=5000)
    late.write()
    with late.attempt() as files:
        early.write()
        files.look()
        table.system.advance(2)
        with pytest.raises(WriteConflict):
            files.look()
        files.look()  # not again before the period is over
        table.system.advance(5)
        with pytest.raises(WriteConflict):
            files.look()


def test_without_early_detection_the_storage_is_read_no_more_than_before(table: Table) -> None:
    calls: list[str] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: calls.append(path))
    transaction = table.manager(storage=storage).begin()
    assert transaction.early_detection() is None and transaction.found_early() is None
    stat = add_file(transaction, GROUP, partition="p")
    del calls[:]
    commit(transaction, stat)
    assert not [
        path for path in calls if path in (aborted_path(transaction.instant), HEARTBEAT_FOLDER, CONFLICTS_FOLDER)
    ]


def test_detection_travels_without_its_secrets_being_shown(table: Table) -> None:
    early, late = Writer.begin(table), Writer.begin(table, "transactional_direct")
    early.write()
    detection = late.transaction.early_detection()
    assert detection is not None
    scope = LockScope(table.storage.uri, {"hoodie.write.lock.redis.password": "s3cret"})
    provider = type(detection.provider)(scope)
    object.__setattr__(detection, "provider", provider)
    assert "s3cret" not in repr(detection)
    copy = pickle.loads(pickle.dumps(detection))
    with copy.open() as strategy, pytest.raises(WriteConflict, match=early.instant):
        strategy.announce("p", late.name())
    assert late.told


def test_a_task_closes_its_own_locks_and_not_its_drivers(table: Table) -> None:
    writer = Writer.begin(table, "transactional_direct")
    detection = writer.transaction.early_detection()
    assert detection is not None
    with detection.open() as strategy:
        locks = strategy.detection.locks
        strategy.announce("p", writer.name())
    with pytest.raises(InvalidRequest, match="closed"):
        locks.acquire("table", 1)
    assert writer.commit(writer.write()).instant == writer.instant


def test_a_concurrent_writer_is_told_once_by_each_attempt(table: Table) -> None:
    early, late = Writer.begin(table), Writer.begin(table)
    for group in ("00000001-x", "00000002-x"):
        late.write(group)
    told: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == aborted_path(late.instant):
            told.append(path)

    with early.attempt(FaultyStorage(table.storage, before=before)) as files:
        for group in ("00000001-x", "00000002-x"):
            files.announce("p", early.name(group))
    assert len(told) == 1 and late.told
