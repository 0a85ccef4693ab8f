"""Who may commit beside whom: each strategy by itself, by its names, and at real commits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from bare_table import add_file, commit, write
from one_table import Table

from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.timeline.plans.clustering_plan import ClusteringPlan
from lakelatch.transactions.base.settings import NON_BLOCKING, TransactionSettings
from lakelatch.transactions.conflicts.contract import Contender, Others, OtherWrite
from lakelatch.transactions.conflicts.strategies import (
    STRATEGY_OPTION,
    BucketConflictStrategy,
    NonBlockingConflictStrategy,
    PreferWriterConflictStrategy,
    SimpleConflictStrategy,
    open_strategy,
)
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.markers.files import MARKERS_FOLDER
from lakelatch.transactions.transaction import OPEN

OURS = "00000003-0000-0000-0000-000000000000-0"
JAVAS = "00000003-5a1c-44b5-93a1-4fa8f12f3d2b-0"
OTHER_BUCKET = "00000004-0000-0000-0000-000000000000-0"
HUDI = "org.apache.hudi.client.transaction."


class Told(Others):
    """Others as a test tells them; `asked` counts the looks at those at work."""

    def __init__(self, completed: Sequence[OtherWrite] = (), inflight: Sequence[OtherWrite] = ()) -> None:
        self._completed, self._inflight = completed, inflight
        self.asked = 0

    def completed(self) -> Sequence[OtherWrite]:
        return self._completed

    def inflight(self, groups: Collection[FileGroup]) -> Sequence[OtherWrite]:
        self.asked += 1
        return self._inflight


def other(instant: str, *groups: FileGroup, operation: str = "UPSERT", action: str = "deltacommit") -> OtherWrite:
    return OtherWrite(instant, action, operation, frozenset(groups))


def mine(*groups: FileGroup, action: str = "deltacommit") -> Contender:
    return Contender("5", action, frozenset(groups))


def test_the_first_of_several_winners_is_named_with_all_that_both_touch() -> None:
    others = Told([other("1", ("p", "x")), other("2", ("p", "a"), ("q", "a"), ("p", "b")), other("3", ("p", "a"))])
    conflict = SimpleConflictStrategy().find(mine(("p", "a"), ("p", "b"), ("p", "c")), others)
    assert conflict is not None and conflict.winner.instant == "2"
    assert conflict.file_groups == {("p", "a"), ("p", "b")}
    assert SimpleConflictStrategy().find(mine(("p", "c")), others) is None and others.asked == 0


@pytest.mark.parametrize("kind", [SimpleConflictStrategy, BucketConflictStrategy, PreferWriterConflictStrategy])
@pytest.mark.parametrize(("operation", "action"), [("COMPACT", "commit"), ("LOG_COMPACT", "deltacommit")])
def test_compactions_are_in_nobodys_way(kind: type[SimpleConflictStrategy], operation: str, action: str) -> None:
    others = Told([other("1", ("p", OURS), operation=operation, action=action)], [other("2", ("p", OURS))])
    assert kind().find(mine(("p", OURS)), others) is None
    others = Told([other("1", ("p", OURS))], [other("2", ("p", OURS))])
    for service in ("compaction", "logcompaction"):
        assert kind().find(mine(("p", OURS), action=service), others) is None
    assert kind().find(mine(("p", OURS)), others) is not None


def test_two_file_ids_of_one_bucket_meet_in_the_bucket_only() -> None:
    others = Told([other("1", ("p", JAVAS))])
    assert SimpleConflictStrategy().find(mine(("p", OURS)), others) is None
    for strategy in (BucketConflictStrategy(), PreferWriterConflictStrategy()):
        conflict = strategy.find(mine(("p", OURS), ("p", OTHER_BUCKET)), others)
        assert conflict is not None and conflict.file_groups == {("p", OURS)}
        assert strategy.find(mine(("q", OURS), ("p", OTHER_BUCKET)), others) is None
        # Without eight digits and a dash it names no bucket, and counts whole.
        assert strategy.find(mine(("p", "000000031")), Told([other("1", ("p", "000000032"))])) is None
        assert strategy.find(mine(("p", "000000031")), Told([other("1", ("p", "000000031"))])) is not None


def test_a_replacing_service_yields_to_live_writers_and_nobody_else_does() -> None:
    at_work = Told(inflight=[other("2", ("p", OURS))])
    conflict = PreferWriterConflictStrategy().find(mine(("p", OURS), action="clustering"), at_work)
    assert conflict is not None and conflict.winner.instant == "2" and at_work.asked == 1
    for strategy, action in (
        (PreferWriterConflictStrategy(), "deltacommit"),
        (PreferWriterConflictStrategy(), "compaction"),
        (BucketConflictStrategy(), "clustering"),
        (SimpleConflictStrategy(), "clustering"),
    ):
        assert strategy.find(mine(("p", OURS), action=action), at_work) is None
    assert at_work.asked == 1


def test_a_writer_loses_to_a_service_that_completed_first() -> None:
    done = Told([other("1", ("p", OURS), operation="CLUSTER", action="replacecommit")])
    conflict = PreferWriterConflictStrategy().find(mine(("p", OURS)), done)
    assert conflict is not None and conflict.winner.instant == "1"


def test_under_non_blocking_control_only_what_was_replaced_conflicts() -> None:
    written, replaced = other("1", ("p", OURS)), other("2", ("p", OURS), action="replacecommit")
    conflict = NonBlockingConflictStrategy().find(mine(("p", OURS)), Told([written, replaced]))
    assert conflict is not None and conflict.winner.instant == "2"
    assert NonBlockingConflictStrategy().find(mine(("p", OURS)), Told([written])) is None
    # A service has read what it replaces, so nothing may have come to it since.
    conflict = NonBlockingConflictStrategy().find(mine(("p", OURS), action="clustering"), Told([written]))
    assert conflict is not None and conflict.winner.instant == "1"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("simple", SimpleConflictStrategy),
        ("bucket", BucketConflictStrategy),
        ("Prefer_Writer", PreferWriterConflictStrategy),
        (HUDI + "SimpleConcurrentFileWritesConflictResolutionStrategy", SimpleConflictStrategy),
        (HUDI + "BucketIndexConcurrentFileWritesConflictResolutionStrategy", BucketConflictStrategy),
        (HUDI + "PreferWriterConflictResolutionStrategy", PreferWriterConflictStrategy),
        (HUDI + "IngestionPrimaryWriterBasedConflictResolutionStrategy", PreferWriterConflictStrategy),
    ],
)
def test_strategies_are_found_by_short_and_by_hudis_names(
    name: str, kind: type[SimpleConflictStrategy], table: Table
) -> None:
    settings = TransactionSettings.from_options({STRATEGY_OPTION: name})
    assert type(open_strategy(settings.conflict_strategy)) is kind
    manager = table.manager(conflict_strategy=settings.conflict_strategy)
    assert type(manager.context.strategy) is kind
    manager = table.manager(NON_BLOCKING, conflict_strategy=name)
    assert type(manager.context.strategy) is NonBlockingConflictStrategy


def test_the_default_is_that_of_the_index() -> None:
    assert TransactionSettings.from_options({}).conflict_strategy == "bucket"
    assert TransactionSettings.from_options({"hoodie.index.type": "BLOOM"}).conflict_strategy == "simple"


def test_an_unknown_strategy_is_refused_before_anything_begins(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="Did you mean 'prefer_writer'") as caught:
        table.manager(conflict_strategy="prefer_writers")
    assert caught.value.details["option"] == STRATEGY_OPTION and table.leftovers() == []


def clustering(table: Table, manager: TransactionManager) -> str:
    plan = manager.schedule(lambda folder: ClusteringPlan(()).to_avro(), "clustering")
    assert plan is not None
    return plan


@pytest.mark.parametrize("name", ["simple", "bucket", "prefer_writer"])
def test_a_writer_of_two_ids_in_one_bucket_at_a_commit(table: Table, name: str) -> None:
    transaction = table.manager(conflict_strategy=name).begin()
    stat = add_file(transaction, OURS)
    foreign = table.place_foreign("20991231000000000", "20991231000001000", JAVAS)
    if name == "simple":
        assert commit(transaction, stat).instant == transaction.instant
        return
    with pytest.raises(WriteConflict) as caught:
        commit(transaction, stat)
    assert caught.value.winner == foreign.requested and caught.value.file_groups == [("", OURS)]


def test_the_loser_learns_when_it_could_be_seen_and_what_is_thrown_away(table: Table) -> None:
    early, late = table.manager().begin(), table.manager().begin()
    files = add_file(early, "a"), add_file(late, "a")
    won = commit(late, files[1])
    with pytest.raises(WriteConflict) as caught:
        commit(early, files[0])
    assert (caught.value.seen_slot, caught.value.seen_time) == (won.slot, won.completion)
    assert not caught.value.early and caught.value.details["winner_writer"] == table.manager().writer
    text = str(caught.value)
    assert f"at {won.completion} as slot {won.slot} of the commit log" in text and table.manager().writer in text


@pytest.mark.parametrize("alive", [True, False])
def test_a_clustering_yields_to_a_live_writer_and_is_its_executors_to_cancel(table: Table, alive: bool) -> None:
    manager = table.manager(conflict_strategy="prefer_writer")
    execution = manager.execute(clustering(table, manager), "clustering")
    ingestion = manager.begin()
    stat = add_file(ingestion, OURS, partition="day=1")
    other_one = manager.begin()
    add_file(other_one, OURS, partition="day=2")
    if not alive:
        table.expire(ingestion.instant)
    metadata = CommitMetadata((), "CLUSTER", replaced={"day=1": (OURS,)})
    if not alive:
        execution.commit(metadata)
        assert table.completed() == [execution.instant]
        return
    with pytest.raises(WriteConflict) as caught:
        execution.commit(metadata)
    assert caught.value.winner == ingestion.instant and caught.value.file_groups == [("day=1", OURS)]
    assert execution.status == OPEN and table.rollbacks() == 0
    commit(ingestion, stat)
    with pytest.raises(WriteConflict):  # now by what has completed
        execution.commit(metadata)
    assert table.completed() == [ingestion.instant]


@pytest.mark.parametrize("name", ["bucket", "prefer_writer"])
def test_of_a_clustering_and_a_writer_the_first_to_complete_wins(table: Table, name: str) -> None:
    manager = table.manager(conflict_strategy=name)
    execution = manager.execute(clustering(table, manager), "clustering")
    ingestion = manager.begin()
    stat = add_file(ingestion, OURS)
    table.storage.delete_folder(f"{MARKERS_FOLDER}/{ingestion.instant}")  # so that only the log speaks of it
    execution.commit(CommitMetadata((), "CLUSTER", replaced={"": (OURS,)}))
    with pytest.raises(WriteConflict) as caught:
        commit(ingestion, stat)
    assert caught.value.winner == execution.instant and caught.value.details["winner_action"] == "replacecommit"


@pytest.mark.parametrize("name", ["simple", "bucket", "prefer_writer"])
def test_a_clustering_conflicts_with_what_completed_since_its_plan(table: Table, name: str) -> None:
    """Also with what completed before somebody began to carry it out, and has left its slot by then."""
    manager = table.manager(conflict_strategy=name)
    write(manager, "before")
    plan = clustering(table, manager)
    won = write(manager, OURS)
    execution = manager.execute(plan, "clustering")
    with pytest.raises(WriteConflict) as caught:
        execution.commit(CommitMetadata((), "CLUSTER", replaced={"": (OURS, "before")}))
    assert caught.value.winner == won.instant and caught.value.file_groups == [("", OURS)]


def test_a_clustering_conflicts_with_what_was_under_way_at_its_plan_and_has_completed(table: Table) -> None:
    """Requested before the plan, completed before somebody began to carry it out."""
    manager = table.manager()
    ingestion = manager.begin()
    stat = add_file(ingestion, OURS)
    plan = clustering(table, manager)
    commit(ingestion, stat)
    execution = table.manager().execute(plan, "clustering")
    with pytest.raises(WriteConflict) as caught:
        execution.commit(CommitMetadata((), "CLUSTER", replaced={"": (OURS,)}))
    assert caught.value.winner == ingestion.instant


def test_a_writer_whose_heartbeat_is_a_lease_is_alive_for_a_clustering(table: Table) -> None:
    manager = table.manager(conflict_strategy="prefer_writer", heartbeat_type="lease")
    execution = manager.execute(clustering(table, manager), "clustering")
    ingestion = manager.begin()
    add_file(ingestion, OURS)
    table.expire(ingestion.instant)  # its file is old, and its lease is held
    with pytest.raises(WriteConflict) as caught:
        execution.commit(CommitMetadata((), "CLUSTER", replaced={"": (OURS,)}))
    assert caught.value.winner == ingestion.instant
