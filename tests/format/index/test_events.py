"""What each kind of event does to the live files: an index from before it says what listing says after it, or nothing.

`test_any_age.py` has them in random order; here each has its test, and what is not ours is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from archiver import Archiver
from live_table import LiveTable
from random_tables.index_checks import IndexChecks

from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services import restoring, savepoints
from lakelatch.format.index.file_index import FileIndex, files_of
from lakelatch.format.slices import partitions
from lakelatch.format.slices.index_reading import current_index
from lakelatch.format.slices.table_view import TableView
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed, inflight, requested
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import OPTIMISTIC


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    """With rows in two partitions, in base files and in log files."""
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "a"), (2, 1, "b")], "p")
    table.write([(3, 1, "c")], "q")
    table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    table.write([(1, 2, "d")], "p")
    return table


@pytest.fixture
def checks(table: LiveTable) -> IndexChecks:
    """With an index of the table as it is at first."""
    checks = IndexChecks(table.storage, table.opened.config, kept_most=30)
    assert checks.look() == [] and len(checks.kept) == 1
    return checks


def write(table: LiveTable) -> None:
    table.write([(1, 3, "e"), (4, 3, "f")], "p")


def new_partition(table: LiveTable) -> None:
    table.write([(1, 3, "e")], "r")


def delete(table: LiveTable) -> None:
    table.delete([(1, 3, "")], "p")


def compact(table: LiveTable) -> None:
    assert table.compact({"hoodie.compact.inline.max.delta.commits": "1"}) is not None


def delete_and_compact(table: LiveTable) -> None:
    """The base file has a log file of kept deletes beside it."""
    delete(table)
    compact(table)


def write_beside_a_plan(table: LiveTable) -> None:
    """What completes after a plan belongs behind the base file that it ends in."""
    plan = table.plan({"hoodie.compact.inline.max.delta.commits": "1"})
    assert plan is not None
    write(table)
    table.execute(plan)


def compact_logs(table: LiveTable) -> None:
    write(table)
    assert table.compact_logs() is not None


def cluster(table: LiveTable) -> None:
    assert table.cluster() is not None


def cluster_beside_a_write(table: LiveTable) -> None:
    plan = table.plan_clustering()
    assert plan is not None
    writing = table.begin().put("p", [(1, 9, "g")])
    table.execute_clustering(plan)
    writing.commit()


def overwrite(table: LiveTable) -> None:
    table.write([(7, 1, "h")], "p", "insert_overwrite")


def overwrite_beside_a_write(table: LiveTable) -> None:
    """The write's files move to the successors, and tombstones stay in their place."""
    writing = table.begin().put("p", [(1, 9, "g")])
    overwrite(table)
    writing.commit()


def drop(table: LiveTable) -> None:
    table.drop("p")


def failed_attempt(table: LiveTable) -> None:
    """A second attempt at a task leaves a tombstone under a completed instant."""
    writing = table.begin().put("p", [(1, 9, "g")], "0-0-0")
    kept = list(writing.reports)
    writing.put("p", [(1, 9, "g")], "0-1-1")
    writing.reports = kept
    writing.commit()


def clean(table: LiveTable) -> None:
    compact(table)
    write(table)
    cleaned = list(table.clean(CleaningOptions(commits=1, parallelism=1)))
    assert cleaned and cleaned[0].files


def abort(table: LiveTable) -> None:
    table.begin().put("p", [(1, 9, "g")]).transaction.abort()


def savepoint(table: LiveTable) -> None:
    last = Snapshot.load(table.storage).completed[-1].requested
    savepoints.create_savepoint(table.opened.config, table.manager(), last)


def roll_back_what_came_after(table: LiveTable) -> None:
    write(table)
    restoring.roll_back(table.manager(), Snapshot.load(table.storage).completed[-1].requested)


def archive_all_but_the_last(table: LiveTable) -> None:
    """What the index stands on, and what came after it."""
    write(table)
    write(table)
    archived = sorted(one.requested for one in Snapshot.load(table.storage).completed)[:-1]
    Archiver(table.storage).archive(archived)


EVENTS: tuple[Callable[[LiveTable], None], ...] = (
    *(write, new_partition, delete, compact, delete_and_compact, write_beside_a_plan, compact_logs, cluster),
    *(cluster_beside_a_write, overwrite, overwrite_beside_a_write, drop, failed_attempt, clean, abort, savepoint),
    *(roll_back_what_came_after, archive_all_but_the_last),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_an_index_from_before_an_event_says_what_is_live_after_it(
    table: LiveTable, checks: IndexChecks, event: Callable[[LiveTable], None]
) -> None:
    rows = table.read()
    event(table)
    assert checks.look() == [] and checks.counts == {"used": 1}
    write(table)
    assert checks.look() == [] and checks.counts == {"used": 3}
    assert table.read() != rows


def is_used(table: LiveTable, index: FileIndex) -> bool:
    table.storage.put(index.path, index.to_bytes())
    return current_index(TableView.load(table.storage, table.opened.config).whole) is not None


def test_what_was_taken_back_makes_an_index_useless(table: LiveTable, checks: IndexChecks) -> None:
    """The compaction that went had hidden the files which are live again."""
    compact(table)
    assert checks.look() == []
    before, after = checks.kept
    restoring.roll_back(table.manager(), after_commit(table))
    assert not is_used(table, after)
    table.storage.delete(after.path)
    assert is_used(table, before)
    assert checks.look() == [] and checks.counts == {"used": 2, "unused": 1}


def after_commit(table: LiveTable) -> str:
    """The requested time of the last compaction."""
    return max(one.requested for one in Snapshot.load(table.storage).completed if one.action == "commit")


def test_a_restore_makes_younger_indexes_useless(table: LiveTable, checks: IndexChecks) -> None:
    first = Snapshot.load(table.storage).completed[-1].requested
    write(table)
    assert checks.look() == []
    restoring.restore(table.opened.config, table.manager(), first)
    assert checks.look() == [] and checks.counts == {"used": 2, "unused": 1}


def foreign_commit(table: LiveTable, instant: str, completion: str) -> None:
    """A deltacommit that takes no slot, and says nothing of a writer of ours."""
    content = CommitMetadata((), "UPSERT", {"schema": "{}"}).to_avro()
    for one in (requested(instant, "deltacommit"), inflight(instant, "deltacommit")):
        table.storage.put(one.path, b"")
    table.storage.put(completed(instant, "deltacommit", completion).path, content)


def test_a_commit_of_others_makes_an_index_useless(table: LiveTable, checks: IndexChecks) -> None:
    (index,) = checks.kept
    assert is_used(table, index)
    latest = int(index.moment)
    foreign_commit(table, str(latest + 1), str(latest + 2))
    assert not is_used(table, index)


def test_a_commit_that_appears_behind_an_index_makes_it_useless(table: LiveTable, checks: IndexChecks) -> None:
    """Only a writer that knows no slots can do that; its name is enough."""
    (index,) = checks.kept
    latest = int(index.moment)
    foreign_commit(table, str(latest - 2), str(latest - 1))
    assert not is_used(table, index)


def test_an_index_of_the_future_is_not_read(table: LiveTable, checks: IndexChecks) -> None:
    """A reader that listed the timeline before it was made shows what was there then."""
    view = TableView.load(table.storage, table.opened.config)
    (first,) = checks.kept
    write(table)
    checks.look()
    for index in checks.kept:
        table.storage.put(index.path, index.to_bytes())
    found = current_index(view.whole)
    assert found is not None and found.files == first.files


@pytest.mark.parametrize("damage", ["cut", "a bit", "another's", "empty", "gone meanwhile"])
def test_a_damaged_index_is_not_used(
    table: LiveTable, checks: IndexChecks, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    (index,) = checks.kept
    assert is_used(table, index)
    data = index.to_bytes()
    damaged = {
        "cut": data[:-9],
        "a bit": data[:40] + bytes([data[40] ^ 1]) + data[41:],
        "another's": FileIndex("20200101000000000", index.writes, {}, {}).to_bytes(),
        "empty": b"",
    }
    if damage == "gone meanwhile":
        table.storage.delete(index.path)
        names = [index.path.rpartition("/")[2]]
        assert current_index(TableView.load(table.storage, table.opened.config).whole, names) is None
    else:
        table.storage.put(index.path, damaged[damage])
        assert current_index(TableView.load(table.storage, table.opened.config).whole) is None
    assert "the file index is not used" in caplog.text and index.path in caplog.text


def test_a_commit_that_cannot_be_read_leaves_it_to_the_listing(table: LiveTable, checks: IndexChecks) -> None:
    (index,) = checks.kept
    write(table)
    assert is_used(table, index)
    write(table)
    table.storage.put(f"{TIMELINE_FOLDER}/{Snapshot.load(table.storage).completed[-1].file_name}", b"no commit")
    assert not is_used(table, index)


def test_what_turns_out_to_be_damage_by_an_index_is_listed(table: LiveTable, checks: IndexChecks) -> None:
    (index,) = checks.kept
    (base,) = (name for name in index.files["q"] if name.endswith(".parquet"))
    another = base.replace(base.partition("_")[0], f"{base[:8]}-2026-1121-1200-001230000000-0")
    wrong = replace(index, files={**index.files, "q": (*index.files["q"], another)})
    table.storage.put(wrong.path, wrong.to_bytes())
    view = TableView.load(table.storage, table.opened.config)
    with patch.object(partitions, "FEW_FOLDERS", 1):
        assert view.latest() == view.latest(by_index=False)


def test_a_copy_on_write_table(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", OPTIMISTIC, hoodie__datasource__write__table__type="COPY_ON_WRITE")
    checks = IndexChecks(table.storage, table.opened.config, kept_most=30)
    for number in range(3):
        table.write([(number, number, "a"), (9, number, "b")], "p")
        table.write([(number, number, "a")], "q")
        assert checks.look() == []
    for change in (overwrite, drop, cluster, write):
        change(table)
        assert checks.look() == []
    assert list(table.clean(CleaningOptions(commits=1, parallelism=1)))
    last = table.write([(1, 9, "z")], "p")
    assert checks.look() == []
    restoring.roll_back(table.manager(), last.instant)
    assert checks.look() == [] and checks.counts["used"] > 15 and checks.counts["unused"] > 0


def test_the_files_of_a_commit_are_what_it_names() -> None:
    assert files_of(CommitMetadata((), "UPSERT", {WRITER_KEY: "w"})) == {}
    assert files_of(CommitMetadata((), "UPSERT", {})) is None
