from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from bare_table import add_file, commit, timeline_names, write
from one_table import Table

from lakelatch import failpoints
from lakelatch.errors import CommitUnknown, LockTimeout, TransactionEnded, Unavailable, WriteConflict
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER, heartbeat_path
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.testing.faults.storage import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, inflight, requested
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.transactions.base.elision import OFF
from lakelatch.transactions.base.settings import NON_BLOCKING

T = TypeVar("T")


def test_a_commit_shows_its_files_and_leaves_nothing_else(table: Table) -> None:
    transaction = table.manager().begin()
    assert timeline_names(table.storage) == {
        requested(transaction.instant, "deltacommit").file_name,
        inflight(transaction.instant, "deltacommit").file_name,
    }
    done = commit(transaction, add_file(transaction, "a"), add_file(transaction, "b", partition="day=1"))
    assert (done.instant, done.slot) == (transaction.instant, 1) and done.completion > done.instant
    assert transaction.committed == done
    assert table.completed() == [done.instant]
    assert table.leftovers() == [] and len(table.data_files()) == 2
    assert table.events()[0].token == done.token


def test_the_log_tells_of_beginnings_commits_and_conflicts(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "lakelatch.transactions")
    winner, loser = table.manager().begin(), table.manager().begin()
    done = commit(winner, add_file(winner, "a"))
    with pytest.raises(WriteConflict):
        commit(loser, add_file(loser, "a"))
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("DEBUG", f"deltacommit {winner.instant} has begun, after slot 0") in told
    assert ("INFO", f"deltacommit {winner.instant} is committed: completed at {done.completion}, in slot 1") in told
    (lost,) = [text for level, text in told if level == "INFO" and loser.instant in text]
    assert lost.startswith(f"deltacommit {loser.instant} is not committed: ") and winner.instant in lost


def test_the_first_to_complete_wins_and_the_loser_is_rolled_back(table: Table) -> None:
    early, late = table.manager().begin(), table.manager().begin()
    mine = add_file(early, "a"), add_file(early, "b"), add_file(early, "c", partition="day=1")
    won = commit(late, add_file(late, "b"), add_file(late, "c", partition="day=1"))
    table.system.advance(7.5)
    with pytest.raises(WriteConflict) as caught:
        commit(early, *mine)
    assert caught.value.winner == won.instant
    assert caught.value.file_groups == [("", "b"), ("day=1", "c")]
    assert caught.value.time_lost_s == 7.5
    assert "deltacommit" in str(caught.value) and early.instant in str(caught.value)
    assert table.completed() == [won.instant] and table.rollbacks() == 1
    assert all(early.instant not in path for path in table.data_files())
    assert table.leftovers() == []
    with pytest.raises(TransactionEnded):
        commit(early, *mine)
    write(table.manager(), "a", "b")


def test_different_file_groups_do_not_conflict(table: Table) -> None:
    one, other = table.manager().begin(), table.manager().begin()
    files = add_file(one, "a"), add_file(other, "a", partition="day=1")
    commit(other, files[1])
    commit(one, files[0])
    assert table.completed() == [other.instant, one.instant]


def test_what_completed_before_the_beginning_is_no_conflict(table: Table) -> None:
    write(table.manager(), "a")
    table.place_foreign("20200101000000000", "20200101000001000", "a")
    write(table.manager(), "a")
    assert len(table.completed()) == 3


def test_non_blocking_writers_of_one_group_both_commit(table: Table) -> None:
    one, other = table.manager(NON_BLOCKING).begin(), table.manager(NON_BLOCKING).begin()
    files = add_file(one, "a"), add_file(other, "a")
    commit(other, files[1])
    commit(one, files[0])
    assert table.completed() == [other.instant, one.instant] and len(table.data_files()) == 2


@pytest.mark.parametrize("mode", [NON_BLOCKING, "OPTIMISTIC_CONCURRENCY_CONTROL"])
def test_a_file_group_that_was_replaced_meanwhile_conflicts(table: Table, mode: str) -> None:
    transaction = table.manager(mode).begin()
    mine = add_file(transaction, "a")
    replacing = table.manager(mode).begin("replacecommit")
    new = add_file(replacing, "new")
    replacing.commit(CommitMetadata((new,), "INSERT_OVERWRITE", replaced={"": ("a",)}))
    with pytest.raises(WriteConflict) as caught:
        commit(transaction, mine)
    assert caught.value.file_groups == [("", "a")] and caught.value.winner == replacing.instant


def test_a_replacement_loses_against_a_write_to_what_it_takes_away(table: Table) -> None:
    replacing = table.manager().begin("replacecommit")
    new = add_file(replacing, "new")
    won = write(table.manager(), "a")
    with pytest.raises(WriteConflict) as caught:
        replacing.commit(CommitMetadata((new,), "INSERT_OVERWRITE", replaced={"": ("a",)}))
    assert caught.value.winner == won.instant


@pytest.mark.parametrize("groups", [("a",), ("b",)])
def test_a_foreign_commit_without_a_slot_counts(table: Table, groups: tuple[str, ...]) -> None:
    transaction = table.manager().begin()
    mine = add_file(transaction, "a")
    foreign = table.place_foreign("20991231000000000", "20991231000001000", *groups)
    if groups == ("b",):
        assert commit(transaction, mine).completion > "20991231000001000"  # above every time on the timeline
        return
    with pytest.raises(WriteConflict) as caught:
        commit(transaction, mine)
    assert caught.value.winner == foreign.requested


@pytest.mark.parametrize("action", ["commit", "replacecommit"])
def test_a_foreign_write_of_any_kind_counts_and_so_does_what_it_replaced(table: Table, action: str) -> None:
    transaction = table.manager().begin()
    mine = add_file(transaction, "a")
    written = (WriteStat("", "a", "a_0-0-0_20991231000000000.parquet"),) if action == "commit" else ()
    metadata = CommitMetadata(written, "INSERT_OVERWRITE", replaced={} if written else {"": ("a",)})
    foreign = completed("20991231000000000", action, "20991231000001000")
    table.storage.put(foreign.path, metadata.to_avro())
    with pytest.raises(WriteConflict) as caught:
        commit(transaction, mine)
    assert (caught.value.winner, caught.value.details["winner_action"]) == (foreign.requested, action)


def test_what_the_log_tells_is_not_read_from_the_timeline(table: Table) -> None:
    read: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "read" and path.startswith(TIMELINE_FOLDER):
            read.append(path)

    transaction = table.manager(storage=FaultyStorage(table.storage, before=before)).begin()
    mine = add_file(transaction, "a")
    for group in "bcd":
        write(table.manager(), group)
    commit(transaction, mine)
    assert read == []


def test_a_foreign_write_that_was_pending_then_and_has_completed_since_counts(table: Table) -> None:
    """Requested long before, so that only its completion tells."""
    start = "20200101000000000"
    for suffix in ("requested", "inflight"):
        table.storage.put(f"{TIMELINE_FOLDER}/{start}.deltacommit.{suffix}", b"")
    table.storage.put(heartbeat_path(start), b"")
    transaction = table.manager().begin()
    mine = add_file(transaction, "a")
    table.place_foreign(start, "20991231000001000", "a")
    with pytest.raises(WriteConflict) as caught:
        commit(transaction, mine)
    assert caught.value.winner == start


def test_of_a_foreign_and_an_own_winner_the_first_to_complete_is_named(table: Table) -> None:
    transaction = table.manager().begin()
    mine = add_file(transaction, "a")
    foreign = table.place_foreign("20200101000000000", to_instant(table.system.realtime_ms()), "a")
    table.system.advance(1)
    write(table.manager(), "a")
    with pytest.raises(WriteConflict) as caught:
        commit(transaction, mine)
    assert caught.value.winner == foreign.requested


def test_a_foreign_compaction_is_no_conflict(table: Table) -> None:
    transaction = table.manager().begin()
    mine = add_file(transaction, "a")
    table.place_foreign("20260101000000000", "20991231000001000", "a", operation="COMPACT")
    commit(transaction, mine)
    assert transaction.status == "committed"


def test_a_committed_transaction_cannot_be_used_again(table: Table) -> None:
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    commit(transaction, stat)
    with pytest.raises(TransactionEnded, match="committed"):
        commit(transaction, stat)
    with pytest.raises(TransactionEnded, match="committed"):
        transaction.reopen()
    transaction.abort()  # does nothing
    assert table.completed() == [transaction.instant] and table.rollbacks() == 0 and len(table.data_files()) == 1


@pytest.mark.parametrize("gone", ["heartbeat", "inflight"])
def test_a_commit_after_somebody_ended_it_is_refused(table: Table, gone: str) -> None:
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    path = heartbeat_path(transaction.instant)
    table.storage.delete(path if gone == "heartbeat" else inflight(transaction.instant, "deltacommit").path)
    with pytest.raises(TransactionEnded, match=transaction.instant):
        commit(transaction, stat)
    assert table.completed() == []


def test_a_claim_that_another_operation_took_is_not_ours(table: Table) -> None:
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    path = heartbeat_path(transaction.instant)
    table.storage.put(path, table.storage.read(path).replace(transaction.state.operation_id.encode(), b"0" * 32))
    with pytest.raises(TransactionEnded):
        commit(transaction, stat)


def test_without_the_lock_a_commit_waits_its_time_and_stays_open(table: Table) -> None:
    table.elision = OFF
    transaction = table.manager(lock_timeout_s=0.05).begin()
    stat = add_file(transaction, "a")
    with table.provider().acquire(TABLE_KEY, 1.0), pytest.raises(LockTimeout):
        commit(transaction, stat)
    assert table.completed() == []
    done = commit(transaction, stat)
    assert done.slot == 1 and done.token > 0
    assert table.leftovers() == []


def test_a_storage_that_never_answers_leaves_the_commit_unknown(table: Table) -> None:
    faulty = FaultyStorage(table.storage, [Fault(LOST_BEFORE, "put_if_absent", LOG_FOLDER)])
    transaction = table.manager(storage=faulty).begin()
    stat = add_file(transaction, "a")
    with pytest.raises(CommitUnknown) as caught:
        commit(transaction, stat)
    assert caught.value.details["instant"] == transaction.instant
    with pytest.raises(TransactionEnded, match="unknown"):
        commit(transaction, stat)
    transaction.abort()
    assert table.data_files() != []  # nothing was cleaned up before it was resolved
    table.expire(transaction.instant)
    assert table.manager().recover() == [transaction.instant]
    assert table.data_files() == [] and table.leftovers() == []


@pytest.mark.parametrize("kind", [LOST_AFTER, LOST_BEFORE])
def test_a_lost_answer_about_the_slot_commits_once(table: Table, kind: str) -> None:
    faulty = FaultyStorage(table.storage, [Fault(kind, "put_if_absent", LOG_FOLDER, times=2)])
    done = write(table.manager(storage=faulty), "a")
    assert faulty.failed == {LOST_AFTER: 1, LOST_BEFORE: 2}[kind] and [event.instant for event in table.events()] == [
        done.instant
    ]
    assert table.completed() == [done.instant] and table.leftovers() == []


def test_a_commit_whose_file_cannot_be_written_is_never_called_a_failure(table: Table) -> None:
    """Its slot is there, so the next writer shows it; a caller that was told 'failed' would write it again."""
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    faulty = FaultyStorage(table.storage, [Fault(UNAVAILABLE, "put_if_absent", f"{TIMELINE_FOLDER}/")])
    with pytest.raises(CommitUnknown):
        commit(table.manager(storage=faulty).resume(transaction.state), stat)
    assert table.completed() == []
    write(table.manager(), "b")
    assert table.completed()[0] == transaction.instant
    table.expire(transaction.instant)
    assert table.manager().recover() == [] and table.leftovers() == []


class FarStorage(FaultyStorage):
    """Each of the requests that are made together is carried out, whatever becomes of the others."""

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        answers: list[T] = []
        errors: list[Unavailable] = []
        for request in requests:
            try:
                answers.append(request())
            except Unavailable as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers


@pytest.mark.parametrize("kind", [FaultyStorage, FarStorage])
def test_a_commit_whose_last_look_fails_stands_whether_its_claim_was_removed_beside_it_or_not(
    table: Table, kind: type[FaultyStorage]
) -> None:
    shown: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(f"{TIMELINE_FOLDER}/") and "_" in path:
            shown.append(path)
        elif operation == "list" and path == TIMELINE_FOLDER and len(shown) == 1:
            shown.append("")
            raise Unavailable("the last look fails")

    with pytest.raises(CommitUnknown):
        write(table.manager(storage=kind(table.storage, before=before)), "a")
    [done] = table.completed()
    claims = table.storage.list(HEARTBEAT_FOLDER).files
    assert claims == (() if kind is FarStorage else (done,))
    for claim in claims:
        table.expire(claim)
    assert table.manager().recover() == [] and table.leftovers() == []
    assert table.completed() == [done] and len(table.data_files()) == 1


def test_a_clean_failure_before_the_slot_leaves_it_open(table: Table) -> None:
    transaction = table.manager().begin()
    stat = add_file(transaction, "a")
    for point in ("commit.after_lock", "commit.after_check", "commit.before_slot"):
        with failpoints.active(f"{point}=raise"), pytest.raises(Unavailable):
            commit(transaction, stat)
    assert commit(transaction, stat).slot == 1


def test_failing_to_clean_up_does_not_fail_the_commit(table: Table) -> None:
    faulty = FaultyStorage(table.storage, [Fault(UNAVAILABLE, "delete", ".hoodie/.heartbeat")])
    done = write(table.manager(storage=faulty), "a")
    assert table.leftovers() != []
    table.expire(done.instant)
    assert table.manager().recover() == [] and table.leftovers() == []
    assert table.completed() == [done.instant] and len(table.data_files()) == 1


def test_a_transaction_goes_on_in_another_process(table: Table) -> None:
    began = table.manager().begin()
    stat = add_file(began, "a")
    state = pickle.loads(pickle.dumps(began.state))
    began.hand_over()
    with pytest.raises(TransactionEnded, match="handed over"):
        commit(began, stat)
    resumed = table.manager().resume(state)
    assert commit(resumed, stat).instant == began.instant
    assert table.leftovers() == []


def test_conflicts_are_found_across_a_hand_over(table: Table) -> None:
    began = table.manager().begin()
    stat = add_file(began, "a")
    state = pickle.loads(pickle.dumps(began.state))
    write(table.manager(), "a")
    with pytest.raises(WriteConflict):
        commit(table.manager().resume(state), stat)


def test_a_long_transaction_keeps_the_slots_that_it_must_read(table: Table) -> None:
    write(table.manager(slots_kept=2), "x")
    long = table.manager(slots_kept=2).begin()
    stat = add_file(long, "a")
    others = table.manager(slots_kept=2)
    won = write(others, "a")
    for _ in range(20):
        write(others, "x")
    log = CommitLog(table.storage)
    assert log.tail().watermark == long.state.mark.slot + 1
    with pytest.raises(WriteConflict) as caught:
        commit(long, stat)
    assert caught.value.winner == won.instant
    for _ in range(6):
        write(others, "x")
    assert log.tail().watermark > long.state.mark.slot + 1


def test_a_transaction_whose_slots_are_gone_cannot_commit(table: Table) -> None:
    """Somebody removed its heartbeat, the log moved on, and its own late beat brought the file back."""
    long = table.manager(slots_kept=2).begin()
    stat = add_file(long, "a")
    beat = table.storage.read(heartbeat_path(long.instant))
    table.storage.delete(heartbeat_path(long.instant))
    others = table.manager(slots_kept=2)
    for _ in range(20):
        write(others, "a")
    table.storage.put(heartbeat_path(long.instant), beat)
    with pytest.raises(TransactionEnded):
        commit(long, stat)


def test_threads_share_a_manager(table: Table) -> None:
    manager = table.manager()
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda number: write(manager, f"g{number}"), range(16)))
    assert len({one.instant for one in done}) == 16 and sorted(one.slot for one in done) == list(range(1, 17))
    by_slot = sorted(done, key=lambda one: one.slot)
    assert [one.instant for one in by_slot] == table.completed()
    assert table.leftovers() == []
