"""Cleans beside executors that died or were paused, savepoints, failed writes, other engines and readers."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import fastavro
import pytest
from bare_table import expire
from made_history import MadeHistory, group
from sweep import find_losses

from lakelatch import failpoints
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services.removals import cleaning
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.errors import CorruptTable, InvalidRequest, TransactionEnded
from lakelatch.format.names import LogFile
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.timeline.actions import CLEAN, SAVEPOINT
from lakelatch.timeline.instant import inflight, requested
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.timeline.service_metadata import read_cleaned
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.manager import PlanBusy

A, B, C = ("p", group(0)), ("p", group(1)), ("q", group(0))
ONE = CleaningOptions(commits=1, parallelism=1)
DAY_S = 86_400
POINTS = [name for name in failpoints.NAMES if name.startswith("clean.")]
BESIDE_THE_LOG = [
    "commit.after_lock",
    "commit.after_check",
    "commit.before_slot",
    "commit.after_slot",
    "commit.after_projection",
]


@pytest.fixture
def table(table: MadeHistory) -> MadeHistory:
    for _ in range(4):
        table.write(A, C)
        table.compact_now(A, C)
    return table


def planned(table: MadeHistory) -> str:
    instant = Clean(ONE).schedule(table.context())
    assert instant is not None
    return instant


def make_dead(table: MadeHistory, instant: str) -> None:
    expire(table.memory, instant)


# -- executors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [*POINTS, *BESIDE_THE_LOG])
def test_whoever_comes_after_a_failure_finishes_the_clean(table: MadeHistory, point: str) -> None:
    preview = table.preview(ONE)
    assert preview is not None
    expected = set(preview.paths)
    before = table.files()
    with failpoints.active(f"{point}=raise"), pytest.raises(Exception, match=r"told to fail|created"):
        table.clean(ONE)
    table.system.advance(3600)  # after which whoever has not ended counts as dead
    table.write(B)
    table.clean(ONE)
    assert expected <= before - table.files()
    assert sum(one.action == CLEAN for one in Snapshot.load(table.storage).pending) == 0
    table.clean(ONE)
    table.one.recover()
    assert find_losses(table.storage, table.config) == []
    assert table.slices()


@pytest.mark.parametrize("point", ["clean.before_files", "clean.after_file", "clean.before_commit"])
def test_after_a_dead_executor_the_next_one_goes_on(table: MadeHistory, point: str) -> None:
    """It is gone without a word: its claim is there until it counts as dead."""
    plan = planned(table)
    died = _Thread(lambda: Clean(ONE).execute(table.context(), plan), point)
    died.wait()
    with pytest.raises(PlanBusy):
        Clean(ONE).execute(table.context(), plan)
    make_dead(table, plan)
    result = Clean(ONE).execute(table.context(), plan)
    assert not set(result.files) & table.files()
    died.go_on()
    assert isinstance(died.error, TransactionEnded) and table.cleans() == [plan]
    assert find_losses(table.storage, table.config) == []


def test_two_executors_of_one_plan(table: MadeHistory) -> None:
    plan = planned(table)
    first = _Thread(lambda: Clean(ONE).execute(table.context(), plan), "clean.before_files")
    first.wait()
    assert Clean(ONE).execute_or_leave(table.context(), plan) is None
    assert table.clean(ONE) == [] and table.cleans() == []
    first.go_on()
    assert first.error is None and table.cleans() == [plan]
    assert Clean(ONE).execute_or_leave(table.context(), plan) is None


def test_a_zombie_that_wakes_up_two_cleans_later_removes_nothing_that_lives(table: MadeHistory) -> None:
    plan = planned(table)
    zombie = _Thread(lambda: Clean(ONE).execute(table.context(), plan), "clean.before_files")
    zombie.wait()
    make_dead(table, plan)
    Clean(ONE).execute(table.context(), plan)
    live = A
    for number in range(2):  # two generations of what its plan names: versions, and replaced file groups
        table.write(live, C)
        table.compact_now(live, C)
        before, live = live, ("p", group(0, 7 + number))
        table.overwrite([before], [live])
        table.write(B)
        table.write(B)
        assert table.clean(ONE)
    there, slices = table.files(), table.slices()
    zombie.go_on()
    assert isinstance(zombie.error, TransactionEnded)
    assert table.files() == there and table.slices() == slices
    assert find_losses(table.storage, table.config) == []


def test_a_clean_planned_before_other_commits_takes_what_it_planned(table: MadeHistory) -> None:
    plan = planned(table)
    named = set(cleaning.read_plan(table.storage, plan).paths)
    before = table.files()
    table.write(A, B)
    table.compact_now(A, B)
    result = Clean(ONE).execute(table.context(), plan)
    assert set(result.files) == named and before - table.files() == named
    assert table.slices()


def test_while_a_clean_waits_no_other_is_planned(table: MadeHistory) -> None:
    planned(table)
    table.write(A)
    assert Clean(ONE).schedule(table.context()) is None
    assert table.preview(ONE) is None


# -- readers ----------------------------------------------------------------------------------------------------------


def test_a_reader_of_the_past_is_refused_while_a_clean_is_at_work(table: MadeHistory) -> None:
    """Else the slices that are left of what it needs would be taken for all of it."""
    past = table.completions()[0]
    assert table.slices(past)
    plan = planned(table)
    paused = _Thread(lambda: Clean(ONE).execute(table.context(), plan), "clean.after_file")
    paused.wait()
    with pytest.raises(InvalidRequest, match=plan):
        for one in table.completions()[:-2]:
            table.slices(one)
    paused.go_on()
    with pytest.raises(InvalidRequest, match=plan):
        table.slices(past)


def test_a_view_knows_that_it_was_overtaken(table: MadeHistory) -> None:
    view = table.view()
    assert not view.was_cleaned()
    table.write(B)
    assert not view.was_cleaned()
    planned(table)
    assert view.was_cleaned() and not table.view().was_cleaned()


# -- savepoints -------------------------------------------------------------------------------------------------------


def savepoint(table: MadeHistory, instant: str, files: dict[str, list[str]]) -> None:
    from lakelatch.timeline.instant import completed

    schema = {
        "type": "record", "name": "HoodieSavepointMetadata", "fields": [
            {"name": "savepointedBy", "type": "string"}, {"name": "savepointedAt", "type": "long"},
            {"name": "comments", "type": "string"},
            {"name": "partitionMetadata", "type": {"type": "map", "values": {
                "type": "record", "name": "P", "fields": [
                    {"name": "partitionPath", "type": "string"},
                    {"name": "savepointDataFile", "type": {"type": "array", "items": "string"}}]}}},
            {"name": "version", "type": ["int", "null"]},
        ],
    }  # fmt: skip
    partitions = {key: {"partitionPath": key, "savepointDataFile": names} for key, names in files.items()}
    record = {"savepointedBy": "", "savepointedAt": 0, "comments": "", "partitionMetadata": partitions, "version": 1}
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [record])
    table.storage.put(inflight(instant, SAVEPOINT).path, b"")
    table.storage.put(completed(instant, SAVEPOINT, max(table.completions())).path, sink.getvalue())


def requested_at(table: MadeHistory, completion: str) -> str:
    times = Snapshot.load(table.storage).completion_times()
    return next(instant for instant, time in times.items() if time == completion)


def test_what_a_savepoint_keeps_stays_until_it_is_removed(table: MadeHistory) -> None:
    past = table.completions()[3]
    instant = requested_at(table, past)
    files: dict[str, list[str]] = {}
    for one in table.slices(past):
        files.setdefault(one.partition, []).extend([*one.log_files, *([one.base_file] if one.base_file else [])])
    needed = table.needed_at(past)
    savepoint(table, instant, files)
    table.clean(ONE)
    assert needed <= table.files() and table.slices(past)
    for _ in range(3):
        table.write(B)
    for found in Snapshot.load(table.storage).instants:
        if found.action == SAVEPOINT:
            table.storage.delete(found.path)
    table.clean(ONE)
    assert not needed & table.files()


def test_a_savepoint_that_is_being_made_keeps_everything_since(table: MadeHistory) -> None:
    past = table.completions()[3]
    needed = table.needed_since(past)
    table.storage.put(inflight(requested_at(table, past), SAVEPOINT).path, b"")
    table.clean(ONE)
    assert needed <= table.files()


# -- what failed writes have left -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [B, ("r", group(0))])
def test_tombstones_of_ended_writes_go_when_no_request_can_come_any_more(
    table: MadeHistory, place: tuple[str, str]
) -> None:
    table.clean(ONE)
    begun = table.begin([place])
    begun[0].abort()
    (path,) = (stat.path for stat in begun[1])
    assert table.storage.stat(path).size_bytes == 0
    table.clean(ONE)
    for _ in range(3):
        table.write(C)
    table.clean(ONE)
    assert path in table.files()
    table.system.advance(DAY_S + 7200)
    for _ in range(3):
        table.write(C)
    table.clean(ONE)
    assert path not in table.files()
    assert find_losses(table.storage, table.config) == []


def test_files_of_writes_under_way_stay_however_old(table: MadeHistory) -> None:
    begun = table.begin([B])
    table.system.advance(3 * DAY_S)
    for _ in range(2):
        table.write(C)
        table.clean(CleaningOptions(commits=1, incremental=False))
    assert begun[1][0].path in table.files()
    table.commit(begun)
    assert find_losses(table.storage, table.config) == []


def test_what_an_ended_write_makes_later_goes_as_well(table: MadeHistory) -> None:
    begun = table.begin([B])
    begun[0].abort()
    late = f"p/{LogFile(B[1], begun[0].instant, 9, '1-0-0').name}"
    table.storage.put(late, b"by a task that nobody knew")
    assert find_losses(table.storage, table.config) == [f"{late} is of no completed write"]
    table.system.advance(2 * DAY_S)
    table.clean(CleaningOptions(commits=1, incremental=False))
    assert late not in table.files()


def test_a_file_that_comes_back_is_read_by_nobody_and_goes_again(table: MadeHistory) -> None:
    """A request that is repeated after its file was cleaned: the file is of a version that nobody reads."""
    (result,) = table.clean(ONE)
    slices = table.slices()
    for path in result.files:
        table.storage.put(path, b"rows")
    assert table.slices() == slices
    for _ in range(2):
        table.write(A, C)
        table.compact_now(A, C)
    table.clean(ONE)
    assert not set(result.files) & table.files()


# -- other engines ----------------------------------------------------------------------------------------------------


def by_java(table: MadeHistory, files: dict[str, tuple[str, ...]]) -> str:
    instant = table.one.context.clock.next(max(table.completions()), None)
    plan = CleanPlan(files, "KEEP_LATEST_COMMITS")
    table.storage.put(requested(instant, CLEAN).path, plan.to_avro("file:/elsewhere"))
    table.storage.put(inflight(instant, CLEAN).path, b"")
    return instant


def test_a_plan_of_java_is_left_to_it_until_it_is_old(table: MadeHistory) -> None:
    plan = table.preview(ONE)
    assert plan is not None
    instant = by_java(table, dict(plan.files))
    before = table.files()
    assert table.clean(ONE) == [] and table.files() == before
    table.system.advance(3600)
    result = table.clean(ONE)[0]
    assert result.instant == instant and before - table.files() == set(plan.paths)


def test_a_clean_of_java_is_no_record_for_ours(table: MadeHistory) -> None:
    """It does not say what it has held back, so all partitions are looked at."""
    instant = by_java(table, {"q": ()})
    table.system.advance(3600)
    table.clean(ONE)
    assert instant in table.cleans()
    assert all(path not in table.files() for path in (table.preview(ONE) or CleanPlan({}, "")).paths)


def test_a_plan_past_its_policy_is_called_off_by_the_next_clean(table: MadeHistory) -> None:
    table.write(A)
    plan = table.plan_compaction(A, policy=PlanPolicy(cancellable=True, after_hours=2))
    assert plan is not None
    needed = table.needed_at(plan)
    for hours in (1, 2):
        table.system.advance(hours * 3600)
        assert [one.action for one in Snapshot.load(table.storage).pending] == ["compaction"]
        table.write(C)
        table.write(C)
        table.clean(ONE)
    assert Snapshot.load(table.storage).pending == ()
    assert needed <= table.files() and table.slices()
    with pytest.raises(TransactionEnded):
        table.compact(plan)
    assert find_losses(table.storage, table.config) == []


def test_a_plan_that_a_live_process_works_on_is_not_called_off(table: MadeHistory) -> None:
    table.write(A)
    plan = table.plan_compaction(A, policy=PlanPolicy(cancellable=True, after_hours=0))
    assert plan is not None
    working = table.one.execute(plan)
    assert cleaning.cancel_overdue(table.manager(), CleaningOptions(cancel_delay_minutes=0)) == []
    working.release()
    assert cleaning.cancel_overdue(table.manager(), ONE) == []  # the delay
    table.system.advance(1)
    assert cleaning.cancel_overdue(table.manager(), CleaningOptions(cancel_delay_minutes=0)) == [plan]


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [".hoodie", "/etc", "p/../../q", ".hoodie/timeline"])
def test_a_plan_that_names_what_lies_in_no_partition_is_refused(table: MadeHistory, partition: str) -> None:
    with pytest.raises(CorruptTable, match="partition"):
        CleanPlan.from_avro(CleanPlan({partition: ("x",)}, "").to_avro("/t"))


def test_a_plan_that_cannot_be_read_is_an_error_and_stays(table: MadeHistory) -> None:
    plan = planned(table)
    path = requested(plan, CLEAN).path
    table.storage.put(path, table.storage.read(path)[:-9])
    with pytest.raises(CorruptTable, match=plan):
        table.clean(ONE)
    assert not table.storage.exists(heartbeat_path(plan))


def test_plans_and_metadata_are_read_as_they_were_written(table: MadeHistory) -> None:
    (result,) = table.clean(ONE)
    plan = cleaning.read_plan(table.storage, result.instant)
    again = CleanPlan.from_avro(plan.to_avro(table.storage.uri))
    assert again == plan and set(plan.paths) == set(result.files)
    (clean,) = (one for one in Snapshot.load(table.storage).completed if one.action == CLEAN)
    data = table.storage.read(clean.path)
    assert read_cleaned(data, clean.path) == dict(plan.files)
    record: Any = next(fastavro.reader(io.BytesIO(data)))
    assert plan.earliest is not None and record["earliestCommitToRetain"] == plan.earliest.requested
    assert record["totalFilesDeleted"] == len(result.files)
    assert json.loads(plan.extra["lakelatch.clean.held"]) == {}


class _Thread:
    """Work that stops at a failpoint until it is told to go on."""

    def __init__(self, work: Any, point: str) -> None:
        self._reached, self._go = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self._point = point
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Any) -> None:
        def stop(_: str) -> None:
            if threading.current_thread() is self._thread and not self._reached.is_set():
                self._reached.set()
                assert self._go.wait(60)

        try:
            with failpoints.calling(stop, [self._point]):
                work()
        except BaseException as error:
            self.error = error
        finally:
            self._reached.set()

    def wait(self) -> None:
        assert self._reached.wait(60)

    def go_on(self) -> None:
        self._go.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
