"""Log compaction: nobody can see that it happened, whatever is committed around it, and in whatever order."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from executors import run_here
from hypothesis import given, settings
from hypothesis import strategies as st
from live_table import LiveTable, Row, TableRows, rows_since

from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.services.rewrites.rewriting import RewriteTask
from lakelatch.errors import CorruptTable, InvalidRequest, TransactionEnded, Unavailable
from lakelatch.failpoints import active
from lakelatch.format.names import COMPACTED_MARK
from lakelatch.timeline.instant import requested
from lakelatch.timeline.metadata import CommitMetadata, CompactionOperation, CompactionPlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import COMMIT_TIME
from lakelatch.transactions.base.settings import OPTIMISTIC

TWO = {"hoodie.log.compaction.blocks.threshold": "2"}
PLAN, EXECUTE = "plan", "execute"


def plan_logs(table: LiveTable, options: dict[str, str] | None = None) -> str | None:
    return table.plan_logs(options)


def compact_logs(table: LiveTable, plan: str | None) -> Any:
    assert plan is not None
    return table.execute_logs(plan)


def logs_of(table: LiveTable) -> list[tuple[str, ...]]:
    return [found.log_files for found in plan_read(str(table.root)).slices]


def compacted_files(table: LiveTable, partition: str = "p") -> list[str]:
    return [name for name in table.storage.list(partition).files if COMPACTED_MARK in name]


def delete_without_value(table: LiveTable, *keys: int) -> None:
    """As a writer under optimistic control may: such a delete wins over all that came before it."""
    table.begin("delete").put_table(pa.table({"id": list(keys), "part": ["p"] * len(keys)})).commit()


def test_logs_become_one_and_every_reader_finds_the_same(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    begin = table.write([(1, 1, "a"), (2, 1, "b"), (3, 1, "c"), (4, 1, "d")]).completion
    middle = table.write([(1, 2, "A"), (3, 0, "too old"), (4, 5, "D")]).completion
    table.delete([(2, 3, ""), (3, 2, "")])
    table.write([(5, 1, "q")], "q")
    wanted = [("p", 1, 2, "A"), ("p", 4, 5, "D"), ("q", 5, 1, "q")]
    moments = [(begin, table.as_of(begin)), (middle, table.as_of(middle))]
    changes, theirs = table.since(begin), table.by_hudi_rs(rows_since(begin))
    plan = plan_logs(table)
    assert table.agreed() == wanted and table.since(begin) == changes
    result = compact_logs(table, plan)
    assert table.agreed() == wanted
    assert (result.operation, result.rows_written, len(result.files)) == ("log_compact", 2, 2)
    assert sorted(map(len, logs_of(table))) == [1, 1, 1]
    assert sorted(result.files) == compacted_files(table), "the bucket of one log stays as it is"
    assert table.since(begin) == changes and table.by_hudi_rs(rows_since(begin)) == theirs
    assert [(moment, table.as_of(moment)) for moment, _ in moments] == moments
    assert table.as_of(result.completion) == wanted
    assert table.since(middle, result.completion) == table.since(middle) and table.since(result.completion) == []
    assert plan_logs(table) is None
    completed = [one for one in Snapshot.load(table.storage).completed if one.requested == plan]
    assert [one.action for one in completed] == ["deltacommit"]
    metadata = CommitMetadata.from_avro(table.storage.read(completed[0].path))
    assert metadata.operation_type == "LOG_COMPACT" and metadata.schema and not metadata.compacted
    assert {stat.total_log_files for stat in metadata.stats} == {3}


def winners(writes: Sequence[tuple[str, list[Row]]]) -> TableRows:
    """For each key the entry with the greatest ordering value, of equals the later, unless that is a delete."""
    best: dict[int, tuple[int, str, str]] = {}
    for operation, rows in writes:
        for key, ts, value in rows:
            if key not in best or ts >= best[key][0]:
                best[key] = (ts, value, operation)
    return sorted(("p", key, ts, value) for key, (ts, value, operation) in best.items() if operation != "delete")


History: TypeAlias = tuple[list[tuple[str, list[Row]]], list[int | str]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Writes in the order in which they begin, often with equal ordering values, and what is done in which order."""
    count = draw(st.integers(2, 7))
    writes = []
    for number in range(count):
        keys = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
        rows = [(key, draw(st.integers(1, 3)), f"w{number}") for key in keys]
        writes.append((draw(st.sampled_from(["upsert", "upsert", "delete"])), rows))
    order: list[int | str] = list(draw(st.permutations(range(count))))
    for _ in range(draw(st.integers(1, 5))):
        order.insert(draw(st.integers(0, len(order))), draw(st.sampled_from([PLAN, PLAN, EXECUTE])))
    return writes, order


@settings(max_examples=20, deadline=None)
@given(history=histories())
def test_it_changes_no_winner_not_even_among_equals(
    history: tuple[list[tuple[str, list[Row]]], list[int | str]],
) -> None:
    """Of equal ordering values the later to *begin* wins, also if it, or the other, was in flight at the plan."""
    writes, order = history
    with tempfile.TemporaryDirectory() as folder:
        table = LiveTable(Path(folder) / "t", buckets=1)
        open_ones = [table.begin(operation).put("p", rows) for operation, rows in writes]
        committed: list[int] = []
        plans: list[str] = []
        seen: list[tuple[str, TableRows]] = []
        for step in order:
            if isinstance(step, int):
                moment = open_ones[step].commit().completion
                committed.append(step)
                seen.append((moment, winners([writes[number] for number in sorted(committed)])))
            elif step == PLAN:
                plans += [plan for plan in [plan_logs(table)] if plan]
            elif plans:
                moment = compact_logs(table, plans.pop()).completion
                seen.append((moment, seen[-1][1]))
            if committed:
                assert table.agreed() == seen[-1][1]
        for plan in plans:
            compact_logs(table, plan)
        assert table.agreed() == winners(writes)
        assert [(moment, table.as_of(moment)) for moment, _ in seen] == seen, "what was true then is true now"
        table.compact()
        assert table.agreed() == winners(writes) == table.optimized()


@pytest.mark.parametrize("late_is_older", [True, False])
def test_runs_end_where_a_write_is_under_way(tmp_path: Path, late_is_older: bool) -> None:
    """A long batch among short ones: what began before it and what began after it stay apart; both are compacted."""
    table = LiveTable(tmp_path / "t", buckets=1)
    for number in range(2):
        table.write([(1, 7, f"before {number}")])
    late = table.begin().put("p", [(1, 7, "late"), (2, 7, "late")])
    for number in range(2):
        table.write([(2, 7, f"after {number}")])
    last = plan_logs(table, {"hoodie.log.compaction.blocks.threshold": "4"})
    assert last is not None
    plan = CompactionPlan.from_avro(table.storage.read(requested(last, "logcompaction").path))
    assert [len(one.delta_files) for one in plan.operations] == [2, 2]
    if late_is_older:
        compact_logs(table, last)
    late.commit()
    if not late_is_older:
        compact_logs(table, last)
    assert len(compacted_files(table)) == 2 and list(map(len, logs_of(table))) == [3]
    assert table.agreed() == [("p", 1, 7, "late"), ("p", 2, 7, "after 1")]
    compact_logs(table, plan_logs(table))  # compacted logs are compacted like others
    assert list(map(len, logs_of(table))) == [1]
    assert table.agreed() == [("p", 1, 7, "late"), ("p", 2, 7, "after 1")]


def test_a_claim_without_a_requested_file_counts_as_under_way(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a")])
    with active("begin.after_claim=raise"), pytest.raises(Unavailable, match=r"begin\.after_claim"):
        table.begin()
    table.write([(1, 2, "b")])
    assert plan_logs(table) is None


def test_the_later_write_wins_under_commit_time_ordering(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", OPTIMISTIC, buckets=1, hoodie__record__merge__mode=COMMIT_TIME)
    table.write([(1, 9, "a"), (2, 9, "b"), (3, 9, "c")])
    table.compact()
    table.write([(1, 5, "A")])
    table.delete([(2, 0, "")])
    late = table.begin().put("p", [(1, 1, "late")])
    wanted = [("p", 1, 5, "A"), ("p", 3, 9, "c")]
    compact_logs(table, plan_logs(table))
    assert table.agreed() == wanted and list(map(len, logs_of(table))) == [1]
    late.commit()
    assert table.agreed() == [("p", 1, 1, "late"), ("p", 3, 9, "c")]
    table.write([(2, 0, "again")])
    compact_logs(table, plan_logs(table))
    assert table.agreed() == [("p", 1, 1, "late"), ("p", 2, 0, "again"), ("p", 3, 9, "c")]


@pytest.mark.parametrize("compacted", [True, False])
def test_a_delete_without_an_ordering_value_stays_where_it_was(tmp_path: Path, compacted: bool) -> None:
    """It takes away what came before it, in the base file too, and nothing that came after it.

    Where the base file has a greater value than a row that came after such a delete, hudi-rs shows the base file's.
    """
    table = LiveTable(tmp_path / "t", OPTIMISTIC, buckets=1)
    table.write([(1, 9, "a"), (2, 9, "b"), (3, 9, "c")])
    read = table.read if compacted else table.agreed
    if compacted:
        table.compact()
    delete_without_value(table, 1, 2)
    table.write([(2, 1, "B")])
    late = table.begin().put("p", [(1, 1, "late")])
    wanted = [("p", 2, 1, "B"), ("p", 3, 9, "c")]
    assert read() == wanted
    compact_logs(table, plan_logs(table))
    assert read() == wanted
    late.commit()
    assert read() == [("p", 1, 1, "late"), *wanted]
    table.compact()
    assert read() == table.optimized() == [("p", 1, 1, "late"), *wanted]


def test_a_plan_of_either_kind_keeps_the_other_away(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    for number in range(3):
        table.write([(1, number, "a"), (number, 1, "b")])
    plan = plan_logs(table)
    assert plan and plan_logs(table) is None and table.plan() is None
    table.write([(1, 9, "while it waits")], "p")
    compact_logs(table, plan)
    waits = table.plan()
    assert waits and plan_logs(table) is None
    table.write([(2, 9, "in the next slice")])
    rows = table.agreed()
    table.execute(waits)
    assert table.agreed() == rows and list(map(len, logs_of(table))) == [1]
    assert plan_logs(table) is None, "one log is not worth it"


def test_a_compaction_takes_the_compacted_log_and_not_what_it_repeats(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    for number in range(4):
        table.write([(1, number, "a")])
    (name,) = compact_logs(table, plan_logs(table)).files
    plan = table.plan()
    assert plan is not None
    (operation,) = CompactionPlan.from_avro(table.storage.read(requested(plan, "compaction").path)).operations
    assert operation.delta_files == (name,)
    table.execute(plan)
    assert table.agreed() == table.optimized() == [("p", 1, 3, "a")]
    assert table.as_of(plan) == [("p", 1, 3, "a")]


def test_deletes_stay_kept(tmp_path: Path) -> None:
    """Those of a compaction before as well: a row that is older than its delete never comes back."""
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a"), (2, 1, "b"), (3, 1, "c")])
    late = table.begin().put("p", [(1, 3, "late"), (2, 3, "late"), (4, 1, "new")])
    table.delete([(1, 5, "")])
    table.compact()
    table.delete([(2, 5, "")])
    table.write([(3, 2, "C")])
    compact_logs(table, plan_logs(table))
    assert list(map(len, logs_of(table))) == [1]
    assert table.agreed() == [("p", 3, 2, "C")]
    late.commit()
    wanted = [("p", 3, 2, "C"), ("p", 4, 1, "new")]
    assert table.agreed() == wanted
    table.compact()
    assert table.agreed() == table.optimized() == wanted


def test_an_overwrite_takes_away_what_a_log_compaction_is_about_to_compact(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    for partition in "pq":
        table.write([(1, 1, "old")], partition)
        table.write([(2, 1, "old")], partition)
    plan = plan_logs(table)
    overwrite = table.write([(3, 1, "new")], "p", "insert_overwrite")
    result = compact_logs(table, plan)
    assert len(result.files) == 1 and not compacted_files(table, "p"), "nobody would read what was replaced"
    wanted = [("p", 3, 1, "new"), ("q", 1, 1, "old"), ("q", 2, 1, "old")]
    assert table.agreed() == wanted == table.as_of(overwrite.completion)


@pytest.mark.parametrize("made", [True, False])
def test_an_overwrite_beats_a_log_compaction_that_completes_after_it(tmp_path: Path, made: bool) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "old")])
    table.write([(2, 1, "old")])
    plan = plan_logs(table)
    assert plan is not None

    def overwrite_meanwhile(task: RewriteTask, operations: tuple[CompactionOperation, ...]) -> list[FileReport]:
        reports = run_here(task, operations) if made else []
        table.write([(3, 1, "new")], "p", "insert_overwrite")
        return reports or run_here(task, operations)

    table.execute_logs(plan, overwrite_meanwhile)
    assert table.agreed() == [("p", 3, 1, "new")]


def test_an_executor_that_died_leaves_its_files_to_the_next_and_changes_nothing(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a")])
    first = table.write([(1, 2, "b"), (2, 1, "c")])
    table.write([(2, 2, "C")])
    before = table.agreed()
    plan = plan_logs(table)
    with active("compact.before_commit=raise"), pytest.raises(Unavailable, match=r"compact\.before_commit"):
        compact_logs(table, plan)
    (name,) = compacted_files(table)
    assert table.agreed() == before and list(map(len, logs_of(table))) == [3], "no commit names the compacted log"
    later = table.write([(3, 1, "later")])
    assert table.agreed() == [*before, ("p", 3, 1, "later")]
    assert table.as_of(first.completion) == [("p", 1, 2, "b"), ("p", 2, 1, "c")]
    made = (table.root / "p" / name).stat().st_ino
    assert compact_logs(table, plan).files == (name,)
    assert (table.root / "p" / name).stat().st_ino == made, "it is not made again"
    assert table.agreed() == [*before, ("p", 3, 1, "later")] and later.files[0] in logs_of(table)[0]
    with pytest.raises(TransactionEnded, match=str(plan)):
        compact_logs(table, plan)


def test_files_of_one_name_in_two_partitions_are_two_files(tmp_path: Path) -> None:
    """A write makes files of the same name in each partition, and a run in one of them says nothing of the others."""
    table = LiveTable(tmp_path / "t", buckets=1)
    for number in range(2):
        writing = table.begin().put("p", [(number, 1, "a")])
        (writing.put("q", [(7, 1, "q")]) if number else writing).commit()
    compact_logs(table, plan_logs(table))
    assert table.agreed() == [("p", 0, 1, "a"), ("p", 1, 1, "a"), ("q", 7, 1, "q")]


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a")])
    table.write([(1, 2, "b")])
    with pytest.raises(InvalidRequest, match=r"blocks\.threshold"):
        plan_logs(table, {"hoodie.log.compaction.blocks.threshold": "1"})
    assert plan_logs(table, {"hoodie.log.compaction.blocks.threshold": "3"}) is None
    (found,) = plan_read(str(table.root)).slices
    theirs = CompactionOperation("p", found.file_id, found.base_instant, None, found.log_files)
    foreign = table.manager().schedule(lambda _: CompactionPlan((theirs,)).to_avro(), "logcompaction")
    with pytest.raises(InvalidRequest, match="is another engine's"):
        compact_logs(table, foreign)
    assert table.plan() is None and plan_logs(table) is None, "the file group waits for the other writer"


def test_an_emptied_compacted_log_is_noticed_before_it_is_lost(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    for number in range(2):
        table.write([(1, number, "a")])
    (name,) = compact_logs(table, plan_logs(table)).files
    (tmp_path / "t" / "p" / name).write_bytes(b"")
    with pytest.raises(CorruptTable, match="restore it"):
        table.plan()
