"""Deletes that another engine's compaction has forgotten, while they are being kept, and while files are cleaned."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from live_table import LiveTable, rows_of
from other_engines.compaction import compacted_by_another

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.read.by_reader import SlicesByReader
from lakelatch.engine.read.plan import ReadPlan, plan_read_of
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction, finish_foreign_compactions
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import Unavailable
from lakelatch.storage.contract import Storage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import CLEAN
from lakelatch.timeline.instant import requested
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.plans.clustering_plan import SORT_COLUMNS
from lakelatch.timeline.snapshot import Snapshot

NOTES = ".hoodie/.lakelatch/kept/"
EXPECTED = [("p", 2, 5, "b")]


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    """One whose row 1 was deleted, and another engine has compacted that; a row that is older came late."""
    table = LiveTable(tmp_path / "table", buckets=1)
    table.write([(1, 5, "a"), (2, 5, "b")])
    table.compact()
    table.delete([(1, 9, "")])
    late = table.begin().put("p", [(1, 7, "older than its delete")])
    compacted_by_another(table)
    late.commit()
    return table


def keep_deletes(table: LiveTable) -> None:
    finish_foreign_compactions(HERE, open_table(table.storage), Snapshot.look(table.storage))


def before_first(table: LiveTable, path: Callable[[str], bool], act: Callable[[], None]) -> Storage:
    """The table's storage, which does something before the first request for such a path."""
    done: list[str] = []

    def before(operation: str, asked: str) -> None:
        if not done and path(asked):
            done.append(asked)
            act()

    return FaultyStorage(table.storage, before=before)


def planned(storage: Storage, as_of: str = "") -> ReadPlan:
    options = {"lakelatch.read.meta.columns": True, **({"as.of.instant": as_of} if as_of else {})}
    return plan_read_of(open_table(storage), Call(options).read())


def log_of_deletes(table: LiveTable) -> Path:
    """The log that the other engine has compacted: the second of all, as requested."""
    return sorted((table.root / "p").glob(".*.log.*"))[1]


def is_note(path: str) -> bool:
    return path.startswith(NOTES)


def test_a_reader_who_listed_before_deletes_were_kept_has_them(table: LiveTable) -> None:
    storage = before_first(table, is_note, lambda: keep_deletes(table))
    assert rows_of(planned(storage)) == EXPECTED
    assert list((table.root / NOTES).iterdir())


@pytest.mark.parametrize("service", ["compaction", "clustering"])
def test_a_planner_who_listed_before_deletes_were_kept_has_them(table: LiveTable, service: str) -> None:
    opened = open_table(before_first(table, is_note, lambda: keep_deletes(table)))
    if service == "compaction":
        plan = Compaction().schedule(ServiceContext(opened, table.manager()))
        assert plan is not None
        table.execute(plan)
    else:
        parsed = Call({SORT_COLUMNS: "v"}).services()
        plan = Clustering(parsed.clustering, parsed.cancellation).schedule(ServiceContext(opened, table.manager()))
        assert plan is not None
        table.execute_clustering(plan)
    assert table.agreed() == EXPECTED


def test_a_reader_finds_deletes_that_were_kept_and_cleaned_behind_them_meanwhile(table: LiveTable) -> None:
    log = log_of_deletes(table)

    def keep_and_clean() -> None:
        keep_deletes(table)
        log.unlink()

    assert rows_of(planned(before_first(table, lambda path: path == f"p/{log.name}", keep_and_clean))) == EXPECTED
    assert not log.exists()


def test_a_read_whose_files_another_engine_cleans_is_to_be_read_again(table: LiveTable) -> None:
    plan = planned(table.storage)
    log_of_deletes(table).unlink()
    with pytest.raises(Unavailable, match="read it again"):
        rows_of(plan)
    assert rows_of(planned(table.storage)) == [("p", 1, 7, "older than its delete"), *EXPECTED]


def test_the_past_is_not_refused_for_files_that_it_can_do_without(table: LiveTable) -> None:
    """A clean of another engine is at work, and removes one after the reader has seen it."""
    log, time = log_of_deletes(table), WholeTimeline.load(table.storage).latest
    plan = CleanPlan({"p": (log.name,)}, "KEEP_LATEST_COMMITS", None, time, {})
    table.storage.put(requested(to_instant(to_ms(time) + 1000), CLEAN).path, plan.to_avro(table.storage.uri))
    looks = count(1)
    storage = before_first(table, lambda path: path == f"p/{log.name}" and next(looks) == 2, log.unlink)
    assert planned(storage, time).wider
    assert rows_of(planned(storage, time)) == [("p", 1, 7, "older than its delete"), *EXPECTED]


def test_spark_does_not_read_files_that_another_engine_may_clean(table: LiveTable) -> None:
    wide = planned(table.storage)
    assert SlicesByReader.of(wide).in_python == wide.slices
    keep_deletes(table)
    narrow = planned(table.storage)
    assert not narrow.wider and SlicesByReader.of(narrow).beside_logs == narrow.slices


def clean(table: LiveTable) -> None:
    table.clean(CleaningOptions(commits=1))


def test_a_clean_leaves_what_has_the_deletes_until_all_readers_have_them_from_elsewhere(table: LiveTable) -> None:
    needed = log_of_deletes(table)
    for number in range(3):
        table.write([(number, 1, "")], "q")
    clean(table)
    assert needed.exists() and [row for row in table.read() if row[0] == "p"] == EXPECTED
    keep_deletes(table)
    table.write([(4, 1, "")], "q")
    clean(table)
    assert needed.exists()  # somebody may have planned to read it
    (note,) = (table.root / NOTES).iterdir()
    os.utime(note, (1, 1))
    table.write([(5, 1, "")], "q")
    clean(table)
    assert not needed.exists() and [row for row in table.read() if row[0] == "p"] == EXPECTED


def test_a_compaction_is_asked_for_once_a_read_and_once_a_process_when_its_deletes_are_kept(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table", buckets=4)
    keys = range(20)
    table.write([(key, 5, "") for key in keys])
    late = table.begin().put("p", [(key, 7, "") for key in keys])
    table.delete([(0, 9, "")])  # most slices have no deletes that could be kept
    plan = compacted_by_another(table)
    late.commit()
    asked: list[str] = []
    storage = FaultyStorage(table.storage, before=lambda _, path: asked.append(path))
    looks = []
    for has_note in (False, True, True):
        if has_note:
            keep_deletes(table)
        asked.clear()
        assert len(rows_of(planned(storage))) == len(keys) - 1
        looks.append(len(list(filter(is_note, asked))))
    assert len(plan.operations) == 4 and looks == [1, 1, 0]
