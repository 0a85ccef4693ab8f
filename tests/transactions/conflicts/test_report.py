"""The list of recent conflicts, the options of early detection, and the wait before a loser tries again."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from bare_table import add_file, commit, write
from early_writes import GROUP, Writer, early_manager
from one_table import Table

from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.engine.table.manager import open_manager
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.system import RealThreads
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.transactions.base.settings import (
    EARLY_COMMITS_OPTION,
    EARLY_DELAY_OPTION,
    EARLY_OPTION,
    EARLY_PERIOD_OPTION,
    EARLY_STRATEGY_OPTION,
    MARKER_TYPE_OPTION,
    MODE_OPTION,
    NON_BLOCKING,
    OPTIMISTIC,
    SERVER_MARKERS,
    SINGLE_WRITER,
    EarlySettings,
    TransactionSettings,
)
from lakelatch.transactions.conflicts.report import CONFLICTS_FOLDER, CONFLICTS_KEPT, Work, recent_losses
from lakelatch.transactions.early.strategies import (
    SimpleDirectStrategy,
    TimelineServerStrategy,
    TransactionalDirectStrategy,
    find_marker_strategy,
)
from lakelatch.transactions.transaction import Transaction
from lakelatch.transactions.winner import wait_for_winner

DIRECT = "org.apache.hudi.table.marker.SimpleDirectMarkerBasedDetectionStrategy"
TRANSACTIONAL = "org.apache.hudi.table.marker.SimpleTransactionDirectMarkerBasedDetectionStrategy"
SERVER = "org.apache.hudi.timeline.service.handlers.marker.AsyncTimelineServerBasedDetectionStrategy"


def lose(table: Table, storage: FaultyStorage | None = None) -> tuple[Transaction, str]:
    """A write that loses at its commit, and the instant of its winner."""
    loser = table.manager(storage=storage).begin()
    stat = add_file(loser, "a")
    won = write(table.manager(), "a")
    with pytest.raises(WriteConflict):
        commit(loser, stat)
    return loser, won.instant


def test_a_loss_at_the_commit_is_listed(table: Table) -> None:
    assert recent_losses(table.storage) == []
    loser = table.manager().begin()
    stat = add_file(loser, "a")
    won = write(table.manager(), "a")
    table.system.advance(2)
    with pytest.raises(WriteConflict) as caught:
        loser.commit(CommitMetadata((stat,), "UPSERT"), work=Work(rows=7, size_bytes=70, task_ms=1500))
    assert (caught.value.rows_lost, caught.value.bytes_lost, caught.value.task_s_lost) == (7, 70, 1.5)
    assert "7 rows, 70 bytes, 1.5 task seconds" in str(caught.value)
    (loss,) = recent_losses(table.storage)
    assert (loss.instant, loss.winner, loss.winner_action) == (loser.instant, won.instant, "deltacommit")
    assert (loss.seen_slot, loss.seen_time, loss.early, loss.inflight) == (won.slot, won.completion, False, False)
    assert (loss.rows_lost, loss.bytes_lost, loss.task_s_lost, loss.time_lost_s) == (7, 70, 1.5, 2.0)
    assert loss.file_groups == (("", "a"),) and loss.writer == loss.winner_writer == table.manager().writer


def test_a_commits_own_numbers_tell_the_work_if_nobody_counted() -> None:
    stats = (
        WriteStat("", "a", "a.log", num_writes=2, total_write_bytes=70),
        WriteStat("", "b", "b.log", num_deletes=3, total_write_bytes=7),
    )
    assert Work.of(CommitMetadata(stats, "UPSERT")) == Work(rows=5, size_bytes=77)


@pytest.mark.parametrize("limit", [1, 2])
def test_the_last_so_many_are_listed(table: Table, limit: int) -> None:
    instants = [lose(table)[0].instant for _ in range(3)]
    assert [loss.instant for loss in recent_losses(table.storage, limit)] == instants[-limit:]


def test_the_list_is_bounded_and_keeps_the_last(table: Table) -> None:
    for number in range(CONFLICTS_KEPT + 2):
        table.storage.put(f"{CONFLICTS_FOLDER}/2020010100000{number:04d}", b"{}")
    loser, _ = lose(table)
    names = table.storage.list(CONFLICTS_FOLDER).files
    assert len(names) == CONFLICTS_KEPT and names[-1] == loser.instant and names[0] == "20200101000000003"
    assert [loss.instant for loss in recent_losses(table.storage)] == [loser.instant]  # the others hold nothing


@pytest.mark.parametrize("operation", ["put", "list", "delete"])
def test_a_list_that_cannot_be_written_fails_no_abort(
    table: Table, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(CONFLICTS_KEPT):
        table.storage.put(f"{CONFLICTS_FOLDER}/2020010100000{number:04d}", b"{}")
    storage = FaultyStorage(table.storage, [Fault(UNAVAILABLE, operation, CONFLICTS_FOLDER)])
    loser, winner = lose(table, storage)
    assert storage.failed == 1 and loser.status == "aborted" and table.completed() == [winner]
    assert table.rollbacks() == 1 and table.leftovers() == []
    assert loser.instant in caplog.text


def test_only_as_many_file_groups_are_kept_as_people_read(table: Table) -> None:
    loser = table.manager().begin()
    groups = [f"g{number:02d}" for number in range(30)]
    stats = [add_file(loser, group) for group in groups]
    write(table.manager(), *groups)
    with pytest.raises(WriteConflict):
        commit(loser, *stats)
    (loss,) = recent_losses(table.storage)
    assert loss.file_group_count == 30 and len(loss.file_groups) == 20


@pytest.mark.parametrize("mode", [NON_BLOCKING, SINGLE_WRITER])
def test_early_detection_is_for_optimistic_control_only(mode: str) -> None:
    with pytest.raises(InvalidRequest, match=MODE_OPTION) as caught:
        TransactionSettings.from_options({EARLY_OPTION: "true", MODE_OPTION: mode})
    assert mode in str(caught.value) and caught.value.details["option"] == EARLY_OPTION
    assert TransactionSettings.from_options({EARLY_OPTION: "false", MODE_OPTION: mode}).early is None


def test_what_the_options_say() -> None:
    assert TransactionSettings.from_options({}).early is None
    options = {EARLY_OPTION: "TRUE", MODE_OPTION: OPTIMISTIC}
    assert TransactionSettings.from_options(options).early == EarlySettings()
    options |= {EARLY_STRATEGY_OPTION: TRANSACTIONAL, EARLY_COMMITS_OPTION: "true"}
    options |= {EARLY_DELAY_OPTION: "5", EARLY_PERIOD_OPTION: "250"}
    assert TransactionSettings.from_options(options).early == EarlySettings(TRANSACTIONAL, True, 5, 250)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (EARLY_OPTION, "yes"),
        (EARLY_COMMITS_OPTION, "1"),
        (EARLY_PERIOD_OPTION, "1"),
        (EARLY_DELAY_OPTION, "-1"),
        (EARLY_DELAY_OPTION, "soon"),
        (MARKER_TYPE_OPTION, "INDIRECT"),
    ],
)
def test_wrong_values_are_refused_also_if_it_is_off(option: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=option):
        TransactionSettings.from_options({option: value})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (None, SimpleDirectStrategy),
        ("simple_direct", SimpleDirectStrategy),
        (DIRECT, SimpleDirectStrategy),
        ("transactional_direct", TransactionalDirectStrategy),
        (TRANSACTIONAL, TransactionalDirectStrategy),
    ],
)
def test_strategies_are_found_by_short_and_by_hudis_names(name: str | None, kind: type) -> None:
    assert find_marker_strategy(name) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (None, TimelineServerStrategy),
        ("timeline_server", TimelineServerStrategy),
        (SERVER, TimelineServerStrategy),
    ],
)
def test_strategies_for_a_marker_server_are_found(name: str | None, kind: type) -> None:
    assert find_marker_strategy(name, SERVER_MARKERS) is kind


@pytest.mark.parametrize("name", ["simple_direct_bloom", "timeline_server_bloom"])
def test_a_strategy_of_earlier_versions_is_refused_as_any_unknown_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match=EARLY_STRATEGY_OPTION) as caught:
        find_marker_strategy(name)
    assert name in str(caught.value) and "simple_direct" in str(caught.value)


def test_a_strategy_for_other_markers_falls_back_and_says_so(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_marker_strategy(SERVER) is SimpleDirectStrategy
        assert SERVER in caplog.text and "simple_direct is used instead" in caplog.text
        caplog.clear()
        assert find_marker_strategy(DIRECT, SERVER_MARKERS) is TimelineServerStrategy
        assert DIRECT in caplog.text and "timeline_server is used instead" in caplog.text
        caplog.clear()
        options = {EARLY_OPTION: "true", MARKER_TYPE_OPTION: "timeline_server_based"}
        settings = TransactionSettings.from_options(options)
        assert settings.early == EarlySettings(marker_type=SERVER_MARKERS) and caplog.text == ""
    early, late = Writer.begin(table, SERVER), Writer.begin(table, SERVER)
    early.write()
    with pytest.raises(WriteConflict):
        late.write()


def test_an_unknown_strategy_is_refused_before_anything_begins(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="Did you mean 'simple_direct'"):
        early_manager(table, "simple_directs")
    assert table.leftovers() == []


@pytest.mark.parametrize("strategy", ["simple_direct", "transactional_direct"])
def test_locks_of_one_process_are_refused_where_tasks_need_them(table: Table, strategy: str) -> None:
    options = {EARLY_OPTION: "true", EARLY_STRATEGY_OPTION: strategy, "hoodie.write.lock.provider": "in_process"}
    if strategy == "simple_direct":
        with open_manager(table.storage, ManagerOptions.from_options(options)) as manager:
            assert manager.settings.early is not None
        return
    with (
        pytest.raises(InvalidRequest, match="in_process") as caught,
        open_manager(table.storage, ManagerOptions.from_options(options)),
    ):
        pass
    assert caught.value.details["option"] == EARLY_STRATEGY_OPTION


def conflict_of(table: Table) -> tuple[Writer, WriteConflict]:
    early, late = Writer.begin(table), Writer.begin(table)
    early.write()
    with pytest.raises(WriteConflict) as caught:
        late.write()
    return early, caught.value


class Sleeping(RealThreads):
    """A table's `System` in which something happens at the third sleep."""

    def __init__(self, table: Table, event: Callable[[], object]) -> None:
        self._system, self._event = table.system, event
        self.slept: list[float] = []

    def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self._system.sleep(duration_s)
        if len(self.slept) == 3:
            self._event()

    def monotonic_ns(self) -> int:
        return self._system.monotonic_ns()

    def realtime_ms(self) -> int:
        return self._system.realtime_ms()

    def random(self) -> float:
        return self._system.random()

    def new_id(self) -> str:
        return self._system.new_id()


@pytest.mark.parametrize("fate", ["commits", "aborts", "dies"])
def test_a_loser_waits_until_its_winner_has_ended(table: Table, fate: str) -> None:
    winner, conflict = conflict_of(table)
    stat = winner.write("00000008-x")

    def event() -> None:
        if fate == "commits":
            winner.commit(stat)
        elif fate == "aborts":
            winner.transaction.abort()
        else:
            table.expire(winner.instant)

    system = Sleeping(table, event)
    assert wait_for_winner(table.manager().context.observer, conflict, 1000, system)
    assert len(system.slept) == 3


def test_the_wait_is_bounded_and_grows_between_looks(table: Table) -> None:
    winner, conflict = conflict_of(table)
    system = Sleeping(table, lambda: None)
    assert not wait_for_winner(table.manager().context.observer, conflict, 20, system)
    assert sum(system.slept) == pytest.approx(20) and 5 < len(system.slept) < 60
    assert table.storage.exists(heartbeat_path(winner.instant))


def test_a_winner_that_has_completed_is_not_waited_for(table: Table) -> None:
    loser = table.manager().begin()
    stat = add_file(loser, GROUP)
    write(table.manager(), GROUP)
    with pytest.raises(WriteConflict) as caught:
        commit(loser, stat)
    system = Sleeping(table, lambda: None)
    assert wait_for_winner(table.manager().context.observer, caught.value, 20, system)
    assert system.slept == []
