"""`verify`: whole tables are whole, however old and whatever has been at work; and what is missing is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from live_table import LiveTable
from taken_back_table import new_table, one_of_each, rows, undone_by_java

import lakelatch
from lakelatch import failpoints
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services.verifying import DAMAGED, MISSING, SUPERFLUOUS, Finding
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import CorruptTable
from lakelatch.format.slices.table_view import TableView
from lakelatch.timeline.history import named_files
from lakelatch.timeline.instant import completed
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, Event, slot_bytes, slot_path
from lakelatch.timeline.log.old_slots import CONTENT_FOLDER

VERIFIED: dict[str, object] = {"lakelatch.read.verify": "true"}


def found(table: LiveTable, deep: bool = False) -> list[tuple[str, str]]:
    return [(one.kind, one.path) for one in lakelatch.verify(str(table.root), deep=deep).findings]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of write and service, then a clean and an archive, a savepoint, and plans that wait."""
    table = new_table(tmp_path_factory.mktemp("verified"))
    one_of_each(table)
    for number in range(4):
        table.write(rows(6, 20 + number, f"{number}-"), "q")
        table.compact()
    assert table.clean(CleaningOptions(commits=2))
    assert table.archive(ArchivingOptions(min_commits=3, max_commits=4, minimum_age_s=0)).instants
    kept = table.write(rows(4, 30, "kept"), "q")
    table.savepoint(kept.instant)
    table.write(rows(3, 31, "late"), "q")
    table.write(rows(2, 32, "last"), "q")
    assert table.plan() is not None
    return table.root


@pytest.fixture
def table(made: Path, tmp_path: Path) -> LiveTable:
    shutil.copytree(made, tmp_path / "table")
    return new_table(tmp_path)


def test_a_table_that_was_cleaned_archived_and_kept_is_whole(table: LiveTable) -> None:
    assert found(table, deep=True) == []
    assert table.read(VERIFIED) == table.agreed()


def test_a_table_is_whole_after_rollbacks_and_restores(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    history = one_of_each(table)
    table.begin().put("p", rows(2, 9, "gone")).transaction.abort()
    table.begin().put("p", rows(2, 9, "dead"))
    assert found(table) == []
    table.all_died()
    table.manager().recover()
    assert found(table) == []
    by_java = table.write(rows(2, 10, "java"))
    undone_by_java(table.storage, "p", by_java, "deltacommit")
    table.roll_back(table.write(rows(2, 11, "ours")).instant)
    assert found(table) == []
    table.restore(history[3][1])
    assert found(table) == [] and table.read(VERIFIED) == history[3][2]


def newest(table: LiveTable, pattern: str) -> Path:
    return max(table.root.glob(pattern), key=lambda path: (path.stat().st_mtime_ns, path.name))


FILES: dict[str, tuple[str, int]] = {
    "log": ("q/.*.log.*", -1),
    "base": ("q/*.parquet", -1),
    "delta commit": (".hoodie/timeline/*_*.deltacommit", -2),
    "compaction's commit": (".hoodie/timeline/*_*.commit", -1),
    "plan": (".hoodie/timeline/*.compaction.requested", -1),
}


@pytest.mark.parametrize("file", FILES)
def test_what_is_missing_is_named(table: LiveTable, file: str) -> None:
    pattern, place = FILES[file]
    path = sorted(table.root.glob(pattern), key=lambda one: (one.stat().st_mtime_ns, one.name))[place]
    path.unlink()
    name = str(path.relative_to(table.root))
    if file == "plan":  # nothing speaks of it any more, and nothing is lost
        assert found(table) == []
        return
    assert (MISSING, name) in found(table)


def test_an_archived_write_has_its_files_still(table: LiveTable) -> None:
    """The base file of a partition that nobody has written to since its write was archived."""
    path = newest(table, "p/*.parquet")
    before = table.read()
    path.unlink()
    assert (MISSING, f"p/{path.name}") in found(table)
    assert table.read() != before  # which no request tells, unless it is asked for
    with pytest.raises(CorruptTable, match=path.name.replace(".", r"\.")):
        table.read(VERIFIED)


def test_bytes_are_looked_at_if_that_is_asked_for(table: LiveTable) -> None:
    path = newest(table, "q/*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert found(table) == [] and found(table, deep=True) == [(DAMAGED, f"q/{path.name}")]


def test_a_file_that_no_write_names_is_superfluous_and_no_loss(table: LiveTable) -> None:
    path = newest(table, "q/.*.log.*")
    shutil.copy(path, path.with_name(path.name.replace(".log.1_", ".log.2_")))
    verified = lakelatch.verify(str(table.root))
    assert verified.whole
    (one,) = verified.findings
    assert isinstance(one, Finding) and one.kind == SUPERFLUOUS and ".log.2_" in one.path


def test_what_a_clustering_has_given_up_is_not_superfluous(tmp_path: Path) -> None:
    """Somebody wrote to a file group of its plan before its commit: it has replaced what it began there."""
    table = new_table(tmp_path)
    for partition in "pq":
        table.write(rows(4, 1, "a"), partition)
    plan = table.plan_clustering()
    assert plan is not None
    with failpoints.calling(lambda _: table.write(rows(2, 2, "b")), ["cluster.before_commit"]):
        done = table.execute_clustering(plan)
    assert {path.rpartition("/")[2] for path in table.data_files(plan)} > set(done.files)
    assert found(table) == [] and len(table.agreed()) == 8


def test_the_completed_file_of_a_clustering_is_missed_by_name(tmp_path: Path) -> None:
    """Without it two file groups of its buckets are live: those that it replaced, and those written to since."""
    table = new_table(tmp_path)
    table.write(rows(4, 1, "a"))
    table.cluster()
    table.write(rows(2, 1, "a"), "q")
    clustered = table.read()
    (path,) = (table.root / ".hoodie" / "timeline").glob("*_*.replacecommit")
    content = path.read_bytes()
    path.unlink()
    assert table.read() == clustered  # what it replaced is there yet
    path.write_bytes(content)
    table.write(rows(3, 2, "b"))
    before = table.agreed()
    path.unlink()
    named_files.forget_all()
    assert found(table) == [(MISSING, f".hoodie/timeline/{path.name}")]
    for use in (table.read, lambda: table.write(rows(1, 3, "c"))):
        with pytest.raises(CorruptTable, match=path.name.replace(".", r"\.")):
            use()
    path.write_bytes(content)
    assert table.agreed() == before


def test_a_slot_below_the_watermark_says_nothing(tmp_path: Path) -> None:
    """A writer that was paused created a number that others had removed, and was killed before it looked."""
    table = new_table(tmp_path)
    zombie = table.begin().put("p", rows(2, 9, "zombie")).transaction
    for number in range(4):
        table.write(rows(2, number, "a"))
    log = CommitLog(table.storage)
    tail = log.tail().event
    assert tail is not None and tail.number == 4
    (Path(table.root) / slot_path(4)).write_bytes(slot_bytes([replace(tail, watermark=3)]))
    for number in (1, 2):
        table.storage.delete(slot_path(number))
    assert found(table) == []
    event = Event(COMPLETE, zombie.state.action, zombie.instant, "an operation", "a writer", watermark=0)
    name = completed(zombie.instant, zombie.state.action, tail.time).file_name
    stale = event.placed(2, tail.time, name, 0)
    stale = replace(stale, content_path=f"{CONTENT_FOLDER}/gone", content_digest="0")
    table.storage.put(slot_path(2), slot_bytes([stale]))
    table.storage.put(slot_path(1), b"damaged")
    assert found(table) == [(SUPERFLUOUS, slot_path(1)), (SUPERFLUOUS, slot_path(2))]
    assert lakelatch.verify(str(table.root)).whole


READS: dict[str, Callable[[LiveTable, str], object]] = {
    "now": lambda table, before: table.read(VERIFIED),
    "as of": lambda table, before: table.read({**VERIFIED, "as.of.instant": before}),
    "changes": lambda table, before: table.read(
        {
            **VERIFIED,
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": "20000101000000000",
            "hoodie.datasource.read.end.instanttime": before,
        }
    ),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("file", ["*.parquet", ".*.log.*"])
def test_a_read_that_verifies_refuses_a_table_without_a_file(tmp_path: Path, file: str, read: str) -> None:
    table = new_table(tmp_path)
    table.write(rows(4, 1, "a"))
    table.compact()
    written = table.write(rows(3, 2, "b"))
    whole = READS[read](table, written.completion)
    path = newest(table, f"p/{file}")
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(CorruptTable, match=path.name.replace(".", r"\.")):
        READS[read](table, written.completion)
    path.write_bytes(content)
    assert READS[read](table, written.completion) == whole


def test_a_partition_that_is_gone_as_a_whole_is_missing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.write(rows(4, 1, "a"))
    table.write(rows(4, 1, "b"), "q")
    named_files.forget_all()
    shutil.rmtree(table.root / "p")
    with pytest.raises(CorruptTable, match=r"'p/\.0000"):
        table.read(VERIFIED)
    assert {path.partition("/")[0] for _, path in found(table)} == {"p"}


def test_a_process_misses_a_file_that_it_has_written_itself(tmp_path: Path) -> None:
    """Without being asked: what it remembers costs no request."""
    table = new_table(tmp_path)
    table.write(rows(4, 1, "a"))
    path = newest(table, "p/.*.log.*")
    path.unlink()
    with pytest.raises(CorruptTable, match=path.name.replace(".", r"\.")):
        table.read()


def test_a_reader_that_is_slower_than_a_clean_misses_nothing(tmp_path: Path) -> None:
    """By its timeline the logs are in the latest slice, and they are gone: a second look knows the base file above."""
    table = new_table(tmp_path)
    table.write(rows(4, 1, "a"))
    config = open_table(table.storage).config
    slow = TableView.load(table.storage, config)
    for number in range(3):
        table.compact()
        table.write(rows(4, 2 + number, "b"))
    assert table.clean(CleaningOptions(commits=1))[0].files
    slow.latest()
    assert slow.was_cleaned()  # so whoever reads begins again
