"""Transactions over several tables: seen in all of them or in none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier, Event, Thread, current_thread
from typing import Any

import pytest
from several_tables import FIRST, OPTIMISTIC, Tables, killed_at, rows, values

import lakelatch
from lakelatch.engine.several.transaction import TablesTransaction
from lakelatch.errors import CommitUnknown, InvalidRequest, Unavailable, WriteConflict
from lakelatch.failpoints import calling
from lakelatch.storage import open_storage
from lakelatch.storage.contract import PutUnknown
from lakelatch.testing.faults.plan import Fault
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.log.decisions import DECISIONS_FOLDER
from lakelatch.timeline.log.events import COMPLETE, ROLLBACK, WITHDRAW, slot_path
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import LOG_VERSION

SECOND = {1: 11, 2: 20}
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def write_all(tables: Tables, given: Mapping[int, int], options: Mapping[str, object] = OPTIMISTIC, at: int = 2) -> Any:
    with lakelatch.transaction(tables.paths, options) as tx:
        for path in tables.paths:
            tx.upsert(path, rows(given, at))
    return tx


def kinds_since(tables: Tables, number: int) -> list[str]:
    """The events of a table's log since its first write."""
    log = tables.log(number)
    return [event.kind for event in log.events_after(1, log.tail())]


# -- all or nothing ---------------------------------------------------------------------------------------------------


def test_nothing_is_seen_inside_the_block_and_everything_after_it(tables: Tables) -> None:
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))
        assert tables.now() == [FIRST, FIRST] and tx.results == {}
    assert tables.now() == [SECOND, SECOND] == tables.cut()
    assert {path: one.rows_written for path, one in tx.results.items()} == dict.fromkeys(tables.paths, 1)
    for number in range(2):
        last = tables.log(number).tail().events
        assert [event.kind for event in last] == [COMPLETE] and last[0].decision


def test_an_exception_aborts_it(tables: Tables) -> None:
    with pytest.raises(ZeroDivisionError), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        tx.upsert(tables.paths[0], rows({1: 11}, 2))
        tx.upsert(tables.paths[1], rows({1: 1 // 0}, 2))
    assert tables.now() == [FIRST, FIRST]
    assert kinds_since(tables, 0)[0] == ROLLBACK
    write_all(tables, {1: 11})
    assert tables.now() == [SECOND, SECOND]


def test_a_conflict_in_one_table_leaves_all_as_they_were(tables: Tables) -> None:
    """What others commit after the transaction's moment is in its way, also before it has written that table."""
    with pytest.raises(WriteConflict), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        tx.to_arrow(tables.paths[0])
        tables.write(1, {1: 7})
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))
    assert tables.now() == [FIRST, {1: 7, 2: 20}]
    assert kinds_since(tables, 0)[-2:] == [ROLLBACK, COMPLETE]


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_conflict_names_the_table_and_says_that_the_block_is_to_be_run_again(tables: Tables, isolation: str) -> None:
    block = lakelatch.transaction(tables.paths, OPTIMISTIC, isolation)
    with pytest.raises(WriteConflict, match=r"part of a transaction .* run the block again$") as found, block as tx:
        tx.to_arrow(tables.paths[1])
        tables.write(1, {1: 7})
        tx.upsert(tables.paths[0], rows({1: 11}, 2))
        if isolation == "snapshot":
            tx.upsert(tables.paths[1], rows({1: 11}, 2))
    assert found.value.details["table"] == open_storage(tables.paths[1]).uri in found.value.message


def test_tables_of_arrow_are_changed_without_spark_in_all_ways(tables: Tables) -> None:
    first, second = (lakelatch.open(path, OPTIMISTIC) for path in tables.paths)
    with lakelatch.transaction([first, second]) as tx:
        tx.update(first, "id = 1", {"v": "v + 1", "at": "2"})
        tx.delete(first.path, "id = 2")
        merge = tx.merge(second, rows({1: 12, 3: 30}, 2))
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        tx.overwrite(second, rows({3: 31}, 3), condition="id = 3")
    assert tables.now() == [{1: 11}, {1: 12, 2: 20, 3: 31}]


def test_reads_are_of_one_moment(tables: Tables) -> None:
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        before = values(tx.to_arrow(tables.paths[0]))
        tables.write(1, {1: 7})
        assert [before, values(tx.to_arrow(tables.paths[1]))] == [FIRST, FIRST]


def test_a_statement_that_is_refused_leaves_the_others(tables: Tables) -> None:
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        with pytest.raises(InvalidRequest):
            tx.upsert(tables.paths[0], rows({1: 11}).rename_columns(["other", "v", "at"]))
        tx.upsert(tables.paths[1], rows({1: 11}, 2))
    assert tables.now() == [FIRST, SECOND] and list(tx.results) == [tables.paths[1]]


@pytest.mark.parametrize("locks", [{}, {"lakelatch.lock.elision": "off"}], ids=["without locks", "with locks"])
def test_transactions_that_cross_all_end_and_none_is_torn(tmp_path: Path, locks: Mapping[str, object]) -> None:
    """Three tables, two of which each transaction writes: those that meet each other give way in one order."""
    tables, ended = Tables(tmp_path, 3), []
    options = {**NON_BLOCKING, **locks}
    together = Barrier(3)

    def write(number: int) -> None:
        together.wait()
        for turn in range(4):
            chosen = [tables.paths[number], tables.paths[(number + 1) % 3]]
            with lakelatch.transaction(chosen, options) as tx:
                for path in chosen:
                    tx.upsert(path, rows({10 * number + turn + 10: turn}, 2))
        ended.append(number)

    threads = [Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [0, 1, 2]
    wanted = {number: {10 * number + turn + 10: turn for turn in range(4)} for number in range(3)}
    assert tables.now() == [{**FIRST, **wanted[number], **wanted[(number - 1) % 3]} for number in range(3)]


def test_of_two_that_wait_for_each_other_one_gives_way(tmp_path: Path) -> None:
    """One has the middle table and wants the last one, and another one has that and wants the middle one."""
    tables, staged, goes_on, crossed = Tables(tmp_path, 3), Event(), Event(), Event()

    def write(number: int, then: Callable[[], object] = lambda: None) -> None:
        with lakelatch.transaction(tables.paths[number:], NON_BLOCKING) as tx:
            for path in tables.paths[number:]:
                tx.upsert(path, rows({10 + number: number}, 2))
            then()

    def wait() -> None:
        staged.set()
        goes_on.wait(60)

    of_all = Thread(target=write, args=(0, wait))

    def at(point: str) -> None:
        if not current_thread().name.endswith("table2"):
            return
        if point == "commit.before_slot" and not goes_on.is_set():
            goes_on.set()
            crossed.wait(2)  # or the other one has given way before it has that table
        elif point == "commit.after_slot":
            crossed.set()

    with calling(at, ["commit.before_slot", "commit.after_slot"]):
        of_all.start()
        assert staged.wait(60)
        write(1)
        of_all.join()
    assert tables.now() == [{**FIRST, 10: 0}, {**FIRST, 10: 0, 11: 1}, {**FIRST, 10: 0, 11: 1}]


# -- writers that die, and answers that are lost -----------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
def test_what_a_dead_writer_has_not_decided_is_aborted_by_the_next_one(tables: Tables, number: int) -> None:
    killed_at(tables, "several.before_decision@1")
    assert tables.now() == [FIRST, FIRST] == tables.cut()
    tables.write(number, {2: 7})
    assert tables.cut()[number] == {1: 10, 2: 7} and tables.cut()[1 - number] == FIRST
    assert kinds_since(tables, number)[0] == WITHDRAW
    tables.write(1 - number, {2: 7})
    assert tables.now() == [{1: 10, 2: 7}] * 2


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_decided_is_shown_by_whoever_comes_next(tables: Tables, number: int) -> None:
    killed_at(tables, "several.after_decision@1")
    assert tables.now() == [FIRST, FIRST]
    tables.write(number, {2: 7})
    assert tables.now()[number] == {1: 11, 2: 7} and tables.now()[1 - number] == FIRST
    assert tables.cut()[1 - number] == SECOND


def test_resolve_shows_what_is_decided(tables: Tables) -> None:
    killed_at(tables, "several.after_decision@1")
    assert [lakelatch.resolve(path) for path in tables.paths] == [True, True]
    assert tables.now() == [SECOND, SECOND]


def test_resolve_believes_the_table_where_its_decision_is_gone(tables: Tables) -> None:
    write_all(tables, {1: 11})
    name = tables.log(0).tail().events[0].decision
    for turn in range(70):
        tables.write(0, {3: turn}, at=turn)
    for turn in range(34):
        with lakelatch.transaction(tables.paths[:1], OPTIMISTIC) as tx:
            tx.upsert(tables.paths[0], rows({3: turn}, at=100 + turn))
    folder = Path(tables.paths[0], DECISIONS_FOLDER)
    assert name not in {one.name for one in folder.iterdir()}
    assert lakelatch.resolve(tables.paths[1]) is True and lakelatch.resolve(tables.paths[1], give_up=True) is True
    assert name not in {one.name for one in folder.iterdir()}


def interrupted(_: str) -> None:
    raise KeyboardInterrupt


def fails(_: str) -> None:
    raise Unavailable("the storage does not answer")


@pytest.mark.parametrize("failing", [interrupted, fails])
@pytest.mark.parametrize("point", ["several.before_decision", "several.after_decision"])
def test_an_error_at_the_decision_leaves_nobody_waiting(
    tables: Tables, point: str, failing: Callable[[str], object]
) -> None:
    """What it comes before is aborted at once, and what it comes after is shown: heartbeats would last for minutes.

    An error says that nothing is committed, and so there is none after the decision: who tried again would do it twice.
    """
    is_decided = point.endswith("after_decision")
    is_told = is_decided and failing is fails
    with calling(failing, [point]), nullcontext() if is_told else pytest.raises((KeyboardInterrupt, Unavailable)):
        write_all(tables, {1: 11})
    wanted = SECOND if is_decided else FIRST
    assert tables.now() == [wanted, wanted] == tables.cut()
    for number in range(2):
        tables.write(number, {2: 7}, at=3)
    assert tables.now() == [{**wanted, 2: 7}] * 2


def test_an_error_after_the_decision_says_that_it_is_committed(tables: Tables) -> None:
    """Its file cannot be made in one table."""
    folder = Path(tables.paths[1], ".hoodie/timeline")

    def hide(_: str) -> None:
        folder.rename(folder.with_name("hidden"))
        folder.write_bytes(b"")

    with calling(hide, ["several.after_decision"]), pytest.raises(CommitUnknown, match="is committed") as found:
        write_all(tables, {1: 11})
    folder.unlink()
    folder.with_name("hidden").rename(folder)
    assert lakelatch.resolve(found.value) is True and tables.cut() == [SECOND, SECOND]


def test_commits_of_another_engine_are_read_and_not_overwritten(tables: Tables) -> None:
    """They are in no slot, and later than all that is."""
    timeline = Path(tables.paths[0], ".hoodie/timeline")
    tables.write(0, {1: 55})
    last = tables.log(0).tail()
    Path(tables.paths[0], slot_path(last.number)).unlink()
    assert len(list(timeline.glob("*.deltacommit"))) == 2
    assert tables.cut() == [{1: 55, 2: 20}, FIRST]
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        read = values(tx.to_arrow(tables.paths[0]))
        tx.upsert(tables.paths[0], rows({1: read[1] + 1}, 10))
    assert tables.now()[0] == {1: 56, 2: 20}


def test_resolve_aborts_what_nobody_has_decided(tables: Tables) -> None:
    """A decision whose answer was lost may still arrive: until somebody has said, nobody knows."""

    def opened(path: str) -> FaultyStorage:
        return FaultyStorage(open_storage(path), [Fault("lost_before", "put_if_absent", DECISIONS_FOLDER)])

    block = TablesTransaction(tables.paths, OPTIMISTIC, open_table=opened)
    with pytest.raises(CommitUnknown, match="did not tell") as found, block as tx:
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))
    assert tables.now() == [FIRST, FIRST] == tables.cut()
    assert lakelatch.resolve(found.value) is False and lakelatch.resolve(found.value) is False
    assert lakelatch.resolve(tables.paths[1]) is False
    tables.write(1, {1: 7})
    assert tables.now() == [FIRST, {1: 7, 2: 20}]
    assert lakelatch.resolve(tables.paths[1]) is None


def test_a_decision_that_must_not_be_put_commits_nothing_and_says_where(tables: Tables) -> None:
    """The storage has refused it, so it cannot arrive later either."""
    folder = Path(tables.paths[0], DECISIONS_FOLDER)
    told = f"nothing was committed in any table.*{DECISIONS_FOLDER} of .*{tables.paths[0]}, the first"
    with (
        calling(lambda _: folder.write_bytes(b""), ["several.before_decision"]),
        pytest.raises(Unavailable, match=told) as found,
    ):
        write_all(tables, {1: 11})
    assert not isinstance(found.value, PutUnknown) and tables.now() == [FIRST, FIRST] == tables.cut()
    folder.unlink()
    assert lakelatch.resolve(tables.paths[1]) is False
    write_all(tables, {1: 11})
    assert tables.now() == [SECOND, SECOND]


def test_what_is_no_table_is_not_resolved(tables: Tables) -> None:
    with pytest.raises(InvalidRequest, match=r"there is no table at .*nothing"):
        lakelatch.resolve(f"{tables.folder}/nothing")


def test_a_table_whose_decision_is_lost_can_be_given_up(tables: Tables) -> None:
    killed_at(tables, "several.before_decision@1")
    gone = Path(tables.paths[0])
    gone.rename(gone.with_name("elsewhere"))
    with pytest.raises(Unavailable, match=r"gone.*lakelatch\.resolve"):
        lakelatch.resolve(tables.paths[1])
    with pytest.raises(Unavailable, match=r"gone.*lakelatch\.resolve"):
        tables.write(1, {1: 7})
    assert not gone.exists()
    assert lakelatch.resolve(tables.paths[1], give_up=True) is False
    tables.write(1, {1: 7})
    gone.with_name("elsewhere").rename(gone)
    assert lakelatch.resolve(gone, give_up=True) is False  # which is there, and decides as ever
    assert values(lakelatch.open(tables.paths[1]).to_arrow()) == {1: 7, 2: 20}


# -- isolation --------------------------------------------------------------------------------------------------------


def crossing(tables: Tables, isolation: str) -> None:
    """Two transactions, each of which writes a table that the other one has only read."""
    with lakelatch.transaction(tables.paths, OPTIMISTIC, isolation=isolation) as tx:
        read = [values(tx.to_arrow(path)) for path in tables.paths]
        with_other(tables, isolation)
        tx.upsert(tables.paths[1], rows({1: read[0][1] + 1}, 2))


def with_other(tables: Tables, isolation: str) -> None:
    def other() -> None:
        with lakelatch.transaction(tables.paths, OPTIMISTIC, isolation=isolation) as tx:
            read = [values(tx.to_arrow(path)) for path in tables.paths]
            tx.upsert(tables.paths[0], rows({1: read[1][1] + 1}, 2))

    thread = Thread(target=other)
    thread.start()
    thread.join()


def test_what_was_only_read_may_have_changed_unless_the_transaction_is_serializable(tables: Tables) -> None:
    """The anomaly of snapshot isolation that is called write skew: both add one to the other's ten."""
    crossing(tables, "snapshot")
    assert tables.now() == [{1: 11, 2: 20}, {1: 11, 2: 20}]


def test_a_serializable_transaction_ends_if_what_it_has_read_has_changed(tables: Tables) -> None:
    with pytest.raises(WriteConflict):
        crossing(tables, "serializable")
    assert tables.now() == [{1: 11, 2: 20}, FIRST]
    with lakelatch.transaction(tables.paths, OPTIMISTIC, isolation="serializable") as tx:
        read = [values(tx.to_arrow(path)) for path in tables.paths]
        tx.upsert(tables.paths[1], rows({1: read[0][1] + 1}, 2))
    assert tables.now() == [{1: 11, 2: 20}, {1: 12, 2: 20}]


def test_a_table_that_has_no_row_yet_can_be_read_by_a_serializable_transaction(tables: Tables, tmp_path: Path) -> None:
    path = str(tmp_path / "empty")
    empty = lakelatch.ArrowTable.create(path, "id long, v long, at long", key="id", ordering="at", options=OPTIMISTIC)
    with lakelatch.transaction([*tables.paths, path], OPTIMISTIC, isolation="serializable") as tx:
        assert values(tx.to_arrow(path)) == {}
        tx.upsert(tables.paths[0], rows({1: 11}, 2))
    assert tables.now() == [SECOND, FIRST] and values(empty.to_arrow()) == {} and not empty.verify().findings
    empty.upsert(rows({1: 1}))
    assert values(empty.to_arrow()) == {1: 1}


# -- bad input --------------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_by_name(tables: Tables, tmp_path: Path) -> None:
    first, second = tables.paths
    (tmp_path / "link").symlink_to(first)
    for given, words in {
        (): "at least one",
        (first, f"{first}/"): "table0/? is named twice",
        (first, str(tmp_path / "link")): "named twice",
        (first, str(tmp_path / "none")): "there is no table at .*none",
    }.items():
        with pytest.raises(InvalidRequest, match=words):
            lakelatch.transaction(given)
    with pytest.raises(InvalidRequest, match="give a list"):
        lakelatch.transaction(first)
    with pytest.raises(InvalidRequest, match="isolation='chaos': it is 'snapshot' or 'serializable'"):
        lakelatch.transaction([first, second], isolation="chaos")
    with lakelatch.transaction([first]) as tx:
        with pytest.raises(InvalidRequest, match="table1 is no table of this transaction"):
            tx.upsert(second, rows({1: 1}))
        with pytest.raises(InvalidRequest, match="is open in this thread"), lakelatch.transaction([second]):
            pass
        tx.upsert(first, rows({1: 11}, 2))
    with pytest.raises(InvalidRequest, match="this transaction is committed"):
        tx.upsert(first, rows({1: 12}, 3))
    assert tables.now() == [SECOND, FIRST]


def test_a_table_of_older_writers_has_to_be_upgraded_first(tables: Tables) -> None:
    update_properties(open_storage(tables.paths[1]), {LOG_VERSION: "2"})
    with pytest.raises(InvalidRequest, match=r"table1 has lakelatch\.table\.log\.version=2.*lakelatch upgrade"):
        lakelatch.transaction(tables.paths)
