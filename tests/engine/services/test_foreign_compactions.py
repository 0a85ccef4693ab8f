"""Plans that two engines have carried out: two base files of one instant, and deletes that the other one forgot."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_table import LiveTable
from other_engines.compaction import (
    OTHER_TOKEN,
    Died,
    base_of,
    compacted_by_another,
    complete_as_another,
    die,
    others_base,
)

from lakelatch.engine.run.executor import HERE
from lakelatch.engine.services.rewrites.compaction import finish_foreign_compactions
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import TransactionEnded
from lakelatch.failpoints import calling
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.snapshot import Snapshot

ROWS = [("p", 1, 6, "late"), ("p", 2, 5, "b")]


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    table = LiveTable(tmp_path / "table", buckets=1)
    table.write([(1, 5, "a"), (2, 5, "b")])
    return table


def test_of_two_base_files_of_one_instant_the_committed_one_is_read(table: LiveTable) -> None:
    """The other may be half a file: its engine was killed, and ours then carried the plan out."""
    table.compact()
    others_base(base_of(table), b"PAR1 and no more")
    table.write([(1, 6, "late")])
    assert table.read() == ROWS


def test_an_executor_removes_its_base_file_if_another_has_completed_the_plan(table: LiveTable) -> None:
    plan = table.plan()
    assert plan is not None

    def overtake() -> None:
        complete_as_another(table, plan, others_base(base_of(table)))

    with calling(lambda _: overtake(), ["compact.before_commit"]), pytest.raises(TransactionEnded):
        table.execute(plan)
    (left,) = (table.root / "p").glob("*.parquet")
    assert OTHER_TOKEN in left.name
    assert table.agreed() == [("p", 1, 5, "a"), ("p", 2, 5, "b")]


def test_an_executor_removes_what_another_left_under_its_plan(table: LiveTable) -> None:
    plan = table.plan()
    assert plan is not None
    with calling(lambda _: others_base(base_of(table), b"PAR1 and no more"), ["compact.before_commit"]):
        table.execute(plan)
    assert [base_of(table)] == list((table.root / "p").glob("*.parquet"))
    assert table.agreed() == [("p", 1, 5, "a"), ("p", 2, 5, "b")]


def test_the_base_file_of_a_dead_executor_is_removed_after_another_engine_took_its_plan(table: LiveTable) -> None:
    plan = table.plan()
    assert plan is not None
    with calling(lambda _: die(), ["compact.before_commit"]), pytest.raises(Died):
        table.execute(plan)
    complete_as_another(table, plan, others_base(base_of(table)))
    finish_foreign_compactions(HERE, open_table(table.storage), Snapshot.look(table.storage))
    (left,) = (table.root / "p").glob("*.parquet")
    assert OTHER_TOKEN in left.name
    assert table.agreed() == [("p", 1, 5, "a"), ("p", 2, 5, "b")]


def test_deletes_that_another_engine_forgot_are_kept_before_the_next_plan(table: LiveTable) -> None:
    """A row that is older than its delete, and completes after the compaction, stays deleted."""
    table.delete([(1, 9, "")])
    late = table.begin().put("p", [(1, 7, "older than its delete")])
    compacted_by_another(table)
    finish_foreign_compactions(HERE, open_table(table.storage), Snapshot.look(table.storage))
    late.commit()
    assert table.agreed() == [("p", 2, 5, "b")]
    names = sorted(path.name for path in (table.root / "p").iterdir())
    finish_foreign_compactions(HERE, open_table(table.storage), Snapshot.look(table.storage))
    assert sorted(path.name for path in (table.root / "p").iterdir()) == names


@pytest.mark.parametrize("next_service", ["plan", "plan_clustering"])
def test_deletes_that_another_engine_forgot_hold_for_readers_until_they_are_kept(
    table: LiveTable, next_service: str
) -> None:
    table.delete([(1, 9, "")])
    late = table.begin().put("p", [(1, 7, "older than its delete")])
    compacted_by_another(table)
    before = late.commit().completion
    newer = table.write([(3, 1, "c"), (1, 8, "older, too")])
    expected = [("p", 2, 5, "b"), ("p", 3, 1, "c")]
    assert table.read() == expected and table.by_hudi_rs() != expected
    assert table.since(before) == expected[1:] == table.since(before, newer.completion)
    assert table.as_of(before) == expected[:1]
    assert getattr(table, next_service)() is None  # it would make it so for good
    finish_foreign_compactions(HERE, open_table(table.storage), Snapshot.look(table.storage))
    assert table.agreed() == expected
    assert getattr(table, next_service)() is not None


def test_deletes_whose_files_were_cleaned_stay_forgotten(table: LiveTable) -> None:
    table.delete([(1, 9, "")])
    late = table.begin().put("p", [(1, 7, "older than its delete")])
    compacted_by_another(table)
    for log in (table.root / "p").glob(".*.log.*"):
        log.unlink()
    late.reports = []
    late.put("p", [(1, 7, "older than its delete")], "1-1-1").commit()
    assert table.agreed() == [("p", 1, 7, "older than its delete"), ("p", 2, 5, "b")]


def test_nothing_is_removed_before_the_plan_has_completed(table: LiveTable) -> None:
    plan = table.plan()
    assert plan is not None
    with calling(lambda _: die(), ["compact.before_commit"]), pytest.raises(Died):
        table.execute(plan)
    other = others_base(base_of(table))
    finish_foreign_compactions(HERE, open_table(table.storage), Snapshot.look(table.storage))
    assert other.exists() and base_of(table).exists()
    assert not list((table.root / TIMELINE_FOLDER).glob(f"{plan}_*"))
    table.execute(plan)
    assert not other.exists()
