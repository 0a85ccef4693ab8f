"""The files of slots beside writers that archive and roll back, as Java Hudi does: step by step, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archiver import Archiver
from slots import append

from lakelatch import failpoints
from lakelatch.errors import LakelatchError, TransactionEnded
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.storage import LocalStorage, MemoryStorage, Storage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.actions import ROLLBACK
from lakelatch.timeline.instant import CLAIMS_FOLDER, TIMELINE_FOLDER, Instant, completed, inflight, requested
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, LOG_FOLDER, PLAN, Event, slot_path
from lakelatch.timeline.log.projection import Fate
from lakelatch.timeline.metadata import RollbackMetadata, RollbackPlan

FIRST = 20261121120000000


class Table:
    """A table with a log, and instants that have begun: they count up as the times of slots do."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._last = FIRST

    def log(self, storage: Storage | None = None, slots_kept: int = 32) -> CommitLog:
        return CommitLog(storage or self.storage, slots_kept=slots_kept)

    def time(self, above: str = "") -> str:
        self._last = max(self._last, int(above or 0)) + 1
        return str(self._last)

    def begin(self, action: str = "deltacommit") -> str:
        instant = self.time()
        self.storage.put(requested(instant, action).path, b"")
        self.storage.put(inflight(instant, action).path, b"")
        return instant

    def commit(self, log: CommitLog | None = None, instant: str = "", action: str = "deltacommit") -> Event:
        instant = instant or self.begin(action)
        event = Event(COMPLETE, action, instant, f"op-{instant}", "me", content=b"rows")
        return append(log or self.log(), lambda tail: event, self.time)

    def plan(self, log: CommitLog | None = None) -> Event:
        def take(above: str) -> str:
            time = self.time(above)
            self.storage.put(f"{CLAIMS_FOLDER}/{time}", b"")
            return time

        event = Event(PLAN, "compaction", "", f"op-{self.time()}", "me", content=b"plan")
        planned = append(log or self.log(), lambda tail: event, take)
        self.storage.delete(f"{CLAIMS_FOLDER}/{planned.instant}")
        return planned

    def die_after_slot(self, action: str = "deltacommit") -> Event:
        with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
            self.commit(action=action)
        tail = self.log().tail().event
        assert tail is not None and not self.storage.exists(tail.path)
        return tail

    def foreign_commit(self) -> str:
        instant = self.begin()
        self.storage.put(completed(instant, "deltacommit", self.time()).path, b"java")
        return instant

    def roll_back(self, event: Event, steps: int = 6, action: str = "deltacommit") -> str:
        """As many steps of a rollback as Java takes them: plan, inflight, the completed file, the others, its end."""
        rollback = self.time()
        plan = RollbackPlan(event.instant, action, ())
        done = RollbackMetadata(rollback, event.instant, action, ())
        todo: list[Callable[[], object]] = [
            lambda: self.storage.put(requested(rollback, ROLLBACK).path, plan.to_avro()),
            lambda: self.storage.put(inflight(rollback, ROLLBACK).path, b""),
            lambda: self.storage.delete(event.path),
            lambda: self.storage.delete(inflight(event.instant, action).path),
            lambda: self.storage.delete(requested(event.instant, action).path),
            lambda: self.storage.put(completed(rollback, ROLLBACK, self.time()).path, done.to_avro()),
        ]
        for step in todo[:steps]:
            step()
        return rollback

    def names(self) -> set[str]:
        return set(self.storage.list(TIMELINE_FOLDER).files)


@pytest.fixture(params=["memory", "local"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    yield Table(LocalStorage(str(tmp_path)) if request.param == "local" else MemoryStorage(str(tmp_path)))


def test_claims_lie_where_heartbeats_do() -> None:
    assert CLAIMS_FOLDER == HEARTBEAT_FOLDER


def test_a_tail_that_others_archived_is_not_made_again(table: Table) -> None:
    ours = table.commit()
    foreign = [table.foreign_commit() for _ in range(3)]
    Archiver(table.storage).archive([ours.instant, foreign[0]])
    following = table.commit()
    assert not any(name.startswith(ours.instant) for name in table.names())
    assert following.file in table.names() and following.number == 2


@pytest.mark.parametrize("step", ["level file", "manifest", "no version", "version", "deletion"])
def test_an_archiver_that_stops_halfway_finds_nothing_made_again(table: Table, step: str) -> None:
    ours = table.commit()
    table.foreign_commit()
    seen: list[set[str]] = []

    def meanwhile(name: str) -> None:
        if name == step:
            before = table.names()
            log = table.log()
            log.project(log.tail())
            seen.append(table.names() - before)

    Archiver(table.storage, meanwhile).archive([ours.instant])
    assert seen and not any(seen)
    assert not any(name.startswith(ours.instant) for name in table.names())


@pytest.mark.parametrize("steps", range(3, 7))
def test_a_tail_that_others_rolled_back_is_not_made_again(table: Table, steps: int) -> None:
    ours = table.commit()
    table.roll_back(ours, steps)
    table.commit()
    assert ours.file not in table.names()


def test_a_tail_that_others_restored_away_is_not_made_again_though_no_rollback_tells_of_it(table: Table) -> None:
    ours = table.commit()
    rollback = table.roll_back(ours)
    for name in table.names():
        if name.startswith(rollback):
            table.storage.delete(f"{TIMELINE_FOLDER}/{name}")  # as a restore does in the end
    table.commit()
    assert ours.file not in table.names()


def test_a_commit_that_died_before_its_file_is_shown_by_the_next_writer(table: Table) -> None:
    died = table.die_after_slot()
    table.foreign_commit()
    following = table.commit()
    assert {died.file, following.file} <= table.names()


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_commit_that_died_before_its_file_and_was_rolled_back_as_dead_stays_away(table: Table, steps: int) -> None:
    died = table.die_after_slot()
    table.roll_back(died, steps)
    table.commit()
    assert died.file not in table.names()


def test_a_plan_whose_executor_died_and_that_others_carried_out_and_archived_is_not_made_again(table: Table) -> None:
    """The heartbeat of the executor, which is where a claim lies, is still there."""
    plan = table.plan()
    table.storage.put(f"{CLAIMS_FOLDER}/{plan.instant}", b"")
    table.storage.put(inflight(plan.instant, "compaction").path, b"")
    table.storage.put(completed(plan.instant, "compaction", table.time()).path, b"java")
    table.foreign_commit()
    Archiver(table.storage).archive([plan.instant])
    log = table.log()
    log.project(log.tail())
    assert log.projections.was_shown(plan) and not any(name.startswith(plan.instant) for name in table.names())


@pytest.mark.parametrize("ending", ["archived", "rolled back"])
def test_a_plan_that_is_gone_is_not_made_again(table: Table, ending: str) -> None:
    plan = table.plan()
    table.storage.put(inflight(plan.instant, "compaction").path, b"")
    done = completed(plan.instant, "compaction", table.time())
    table.storage.put(done.path, b"java")
    table.foreign_commit()
    if ending == "archived":
        Archiver(table.storage).archive([plan.instant])
    else:
        for name in [name for name in table.names() if name.startswith(plan.instant)]:
            table.storage.delete(f"{TIMELINE_FOLDER}/{name}")
    table.commit()
    assert not any(name.startswith(plan.instant) for name in table.names())


def test_a_plan_whose_writer_died_before_its_file_is_shown(table: Table) -> None:
    with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
        table.plan()
    table.commit()
    plan = table.log().events_after(0, table.log().tail())[0]
    assert table.storage.read(plan.path) == b"plan"


def test_a_compaction_that_others_completed_first_is_not_completed_twice(table: Table) -> None:
    died = table.die_after_slot("compaction")
    table.storage.put(completed(died.instant, "compaction", table.time()).path, b"java")
    table.commit()
    assert len([name for name in table.names() if name.startswith(f"{died.instant}_")]) == 1


def test_a_compaction_that_was_rolled_back_before_it_was_done_again_is_shown(table: Table) -> None:
    instant = table.begin("compaction")
    plan = Event(COMPLETE, "compaction", instant, "", "", file="none")
    table.roll_back(plan, action="compaction")
    table.storage.put(requested(instant, "compaction").path, b"plan")
    table.storage.put(inflight(instant, "compaction").path, b"")
    with failpoints.active("commit.after_slot=raise"), pytest.raises(LakelatchError):
        table.commit(instant=instant, action="compaction")
    table.commit()
    assert any(name.startswith(f"{instant}_") for name in table.names())


def paused(table: Table, at: Callable[[str, str], bool], meanwhile: Callable[[Event], object]) -> CommitLog:
    """A log whose first commit is paused at a call after its slot, while others do something."""
    done: list[bool] = []

    def before(operation: str, path: str) -> None:
        tail = table.log().tail().event if at(operation, path) and not done else None
        if tail is not None:
            done.append(True)
            meanwhile(tail)

    return table.log(FaultyStorage(table.storage, before=before))


def _counts(operation: str, path: str) -> bool:
    return operation == "list" and path == LOG_FOLDER


def _puts(operation: str, path: str) -> bool:
    return operation == "put_if_absent" and path.startswith(TIMELINE_FOLDER) and path.endswith(".deltacommit")


@pytest.mark.parametrize("at", [_counts, _puts])
def test_a_zombie_whose_commit_was_shown_and_archived_meanwhile_is_told_so_and_brings_nothing_back(
    table: Table, at: Callable[[str, str], bool]
) -> None:
    def meanwhile(tail: Event) -> None:
        log = table.log()
        log.project(log.tail())
        table.foreign_commit()
        Archiver(table.storage).archive([tail.instant])

    zombie = table.commit(paused(table, at, meanwhile))
    assert not any(name.startswith(zombie.instant) for name in table.names())


@pytest.mark.parametrize("at", [_counts, _puts])
@pytest.mark.parametrize("steps", [1, 4, 6])
def test_a_zombie_that_was_rolled_back_as_dead_is_told_so_and_brings_nothing_back(
    table: Table, at: Callable[[str, str], bool], steps: int
) -> None:
    log = paused(table, at, lambda tail: table.roll_back(tail, steps))
    with pytest.raises(TransactionEnded, match="another writer of the table") as caught:
        table.commit(log)
    assert not any(name.startswith(f"{caught.value.details['instant']}_") for name in table.names())


@pytest.mark.parametrize("rollback_is_archived", [False, True])
def test_a_zombie_whose_file_was_there_and_was_rolled_back_before_its_second_look_is_told_so(
    table: Table, rollback_is_archived: bool
) -> None:
    def meanwhile(_: str) -> None:
        tail = table.log().tail().event
        assert tail is not None and table.storage.exists(tail.path)
        rollback = table.roll_back(tail)
        if rollback_is_archived:
            Archiver(table.storage).archive([rollback])

    with failpoints.calling(meanwhile, ["commit.after_projection"]), pytest.raises(TransactionEnded, match="rolled it"):
        table.commit()


@pytest.mark.parametrize("at", [_counts, _puts])
@pytest.mark.parametrize("has_older", [False, True])
def test_a_zombie_whose_rollback_was_archived_meanwhile_is_told_so_and_brings_nothing_back(
    table: Table, at: Callable[[str, str], bool], has_older: bool
) -> None:
    if has_older:
        table.foreign_commit()

    def meanwhile(tail: Event) -> None:
        Archiver(table.storage).archive([table.roll_back(tail)])

    with pytest.raises(TransactionEnded, match="another writer of the table") as caught:
        table.commit(paused(table, at, meanwhile))
    assert not any(name.startswith(f"{caught.value.details['instant']}_") for name in table.names())


def test_a_zombie_whose_file_was_there_and_was_archived_before_its_second_look_is_told_that_it_committed(
    table: Table,
) -> None:
    instant = table.begin()
    with failpoints.calling(lambda _: Archiver(table.storage).archive([instant]), ["commit.after_projection"]):
        assert table.commit(instant=instant).instant == instant
    assert not table.names()


def test_a_zombie_whose_slot_was_removed_and_whose_file_was_archived_is_told_that_it_committed(table: Table) -> None:
    table.commit()
    others = table.log(slots_kept=1)

    class Answerless(FaultyStorage):
        """The zombie's slot is created; before it hears so, others show it, remove the slot and archive the file."""

        def put_if_absent(self, path: str, data: bytes) -> bool:
            created = super().put_if_absent(path, data)
            if path == slot_path(2) and table.storage.exists(path) and not archived:
                tail = table.log().tail().event
                assert tail is not None
                for _ in range(10):
                    table.commit(others)
                archived.append(Archiver(table.storage).archive([tail.instant]))
            return created

    archived: list[str] = []
    zombie = table.commit(table.log(Answerless(table.storage), slots_kept=1))
    assert archived and zombie.number == 2
    assert not any(name.startswith(zombie.instant) for name in table.names())


def test_what_came_back_after_all_is_taken_away_by_the_next_writer(table: Table) -> None:
    """A request that made the file arrives once more, long after."""
    ours = table.commit()
    content = table.storage.read(ours.path)
    table.foreign_commit()
    Archiver(table.storage).archive([ours.instant])
    table.storage.put(ours.path, content)
    table.commit()
    assert ours.file not in table.names()


def test_a_completed_file_without_witness_or_evidence_stays(table: Table) -> None:
    """A commit is never removed on a suspicion: somebody may have tidied the folder."""
    ours = table.commit()
    table.storage.delete(inflight(ours.instant, "deltacommit").path)
    table.commit()
    assert ours.file in table.names()


def test_an_archiver_that_died_between_its_deletions_is_not_overtaken(table: Table) -> None:
    """It removes the oldest first; without the younger one, readers would miss it."""
    older = table.foreign_commit()
    ours = table.commit()

    class Died(Exception):
        pass

    deletions: list[str] = []

    def step(name: str) -> None:
        deletions.extend([name] if name == "deletion" else [])
        if len(deletions) == 4:  # all that is not completed
            raise Died

    with pytest.raises(Died):
        Archiver(table.storage, step).archive([older, ours.instant])
    table.commit()
    assert ours.file in table.names()


@pytest.mark.parametrize("action", ["deltacommit", "compaction", "rollback"])
@pytest.mark.parametrize("left", [requested, inflight])
def test_an_archiver_that_died_between_the_pending_files_leaves_nothing_that_looks_pending(
    table: Table, left: Callable[[str, str], Instant], action: str
) -> None:
    """It removes them in any order, and completed files after all of them; a plan would be carried out once more."""
    ours = table.commit(action=action)
    kept = left(ours.instant, action)
    content = table.storage.read(kept.path)
    completed_content = table.storage.read(ours.path)
    table.foreign_commit()
    Archiver(table.storage).archive([ours.instant])
    table.storage.put(kept.path, content)
    table.storage.put(ours.path, completed_content)
    log = table.log()
    log.project(log.tail())
    assert {kept.file_name, ours.file} <= table.names()


def test_what_became_of_a_file_is_told_by_what_is_there(table: Table) -> None:
    ours = table.commit()
    assert table.log().projections.fate(ours) is Fate.THERE
    table.roll_back(ours)
    assert table.log().projections.fate(ours) is Fate.ROLLED_BACK
