"""Files that follow a replace commit into the successors of their file groups, and what is left if they fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from executors import run_here
from live_table import LiveTable

from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.write.relocation import Relocation
from lakelatch.engine.writing import delete_partitions
from lakelatch.errors import InvalidRequest, TransactionEnded, Unavailable
from lakelatch.failpoints import active
from lakelatch.format.bucket_index import bucket_file_id, bucket_of_file_id, successor_file_id
from lakelatch.format.file_groups import FileIds, ReplaceCommit, replace_commits
from lakelatch.format.names import LogFile, parse_data_file
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage.checksums import strip_checksum
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.instant import TIMELINE_FOLDER, Instant, completed
from lakelatch.timeline.log.events import COMPLETE
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.markers.direct import Markers

OVERWRITE = "insert_overwrite"
FIRST, SECOND, THIRD = (f"2026112{day}120000123" for day in (1, 2, 3))


def files(table: LiveTable, instant: str, partition: str = "p") -> list[LogFile]:
    """The log files of an instant that have content, in the order of merging."""
    found = []
    for name in table.storage.list(partition).files:
        file = parse_data_file(name)
        if (
            isinstance(file, LogFile)
            and file.instant == instant
            and table.storage.stat(f"{partition}/{name}").size_bytes
        ):
            found.append(file)
    return sorted(found, key=lambda file: (file.file_id, file.order))


def leftovers(table: LiveTable) -> list[str]:
    folders = (".hoodie/.heartbeat", ".hoodie/.temp", ".hoodie/.lakelatch/open")
    pending = [instant.path for instant in Snapshot.load(table.storage).pending]
    return pending + [path for folder in folders for path in table.storage.walk(folder)]


def test_files_move_and_the_instant_stays(table: LiveTable) -> None:
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = table.begin().put("p", [(1, 5, "a"), (2, 5, "b")]).put("q", [(1, 5, "q")])
    over = table.drop("p")
    done = writer.commit()
    assert done.instant == writer.instant
    assert [file.file_id for file in files(table, done.instant)] == [successor_file_id(b, over.instant) for b in (0, 1)]
    assert [file.file_id for file in files(table, done.instant, "q")] == [bucket_file_id(0)]
    assert set(done.files) == {file.name for part in "pq" for file in files(table, done.instant, part)}
    assert table.agreed() == [("p", 1, 5, "a"), ("p", 2, 5, "b"), ("q", 1, 5, "q")]
    assert leftovers(table) == []


def test_the_tombstones_of_relocated_files_are_no_work_for_anybody(table: LiveTable) -> None:
    """They lie in the replaced file groups, under an instant that completed after the replace commit."""
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = table.begin().put("p", [(1, 5, "a"), (2, 5, "b")])
    over = table.drop("p")
    writer.commit()
    successors = [successor_file_id(bucket, over.instant) for bucket in (0, 1)]
    assert [found.file_id for found in plan_read(str(table.root)).slices] == successors
    assert table.compact() is not None and table.compact() is None
    done = table.write([(3, 7, "over")], operation=OVERWRITE)
    assert done.file_groups_replaced == 2 and table.agreed() == [("p", 3, 7, "over")]


def test_a_bucket_without_a_file_moves_as_well(table: LiveTable) -> None:
    """Else the next writer, which knows of the replace commit, would begin a second file group for the bucket."""
    table.write([(1, 1, "old")])
    writer = table.begin().put("p", [(2, 5, "b")])
    over = table.drop("p")
    writer.commit()
    table.write([(2, 6, "B")])
    assert table.agreed() == [("p", 2, 6, "B")]
    assert {file.file_id for file in files(table, writer.instant)} == {successor_file_id(1, over.instant)}


def test_files_move_as_often_as_they_must(table: LiveTable) -> None:
    """Each time that they have moved, another replace commit is faster once more."""
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = table.begin().put("p", [(1, 5, "a"), (2, 5, "b")])
    table.drop("p")
    rounds: list[CommitResult] = []

    def overtaken(task: Any, relocations: Sequence[Relocation]) -> list[FileReport]:
        relocated = run_here(task, relocations)
        if len(rounds) < 3:
            rounds.append(table.write([(9, 9, "over")], operation=OVERWRITE))
        return relocated

    writer.commit(run=overtaken)
    assert len(rounds) == 3
    assert table.agreed() == [("p", 1, 5, "a"), ("p", 2, 5, "b"), ("p", 9, 9, "over")]
    expected = [successor_file_id(bucket, rounds[-1].instant) for bucket in (0, 1)]
    assert [file.file_id for file in files(table, writer.instant)] == expected
    assert leftovers(table) == []


def test_a_replace_commit_during_the_look_at_the_file_groups_is_no_conflict(table: LiveTable) -> None:
    """No lock keeps others away, so a listing may show what came after the tail that the commit is held against."""
    table.write([(1, 1, "old")])
    writer = table.begin().put("p", [(2, 5, "mine")])
    table.write([(1, 2, "over")], operation=OVERWRITE)
    looks: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "list" and path == "p":
            looks.append(path)
            if len(looks) == 1:
                table.write([(1, 3, "again"), (2, 3, "again")], operation=OVERWRITE)

    table.opened = replace(table.opened, storage=FaultyStorage(table.storage, before=before))
    writer.commit()
    assert looks and table.agreed() == [("p", 1, 3, "again"), ("p", 2, 5, "mine")]


def test_files_of_one_bucket_keep_their_order(table: LiveTable) -> None:
    """Of rows with one ordering value the last one wins; tokens and versions of several tasks decide what is last."""
    table.write([(1, 1, "old")])
    writer = table.begin()
    for name, token in (("last", "9-0-1"), ("first", "10-0-1"), ("middle", "2-0-1")):
        writer.put("p", [(1, 5, name), (2, 5, name)], token)
    table.drop("p")
    writer.commit()
    assert [file.version for file in files(table, writer.instant)] == [1, 2, 3, 1, 2, 3]
    assert table.agreed() == [("p", 1, 5, "last"), ("p", 2, 5, "last")]


def test_deletes_move_too(table: LiveTable) -> None:
    table.write([(1, 1, "old"), (2, 1, "old")])
    deleter = table.begin("delete").put("p", [(1, 6, "")])
    table.write([(1, 5, "over"), (2, 5, "over")], operation=OVERWRITE)
    deleter.commit()
    assert table.agreed() == [("p", 2, 5, "over")]


@pytest.mark.parametrize(
    "point", ["relocate.after_reopen", "relocate.after_file", "relocate.after_file=raise@2", "close.after=raise@2"]
)
def test_a_move_that_fails_leaves_nothing(table: LiveTable, point: str) -> None:
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = table.begin().put("p", [(1, 5, "a"), (2, 5, "b")])
    table.drop("p")
    with active(point if "=" in point else f"{point}=raise"), pytest.raises(Unavailable):
        writer.commit()
    assert files(table, writer.instant) == [] and leftovers(table) == []
    table.write([(2, 2, "next")])
    assert table.agreed() == [("p", 2, 2, "next")]


@pytest.mark.parametrize(
    "point", ["relocate.after_reopen", "relocate.after_file", "relocate.after_file=raise@2", "close.after=raise@2"]
)
def test_a_writer_that_dies_while_it_moves_is_rolled_back(
    table: LiveTable, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = table.begin().put("p", [(1, 5, "a"), (2, 5, "b")])
    table.drop("p")
    monkeypatch.setattr(writer.transaction, "abort", lambda conflict=None: writer.transaction.hand_over())
    with active(point if "=" in point else f"{point}=raise"), pytest.raises(Unavailable):
        writer.commit()
    assert table.agreed() == []
    os.utime(table.root / heartbeat_path(writer.instant), (1, 1))
    assert table.manager().recover() == [writer.instant]
    assert files(table, writer.instant) == [] and leftovers(table) == []


def test_a_task_that_was_paused_over_the_move_makes_no_file(table: LiveTable) -> None:
    """An attempt of the write announces its file when the instant takes files again, and goes on after the commit."""
    table.write([(1, 1, "old")])
    writer = table.begin().put("p", [(1, 5, "a")])
    over = table.drop("p")
    late = LogFile(bucket_file_id(0), writer.instant, 1, "7-7-7").name

    def announced_meanwhile(task: Any, relocations: Sequence[Relocation]) -> list[FileReport]:
        with pytest.raises(TransactionEnded):
            Markers(table.storage, writer.instant).announce("p", late.replace("7-7-7", "9-9-9"))
        writer.transaction.markers.announce("p", late)
        return run_here(task, relocations)

    writer.commit(run=announced_meanwhile)
    assert table.storage.put_if_absent(f"p/{late}", b"rows") is False  # its name has a tombstone
    with pytest.raises(TransactionEnded):
        Markers(table.storage, writer.instant).announce("p", late.replace("7-7-7", "8-8-8"))
    assert [file.file_id for file in files(table, writer.instant)] == [successor_file_id(0, over.instant)]
    assert table.agreed() == [("p", 1, 5, "a")]


@pytest.mark.parametrize("dies", [False, True])
def test_an_overwrite_that_does_not_commit_takes_nothing_away(table: LiveTable, dies: bool) -> None:
    table.write([(1, 1, "a")])
    over = table.begin(OVERWRITE).put("p", [(1, 5, "over")])
    if dies:
        over.transaction.hand_over()
        os.utime(table.root / heartbeat_path(over.instant), (1, 1))
        assert table.manager().recover() == [over.instant]
    else:
        over.transaction.abort()
    assert files(table, over.instant) == [] and leftovers(table) == []
    table.write([(2, 1, "b")])
    assert table.agreed() == [("p", 1, 1, "a"), ("p", 2, 1, "b")]


def test_an_instant_that_was_rolled_back_is_not_reopened(table: LiveTable) -> None:
    writer = table.begin().put("p", [(1, 5, "a")])
    writer.transaction.abort()
    with pytest.raises(TransactionEnded):
        writer.transaction.reopen()
    assert leftovers(table) == []


def test_the_log_names_what_was_replaced(table: LiveTable) -> None:
    """Writers of other versions see from the event alone that their file groups are gone."""
    table.write([(1, 1, "old"), (2, 1, "old")])
    manager = table.manager()
    over = table.write([(1, 1, "new")], operation=OVERWRITE)
    event = manager.context.log.tail().event
    assert event is not None and (event.kind, event.action, event.instant) == (COMPLETE, "replacecommit", over.instant)
    replaced = {("p", bucket_file_id(0)), ("p", bucket_file_id(1))}
    assert event.file_groups == replaced | {("p", successor_file_id(bucket, over.instant)) for bucket in (0, 1)}


# -- which file id a bucket has --------------------------------------------------------------------------------------


def replacing(instant: str, operation: str, written: dict[str, tuple[str, ...]], *replaced: str) -> ReplaceCommit:
    return ReplaceCommit(
        completed(instant, "replacecommit", instant[:-1] + "9"), operation, written, {"p": replaced} if replaced else {}
    )


def test_a_successor_is_a_bucket_s_file_id() -> None:
    file_id = successor_file_id(7, FIRST)
    assert file_id == "00000007-2026-1121-1200-001230000000-0"
    assert bucket_of_file_id(file_id) == 7
    assert len({successor_file_id(7, FIRST), successor_file_id(8, FIRST), successor_file_id(7, SECOND)}) == 3
    assert bucket_of_file_id(successor_file_id(7, FIRST[:14])) == 7
    with pytest.raises(InvalidRequest):
        successor_file_id(100_000_000, FIRST)


def test_without_replace_commits_file_ids_are_fixed() -> None:
    assert FileIds.after([]).of("p", 3) == bucket_file_id(3)
    assert FileIds.after([]).successor_of("p", bucket_file_id(3)) == bucket_file_id(3)


def test_the_last_replace_commit_of_a_partition_decides() -> None:
    ids = FileIds.after(
        [
            replacing(FIRST, "DELETE_PARTITION", {}, bucket_file_id(0)),
            replacing(SECOND, "INSERT_OVERWRITE", {"p": (successor_file_id(1, SECOND),)}),
        ]
    )
    assert [ids.of("p", bucket) for bucket in (0, 1)] == [successor_file_id(bucket, SECOND) for bucket in (0, 1)]
    assert ids.of("q", 0) == bucket_file_id(0)
    assert ids.successor_of("p", successor_file_id(1, FIRST)) == successor_file_id(1, SECOND)
    assert ids.partitions["p"].buckets == {}  # tasks carry no more than they must


def test_file_ids_that_another_engine_drew_are_taken_over() -> None:
    drawn = "00000001-9f3c-4c59-8d8f-0a4f8b1d2c3e-0"
    ids = FileIds.after([replacing(FIRST, "INSERT_OVERWRITE", {"p": (drawn,)}, bucket_file_id(0), bucket_file_id(1))])
    assert ids.of("p", 1) == drawn
    assert ids.of("p", 0) == successor_file_id(0, FIRST)


def test_a_clustering_moves_no_bucket_that_it_has_left_alone() -> None:
    """It names the file id there that must stay empty."""
    written, left_alone = (successor_file_id(bucket, SECOND) for bucket in (1, 0))
    clustered = replacing(SECOND, "CLUSTER", {"p": (written,)}, bucket_file_id(1), left_alone)
    after = FileIds.after([clustered])
    assert after.of("p", 0) == bucket_file_id(0) and after.of("p", 1) == written
    assert FileIds.after([replacing(FIRST, "CLUSTER", {}, bucket_file_id(0)), clustered]).of("p", 0) == (
        successor_file_id(0, FIRST)
    )


def test_a_clustering_moves_the_buckets_that_it_names() -> None:
    clustered = replacing(SECOND, "CLUSTER", {"p": (successor_file_id(1, SECOND),)}, bucket_file_id(1))
    for before, elsewhere in (
        ((), bucket_file_id(0)),
        ((replacing(FIRST, "DELETE_PARTITION", {}, bucket_file_id(0)),), successor_file_id(0, FIRST)),
    ):
        ids = FileIds.after([*before, clustered])
        assert ids.of("p", 1) == successor_file_id(1, SECOND)
        assert ids.of("p", 0) == elsewhere
    both = FileIds.after([replacing(FIRST, "CLUSTER", {}, bucket_file_id(0)), clustered])
    assert [both.of("p", 0), both.of("p", 1)] == [successor_file_id(0, FIRST), successor_file_id(1, SECOND)]
    lost = FileIds.after([replacing(THIRD, "CLUSTER", {}, bucket_file_id(1))])
    assert lost.of("p", 1) == successor_file_id(1, THIRD)


def test_a_foreign_replace_commit_is_followed(table: LiveTable) -> None:
    """Java overwrites a partition: its rows, and ours that come later, are in one file group for each bucket."""
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = table.begin().put("p", [(1, 5, "a"), (2, 5, "b")])
    drawn = "00000000-9f3c-4c59-8d8f-0a4f8b1d2c3e-0"
    last = table.manager().context.log.tail().time
    start, end = to_instant(to_ms(writer.instant) + 1), to_instant(to_ms(max(last, writer.instant)) + 2)
    name = f".{drawn}_{start}.log.1_0-0-0"
    (ours,) = (path for path in writer.reports if path.file_id == bucket_file_id(0))
    theirs = strip_checksum(table.storage.read(f"p/{ours.file_name}")).replace(writer.instant.encode(), start.encode())
    table.storage.put(f"p/{name}", theirs)
    metadata = CommitMetadata(
        (WriteStat("p", drawn, f"p/{name}", log_version=1, base_file="", log_files=(name,)),),
        "INSERT_OVERWRITE",
        {"schema": table.opened.avro_schema},
        replaced={"p": (bucket_file_id(0), bucket_file_id(1))},
    )
    instant: Instant = completed(start, "replacecommit", end)
    table.storage.put(instant.path, metadata.to_avro())
    writer.commit()
    relocated = {file.file_id for file in files(table, writer.instant)}
    assert relocated == {drawn, successor_file_id(1, start)}
    table.write([(1, 6, "A")])
    assert [row[1:] for row in table.agreed()] == [(1, 6, "A"), (2, 5, "b")]


def test_replace_commits_are_read_once_and_only_if_there_are_any(table: LiveTable) -> None:
    read: list[str] = []
    watched = FaultyStorage(table.storage, before=lambda operation, path: read.append(f"{operation} {path}"))
    table.write([(1, 1, "a")])
    assert replace_commits(watched, table.storage.names(TIMELINE_FOLDER)) == () and read == []
    dropped = table.drop("p")
    for _ in range(3):
        (found,) = replace_commits(watched, table.storage.names(TIMELINE_FOLDER))
        assert found.instant.requested == dropped.instant
    assert read == [f"read {found.instant.path}"]


# -- delete_partitions -----------------------------------------------------------------------------------------------


@pytest.fixture
def dates(tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """Deletes partitions of a table with one row a day, and says which days are left."""
    table = LiveTable(tmp_path / "t")
    for day in ("2026-11-20", "2026-11-21", "2026-12-01"):
        table.write([(1, 1, "a")], day)

    def delete(partitions: str | list[str] | None = None, **options: str) -> list[str]:
        named = {name.replace("__", "."): value for name, value in options.items()}
        delete_partitions(str(table.root), partitions, {**table.options, **named})
        return [row[0] for row in table.agreed()]

    yield delete


def test_partitions_are_deleted_by_name_and_by_pattern(dates: Callable[..., list[str]]) -> None:
    assert dates("2026-11-20/") == ["2026-11-21", "2026-12-01"]
    assert dates(["2026-11-*"]) == ["2026-12-01"]
    assert dates(hoodie__datasource__write__partitions__to__delete="2026-11-21, 2026-12-01") == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["2026-11-2"], "no partition '2026-11-2': the nearest are 2026-11-2"),
        (["2027-*"], "no partition '2027-"),
        (["*-2"], r"no partition '\*-2'"),
        ([], "no partition is named"),
        ([" ", "/"], "no partition is named"),
        (None, "no partition is named"),
    ],
)
def test_a_slip_of_the_pen_deletes_nothing(
    dates: Callable[..., list[str]], given: list[str] | None, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        dates(given)
    assert len(dates("2026-12-01")) == 2


def test_a_table_without_partitions_has_none_to_delete(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", partitioned=False)
    table.write([(1, 1, "a")])
    with pytest.raises(InvalidRequest, match="insert_overwrite_table"):
        delete_partitions(str(table.root), "p", table.options)
    assert len(table.agreed()) == 1


def test_partitions_of_no_table_cannot_be_deleted(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no table"):
        delete_partitions(str(tmp_path / "nowhere"), "p")
    assert not list(tmp_path.iterdir())
