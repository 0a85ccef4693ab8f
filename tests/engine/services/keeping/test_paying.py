"""Compactions that nobody asked for: what pays, for nothing where nothing does, and never at a writer's expense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from executors import run_here
from live_table import LiveTable
from table import Writing, meanwhile

import lakelatch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.report import DONE, FAILED
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.inline import after_commit
from lakelatch.engine.services.rewrites.budget import SPENT, spent_today
from lakelatch.engine.services.service import ServiceContext
from lakelatch.failpoints import active
from lakelatch.format.slices.table_view import TableView
from lakelatch.locks.contract import LockScope, service_key
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.lease import Lease
from lakelatch.storage.contract import FileStatus, Storage
from lakelatch.system import REAL_SYSTEM, RealSystem
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.actions import COMPACTION
from lakelatch.timeline.instant import requested
from lakelatch.timeline.metadata import CompactionPlan
from lakelatch.timeline.plans.service_plan import read_service_plan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC
from lakelatch.transactions.manager import TransactionManager

EACH = {"lakelatch.rewrite.commits": "1"}
LOGS_MAX, MB = 5, 1024 * 1024


class LargeFiles(FaultyStorage):
    """Says that each file has so many MB."""

    def __init__(self, behind: Storage, mb: int = 10) -> None:
        super().__init__(behind)
        self.mb = mb

    def stat(self, path: str) -> FileStatus:
        return replace(super().stat(path), size_bytes=self.mb * MB)


class LargeLogs(FaultyStorage):
    """Says that the logs of one partition have so many MB, as base files do, and those of others nearly nothing."""

    def stat(self, path: str) -> FileStatus:
        is_large = path.endswith(".parquet") or path.startswith("p/")
        return replace(super().stat(path), size_bytes=10 * MB if is_large else 1)


class WrittenInBulk(FaultyStorage):
    """Says that each base file has 10 MB, and each log so many bytes; counts what it is asked."""

    def __init__(self, behind: Storage, log_bytes: int) -> None:
        super().__init__(behind)
        self.log_bytes, self.asked = log_bytes, 0

    def stat(self, path: str) -> FileStatus:
        self.asked += 1
        return replace(super().stat(path), size_bytes=10 * MB if path.endswith(".parquet") else self.log_bytes)


class Later(RealSystem):
    """The real machine, at a later time of day."""

    ahead_ms = 0

    def realtime_ms(self) -> int:
        return super().realtime_ms() + self.ahead_ms


def table_at(root: Path, mode: str = NON_BLOCKING) -> LiveTable:
    table = LiveTable(root, mode)
    table.system = Later()
    return table


@pytest.fixture
def table(tmp_path: Path, one_day: None) -> LiveTable:
    return table_at(tmp_path / "table")


def upserted(
    table: LiveTable,
    number: int,
    options: Mapping[str, str] | None = None,
    storage: Storage | None = None,
    here: bool = False,
    committed: Callable[[], object] = lambda: None,
    manager: TransactionManager | None = None,
    after_s: float = 61,
    bytes_written: int = 1,
) -> CommitResult:
    """An upsert of four rows, with the services behind it as these options say; by an executor, or `here`.

    It is taken for one of `bytes_written`.
    """
    assert isinstance(table.system, Later)
    table.system.ahead_ms += round(after_s * 1000)
    writing = table.begin(manager=manager).put("p", [(key, number, f"v{number}") for key in range(4)])
    result = replace(writing.commit(), bytes_written=bytes_written)
    committed()
    opened = replace(table.opened, storage=storage or table.storage)
    context = ServiceContext(opened, writing.manager, table.context(None if here else run_here).executor)
    return after_commit(result, context, Call(options).services())


def logs_to_merge(table: LiveTable) -> int:
    """The most logs that a reader has to merge into a file group."""
    found = TableView.load(table.storage, table.opened.config).latest()
    return max(len(one.fresh_logs) for one in found)


def compactions(table: LiveTable) -> int:
    return sum(1 for name in table.timeline() if name.endswith(".compaction.requested"))


def test_a_table_that_is_upserted_all_day_keeps_few_logs_without_anybodys_call(table: LiveTable) -> None:
    most = []
    for number in range(12):
        upserted(table, number)
        most.append(logs_to_merge(table))
    assert max(most) < LOGS_MAX, most
    assert compactions(table) == 2
    assert [row[2:] for row in table.agreed()] == [(11, "v11")] * 4


def test_between_two_compactions_lies_a_minute_however_many_writes_there_are(table: LiveTable) -> None:
    assert upserted(table, 0, EACH).services
    assert not any(upserted(table, number, EACH, after_s=9).services for number in range(1, 7))
    assert upserted(table, 7, EACH, after_s=9).services and compactions(table) == 2


def test_a_look_is_not_missed_where_another_writers_commit_had_the_turn(table: LiveTable) -> None:
    off, second = {"lakelatch.rewrite.automatic": "false"}, {"lakelatch.rewrite.commits": "2"}
    found = [upserted(table, number, off if number % 2 else second).services for number in range(40)]
    assert any(found), "each second commit is by a writer that looks for nothing"


def test_one_option_turns_it_off_and_so_does_what_hudis_say(table: LiveTable) -> None:
    said = ("lakelatch.rewrite.automatic", "hoodie.compact.inline", "hoodie.compact.schedule.inline")
    for number in range(2):
        for key in said:
            assert not upserted(table, number, {key: "false", **EACH}).services
    assert logs_to_merge(table) == 2 * len(said) and not compactions(table)


def test_what_costs_more_than_it_saves_is_left_and_takes_no_lock(table: LiveTable) -> None:
    taken: list[str] = []

    class Noted(FilesystemLockProvider):
        def acquire(self, key: str, timeout_s: float) -> Lease:
            taken.append(key)
            return super().acquire(key, timeout_s)

    manager = table.manager(provider=Noted(LockScope(table.storage.uri, {})))
    for number in range(6):
        upserted(table, number, {"lakelatch.compact.least.log.percent": "100000"}, manager=manager)
    assert taken == [service_key("planning.compaction")], "one look, after the fifth"
    assert not compactions(table)


def test_a_day_has_a_budget_and_the_next_one_has_it_again(table: LiveTable) -> None:
    storage = LargeFiles(table.storage)
    # Two file groups: at first 10 MB of logs each to read and to write, later 20 MB to read and 10 to write.
    options = {"lakelatch.rewrite.daily.mb": "130", **EACH}
    runs = [upserted(table, number, options, storage).services for number in range(4)]
    assert [[run.detail.split(",")[0] for run in found] for found in runs] == [
        ["2 base files"],
        ["2 base files"],
        ["1 base files"],
        [],
    ]
    snapshot = Snapshot.load(table.storage)
    assert spent_today(table.context(), COMPACTION, snapshot) == 130 * MB
    tomorrow = ManualSystem(REAL_SYSTEM.realtime_ms() + 86_400_000)
    assert spent_today(table.context(manager=table.manager(system=tomorrow)), COMPACTION, snapshot) == 0


@pytest.mark.parametrize("said", ["1" * 15, "9" * 400, "-1", "1e9", "", "٣", "7"])
def test_a_sum_that_is_not_right_is_not_believed(table: LiveTable, said: str) -> None:
    storage = LargeFiles(table.storage)
    runs = [*upserted(table, 0, EACH, storage).services, *upserted(table, 1, EACH, storage).services]
    before = spent_today(table.context(), COMPACTION, Snapshot.load(table.storage))
    path = requested(runs[-1].instant, COMPACTION).path
    plan = CompactionPlan.from_avro(table.storage.read(path), path)
    table.storage.put(path, replace(plan, extra={**plan.extra, SPENT: said}).to_avro())
    assert spent_today(table.context(), COMPACTION, Snapshot.load(table.storage)) == before
    upserted(table, 2, EACH, storage)
    spent = spent_today(table.context(), COMPACTION, Snapshot.load(table.storage))
    assert spent == before * 8 // 5, "40 MB, then 60 twice"


def test_a_large_log_is_compacted_however_many_logs_others_have(table: LiveTable) -> None:
    """As many others as are looked at have more log files, of a few rows each, beside larger base files."""
    off = {"lakelatch.rewrite.automatic": "false"}
    others = [f"q{number:03}" for number in range(70)]
    bases = table.begin()
    for partition in ("p", *others):
        bases.put(partition, [(1, 0, "x" * 64)])
    bases.commit()
    table.compact()
    for number in range(4):
        writing = table.begin()
        for partition in others:
            writing.put(partition, [(1, number, "y")])
        writing.commit()
    table.write([(key, 8, " ".join(map(str, range(2_000)))) for key in range(4)])
    storage = LargeLogs(table.storage)
    upserted(table, 9, off)
    found = upserted(table, 10, EACH, storage).services
    plans = [read_service_plan(table.storage, run.instant, COMPACTION) for run in found if run.service == COMPACTION]
    assert [{partition for partition, _ in plan.groups} for plan in plans] == [{"p"}]


def test_a_process_of_its_own_does_little_while_its_caller_waits(table: LiveTable) -> None:
    storage = LargeFiles(table.storage, mb=20)
    found = upserted(table, 0, EACH, storage, here=True).services
    assert [run.detail.split(",")[0] for run in found] == ["1 base files"], "40 MB each, and 64 at once"


def test_a_plan_of_a_dead_writer_is_carried_out_and_one_that_was_asked_for_is_left(table: LiveTable) -> None:
    with active("compact.before_commit=raise"):
        (failed,) = upserted(table, 0, EACH).services
    table.all_died()
    (plan,) = lakelatch.waiting_plans(str(table.root))
    later = [run.instant for number in range(1, 12) for run in upserted(table, number, EACH).services]
    assert failed.outcome == FAILED and later[0] == plan
    table.write([(1, 12, "v12")])
    asked = table.plan()
    assert not upserted(table, 13, EACH).services
    assert lakelatch.waiting_plans(str(table.root)) == [asked]


def test_a_large_plan_of_a_dead_writer_is_left_to_writers_with_a_session(table: LiveTable) -> None:
    with active("compact.before_commit=raise"):
        upserted(table, 0, EACH, LargeFiles(table.storage, mb=40))
    table.all_died()
    (plan,) = lakelatch.waiting_plans(str(table.root))
    assert not any(upserted(table, number, EACH, here=True).services for number in range(1, 12))
    assert [run.instant for run in upserted(table, 12, EACH).services][:1] == [plan]


def test_a_writer_that_is_under_way_does_not_lose_to_it(tmp_path: Path) -> None:
    table = table_at(tmp_path / "table", OPTIMISTIC)
    for number in range(4):
        upserted(table, number)
    before: list[Writing] = []
    with meanwhile(lambda: table.write([(1, 9, "v9")], "q"), "compact.before_commit"):
        (run,) = upserted(table, 4, committed=lambda: before.append(table.begin().put("p", [(1, 9, "v9")]))).services
    assert run.outcome == DONE and logs_to_merge(table) == 1
    before[0].commit()
    assert [row[2:] for row in table.agreed()] == [(4, "v4"), (9, "v9"), (4, "v4"), (4, "v4"), (9, "v9")]


def test_no_archiving_keeps_the_count_from_being_right(table: LiveTable) -> None:
    few = {"hoodie.keep.min.commits": "6", "hoodie.keep.max.commits": "7"}
    for number in range(7):
        upserted(table, number, {"lakelatch.rewrite.automatic": "false"})
    assert upserted(table, 7, few).services, (
        "with eight on the timeline, of which seven or eight will be there for ever"
    )


@pytest.mark.parametrize(("log_mb", "most"), [(2, 1), (1, 2), (0.6, 4)])
def test_large_upserts_are_compacted_as_soon_as_they_come_to_a_fifth(
    table: LiveTable, log_mb: float, most: int
) -> None:
    """Four commits of so many MB to each base file of 10 MB; a look that was in vain puts the next one off for none."""
    storage = WrittenInBulk(table.storage, round(log_mb * MB))
    with_base_files(table)
    found = [upserted(table, number, storage=storage, bytes_written=4 * MB).services for number in range(1, 5)]
    assert [len(runs) for runs in found] == [int(number % most == 0) for number in range(1, 5)]


def test_what_loads_a_table_by_upserts_is_not_written_twice_at_once(table: LiveTable) -> None:
    storage = WrittenInBulk(table.storage, 2 * MB)
    assert not upserted(table, 0, storage=storage, bytes_written=4 * MB).services, "there is no base file"


def test_a_small_commit_makes_no_request_for_what_a_large_one_looks_for(table: LiveTable) -> None:
    with_base_files(table)
    storage = WrittenInBulk(table.storage, 2 * MB)
    assert not upserted(table, 1, storage=storage, bytes_written=4 * MB - 1).services
    assert storage.asked == 0
    off = {"lakelatch.rewrite.automatic": "false"}
    assert not upserted(table, 2, off, storage, bytes_written=4 * MB).services
    assert upserted(table, 3, storage=storage, bytes_written=4 * MB).services


def test_large_upserts_within_a_minute_are_compacted_once(table: LiveTable) -> None:
    with_base_files(table)
    storage = WrittenInBulk(table.storage, 2 * MB)
    found = [
        upserted(table, number, storage=storage, bytes_written=4 * MB, after_s=61 if number == 1 else 9).services
        for number in range(1, 4)
    ]
    assert [len(runs) for runs in found] == [1, 0, 0]


def with_base_files(table: LiveTable) -> None:
    """Brings the table's rows into base files."""
    table.write([(key, 0, "v0") for key in range(4)], "p")
    table.compact()
