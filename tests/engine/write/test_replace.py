"""Overwrites and deletions of partitions among other writers: what came before is gone, what came later is read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from executors import run_here
from live_table import LiveTable, rows_since
from table import meanwhile

from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.services.rewrites.rewriting import Operations, RewriteTask
from lakelatch.errors import WriteConflict
from lakelatch.format.bucket_index import bucket_file_id, successor_file_id
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC

BEGINNING = "20000101000000000"
OVERWRITE, OVERWRITE_TABLE = "insert_overwrite", "insert_overwrite_table"
MODES = pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])


@pytest.fixture
def optimistic(tmp_path: Path) -> LiveTable:
    return LiveTable(tmp_path / "t", mode=OPTIMISTIC)


def metadata_of(table: LiveTable, instant: str) -> CommitMetadata:
    (found,) = (one for one in Snapshot.load(table.storage).completed if one.requested == instant)
    return CommitMetadata.from_avro(table.storage.read(found.path))


# -- what upstream loses ---------------------------------------------------------------------------------------------


@MODES
def test_rows_of_an_overwrite_are_read(tmp_path: Path, mode: str) -> None:
    table = LiveTable(tmp_path / "t", mode)
    table.write([(1, 9, "a"), (2, 9, "b")])
    for round_ in range(3):
        table.write([(1, round_, f"over{round_}")], operation=OVERWRITE)
        assert table.agreed() == [("p", 1, round_, f"over{round_}")]
        table.write([(2, round_, f"after{round_}")])
        both = [("p", 1, round_, f"over{round_}"), ("p", 2, round_, f"after{round_}")]
        assert table.agreed() == both
    table.compact()
    assert table.agreed() == both == table.optimized()


@MODES
def test_rows_written_after_their_partition_was_deleted_are_read(tmp_path: Path, mode: str) -> None:
    table = LiveTable(tmp_path / "t", mode)
    table.write([(1, 1, "other")], "q")
    for round_ in range(3):
        table.write([(1, 1, f"a{round_}"), (2, 1, f"b{round_}")])
        table.compact()
        table.drop("p")
        assert table.agreed() == [("q", 1, 1, "other")]
        table.drop("p")  # nothing is there, and that is no fault
    table.write([(1, 0, "again")])
    assert table.agreed() == [("p", 1, 0, "again"), ("q", 1, 1, "other")]


def test_rows_under_way_while_their_partition_is_deleted_are_read(table: LiveTable) -> None:
    """Deleted and filled again by one writer, while another one fills it as well."""
    table.write([(1, 1, "old"), (2, 1, "old")])
    under_way = table.begin().put("p", [(2, 5, "under way")])
    table.drop("p")
    table.write([(1, 3, "refilled")])
    under_way.commit()
    assert table.agreed() == [("p", 1, 3, "refilled"), ("p", 2, 5, "under way")]
    table.compact()
    assert table.agreed() == [("p", 1, 3, "refilled"), ("p", 2, 5, "under way")] == table.optimized()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_first_write_that_fails_hides_nothing_of_its_bucket(table: LiveTable, replaced: bool) -> None:
    """Its file is the earliest of the file group; the fixed one, or the successor of an overwrite."""
    if replaced:
        table.write([(1, 1, "a")])
        table.drop("p")
    failed = table.begin().put("p", [(1, 99, "never"), (3, 99, "never")])
    table.write([(1, 2, "b")])
    assert table.agreed() == [("p", 1, 2, "b")]
    table.compact()
    table.write([(3, 3, "c")])
    assert table.agreed() == [("p", 1, 2, "b"), ("p", 3, 3, "c")]
    failed.transaction.abort()
    assert table.agreed() == [("p", 1, 2, "b"), ("p", 3, 3, "c")]
    assert table.since(BEGINNING) == [("p", 1, 2, "b"), ("p", 3, 3, "c")]


def test_incremental_reads_see_each_commit_once_whatever_the_order_of_completion(table: LiveTable) -> None:
    """Compactions and an overwrite in between, and both readers."""
    first, second, third = (table.begin().put("p", [(key, 1, f"w{key}")]) for key in (1, 2, 3))
    times = [BEGINNING, third.commit().completion]
    table.compact()
    times.append(first.commit().completion)
    table.compact()
    times.append(second.commit().completion)
    windows = [table.since(begin, end) for begin, end in itertools.pairwise(times)]
    assert windows == [[("p", 3, 1, "w3")], [("p", 1, 1, "w1")], [("p", 2, 1, "w2")]]
    late = table.begin().put("p", [(4, 1, "w4")])
    times.append(table.write([(9, 1, "over")], operation=OVERWRITE).completion)
    times.append(late.commit().completion)
    assert table.since(times[-3], times[-2]) == [("p", 9, 1, "over")]
    assert table.since(times[-2]) == [("p", 4, 1, "w4")]
    for number, begin in enumerate(times):
        for end in [*times[number + 1 :], None]:
            # Where a file group has no base file yet, hudi-rs misses a write that completes after one requested later.
            theirs = table.by_hudi_rs(rows_since(begin, end)) if begin != times[-2] else [("p", 4, 1, "w4")]
            assert table.since(begin, end) == theirs, (begin, end)


# -- what goes and what stays ----------------------------------------------------------------------------------------


def test_an_overwrite_takes_the_partitions_that_it_writes(table: LiveTable) -> None:
    for partition in "pqr":
        table.write([(1, 9, "a"), (2, 9, "b"), (3, 9, "c")], partition)
    over = table.begin(OVERWRITE).put("p", [(5, 1, "new")]).put("q", [(6, 1, "new")])
    assert over.commit().file_groups_replaced == 4
    kept = [("r", key, 9, name) for key, name in ((1, "a"), (2, "b"), (3, "c"))]
    assert table.agreed() == [("p", 5, 1, "new"), ("q", 6, 1, "new"), *kept]


def test_an_overwrite_of_nothing_changes_nothing(table: LiveTable) -> None:
    table.write([(1, 1, "a")])
    done = table.write([], operation=OVERWRITE)
    assert (done.rows_written, done.file_groups_replaced) == (0, 0)
    assert table.agreed() == [("p", 1, 1, "a")]


def test_an_overwrite_of_the_table_takes_every_partition(table: LiveTable) -> None:
    for partition in "pqr":
        table.write([(1, 9, "a")], partition)
    new_partition = table.begin().put("s", [(1, 1, "s")])
    assert table.write([(7, 1, "all")], "q", OVERWRITE_TABLE).file_groups_replaced == 3
    new_partition.commit()
    assert table.agreed() == [("q", 7, 1, "all"), ("s", 1, 1, "s")]
    table.write([], operation=OVERWRITE_TABLE)
    assert table.agreed() == []
    table.write([(1, 0, "again")], "q")
    assert table.agreed() == [("q", 1, 0, "again")]


def test_a_table_without_partitions(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", partitioned=False)
    table.write([(1, 9, "a"), (2, 9, "b")], "x")
    late = table.begin().put("x", [(3, 1, "late")])
    table.write([(4, 1, "over")], "x", OVERWRITE)
    late.commit()
    assert table.agreed() == [("x", 3, 1, "late"), ("x", 4, 1, "over")]
    table.compact()
    assert table.agreed() == [("x", 3, 1, "late"), ("x", 4, 1, "over")]


def test_what_commits_while_an_overwrite_is_under_way_is_gone(table: LiveTable) -> None:
    """Also in a bucket, and in a partition, that had no file when the overwrite began."""
    over = table.begin(OVERWRITE).put("p", [(1, 1, "over")]).put("q", [(1, 1, "over")])
    table.write([(1, 9, "gone"), (2, 9, "gone"), (3, 9, "gone")])
    table.write([(2, 9, "gone")], "q")
    table.compact()
    assert over.commit().file_groups_replaced == 3
    assert table.agreed() == [("p", 1, 1, "over"), ("q", 1, 1, "over")]


def test_what_another_overwrite_took_away_is_not_replaced_again(table: LiveTable) -> None:
    """Though whoever wrote to it has committed since this overwrite began."""
    over = table.begin(OVERWRITE).put("p", [(1, 1, "over")])
    table.write([(1, 9, "gone")])
    first = table.begin(OVERWRITE).put("p", [(1, 1, "first")])
    first.commit()
    assert metadata_of(table, first.instant).replaced["p"]
    assert over.commit().file_groups_replaced == 1
    assert not set(metadata_of(table, first.instant).replaced["p"]) & set(
        metadata_of(table, over.instant).replaced["p"]
    )
    assert table.agreed() == [("p", 1, 1, "over")]


@pytest.mark.parametrize("operation", [OVERWRITE, OVERWRITE_TABLE])
def test_what_commits_in_the_last_moment_is_gone(table: LiveTable, operation: str) -> None:
    """The overwrite has listed what is there, and has not got its place in the log yet."""
    table.write([(1, 1, "old")])
    steps: list[Callable[[], object]] = [
        lambda: table.write([(1, 9, "gone"), (2, 9, "gone")]),
        lambda: table.write([(3, 9, "gone")], operation=OVERWRITE),
        lambda: table.write([(2, 9, "gone")]),
        table.compact,
    ]

    done: list[object] = []
    over = table.begin(operation).put("p", [(1, 1, "over")])
    with meanwhile(lambda: done.extend(step() for step in steps), "close.after"):  # it has looked what there is
        over.commit()
    assert len(done) == len(steps) and table.agreed() == [("p", 1, 1, "over")]
    assert {bucket_file_id(0), bucket_file_id(1)}.isdisjoint(metadata_of(table, over.instant).replaced["p"])


def test_time_travel_reads_what_was_there_before(table: LiveTable) -> None:
    first = table.write([(1, 1, "a"), (2, 1, "b")])
    table.compact()
    second = table.write([(1, 2, "A")])
    over = table.write([(1, 0, "over")], operation=OVERWRITE)
    dropped = table.drop("p")
    last = table.write([(2, 0, "last")])
    table.compact()
    assert table.as_of(first.completion) == [("p", 1, 1, "a"), ("p", 2, 1, "b")]
    assert table.as_of(second.completion) == [("p", 1, 2, "A"), ("p", 2, 1, "b")]
    assert table.as_of(over.completion) == [("p", 1, 0, "over")]
    assert table.as_of(dropped.completion) == []
    assert table.as_of(last.completion) == [("p", 2, 0, "last")]


def test_the_metadata_is_hudis(table: LiveTable) -> None:
    table.write([(1, 1, "a"), (2, 1, "b"), (3, 1, "c")])
    over = table.write([(1, 1, "x")], operation=OVERWRITE)
    dropped = table.drop("p")
    metadata = metadata_of(table, over.instant)
    assert metadata.operation_type == "INSERT_OVERWRITE" and metadata.schema
    assert metadata.replaced == {"p": (bucket_file_id(0), bucket_file_id(1))}
    written = tuple(successor_file_id(bucket, over.instant) for bucket in (0, 1))
    assert metadata.file_groups() == {("p", file_id) for file_id in written}
    metadata = metadata_of(table, dropped.instant)
    assert (metadata.operation_type, metadata.replaced) == ("DELETE_PARTITION", {"p": written})
    names = {name for name in table.storage.list(".hoodie/timeline").files if over.instant in name[:17]}
    assert names == {
        f"{over.instant}.replacecommit.requested",
        f"{over.instant}.replacecommit.inflight",
        f"{over.instant}_{over.completion}.replacecommit",
    }


# -- two of them, or one and a writer --------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_overwrites_that_meet_the_later_to_complete_stays(
    table: LiveTable, order: tuple[int, int], empty: bool
) -> None:
    if not empty:
        table.write([(1, 9, "old"), (2, 9, "old"), (3, 9, "old")])
    racers = [table.begin(OVERWRITE).put("p", [(key, 1, f"over{key}"), (3, key, f"both{key}")]) for key in (1, 2)]
    for number in order:
        racers[number].commit()
    last = order[1] + 1
    assert table.agreed() == [("p", last, 1, f"over{last}"), ("p", 3, last, f"both{last}")]
    table.write([(3, 9, "after")])
    assert table.agreed() == [("p", last, 1, f"over{last}"), ("p", 3, 9, "after")]


@pytest.mark.parametrize("operation", [OVERWRITE, OVERWRITE_TABLE])
@pytest.mark.parametrize("empty", [False, True])
def test_of_two_overwrites_the_first_wins_under_optimistic_control(
    optimistic: LiveTable, operation: str, empty: bool
) -> None:
    if not empty:
        optimistic.write([(1, 9, "old"), (2, 9, "old")])
    racers = [optimistic.begin(operation).put("p", [(key, 1, f"over{key}")]) for key in (1, 2)]
    first = racers[1].commit()
    with pytest.raises(WriteConflict) as caught:
        racers[0].commit()
    assert caught.value.winner == first.instant
    assert optimistic.agreed() == [("p", 2, 1, "over2")]


def test_an_optimistic_writer_loses_to_an_overwrite(optimistic: LiveTable) -> None:
    """Whether or not its bucket had a file that the overwrite could name."""
    for key in (1, 2):  # one for each bucket
        optimistic.write([(1, 1, "old")])
        writer = optimistic.begin().put("p", [(key, 9, "loser")])
        over = optimistic.drop("p")
        with pytest.raises(WriteConflict) as caught:
            writer.commit()
        assert caught.value.winner == over.instant
        assert optimistic.agreed() == []
    elsewhere = optimistic.begin().put("q", [(1, 1, "free")])
    optimistic.drop("p")
    elsewhere.commit()
    assert optimistic.agreed() == [("q", 1, 1, "free")]


def test_an_optimistic_overwrite_loses_to_a_writer(optimistic: LiveTable) -> None:
    optimistic.write([(1, 1, "old")])
    over = optimistic.begin(OVERWRITE).put("p", [(1, 1, "computed from old")])
    writer = optimistic.write([(2, 1, "new")])
    conflict = over.loses()
    assert conflict.winner == writer.instant
    assert optimistic.agreed() == [("p", 1, 1, "old"), ("p", 2, 1, "new")]


# -- compactions -----------------------------------------------------------------------------------------------------


def test_a_plan_of_before_brings_nothing_back(table: LiveTable) -> None:
    table.write([(1, 1, "a"), (2, 1, "b"), (3, 1, "c")])
    table.write([(1, 1, "q")], "q")
    plan = table.plan()
    assert plan is not None
    over = table.write([(1, 0, "over")], operation=OVERWRITE)
    done = table.execute(plan)
    assert len(done.files) == 1  # that of the other partition
    assert table.agreed() == [("p", 1, 0, "over"), ("q", 1, 1, "q")]
    assert table.optimized() == [("q", 1, 1, "q")]
    assert table.as_of(over.completion) == [("p", 1, 0, "over"), ("q", 1, 1, "q")]
    table.compact()
    assert table.agreed() == table.optimized() == [("p", 1, 0, "over"), ("q", 1, 1, "q")]


def test_a_plan_of_which_nothing_is_left_still_completes(table: LiveTable) -> None:
    table.write([(1, 1, "a")])
    plan = table.plan()
    assert plan is not None
    table.drop("p")
    assert table.execute(plan).files == ()
    assert table.agreed() == [] and table.plan() is None
    assert not Snapshot.load(table.storage).pending


def test_a_compaction_that_was_already_at_work_brings_nothing_back(table: LiveTable) -> None:
    """The replace commit completes while base files are made: they are there, and nobody reads them."""
    table.write([(1, 1, "a"), (2, 1, "b"), (3, 1, "c")])
    plan = table.plan()
    assert plan is not None

    def meanwhile(task: RewriteTask, operations: Operations) -> list[FileReport]:
        table.drop("p")
        table.write([(2, 0, "after")])
        return run_here(task, operations)

    done = table.execute(plan, meanwhile)
    assert len(done.files) == 2 and set(done.files) <= set(table.storage.list("p").files)
    assert table.agreed() == [("p", 2, 0, "after")]
    assert table.optimized() == table.by_hudi_rs(optimized=True) == []
    table.compact()
    assert table.agreed() == table.optimized() == [("p", 2, 0, "after")]


def test_a_writer_between_a_plan_and_a_replace_is_read_once(table: LiveTable) -> None:
    """Its file moves into the successor, whose plan of before the move does not have it."""
    table.write([(1, 1, "a")])
    writer = table.begin().put("p", [(1, 7, "late"), (2, 7, "late")])
    table.write([(1, 2, "over"), (2, 2, "over")], operation=OVERWRITE)
    plan = table.plan()
    assert plan is not None
    writer.commit()
    late = [("p", 1, 7, "late"), ("p", 2, 7, "late")]
    assert table.agreed() == late
    table.execute(plan)
    assert table.agreed() == late
    table.compact()
    assert table.agreed() == table.optimized() == late
