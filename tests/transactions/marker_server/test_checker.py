"""Conflicts that the marker server finds: in its memory, and in the markers of other live writers on the storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from early_writes import GROUP, Writer, early_manager
from one_table import Table
from served_writes import ServedWriter, post, served, served_manager

from lakelatch.errors import WriteConflict
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage import MemoryStorage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import inflight
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.conflicts.strategies import SimpleConflictStrategy
from lakelatch.transactions.early.notes import aborted_by, mark_aborted
from lakelatch.transactions.marker_server.checker import MarkerChecker
from lakelatch.transactions.markers.files import MARKERS_FOLDER, KeyIndex

SAME_BUCKET = "00000003-5a1c-44b5-93a1-4fa8f12f3d2b-0"
JAVA = "20200101000000000"
PATIENCE = 1000


def eventually(lost: Callable[[], Any], wait: Any) -> Any:
    """What a background round brings about; its period is real time."""
    for _ in range(PATIENCE):
        found = lost()
        if found:
            return found
        wait(0.02)
    raise AssertionError("it never happened")


def checker_of(table: Table, storage: FaultyStorage | None = None, **early: Any) -> MarkerChecker:
    """The checker of a write that begins now, without its thread."""
    manager = served_manager(table, storage=storage, **early)
    detection = manager.begin().early_detection()
    assert detection is not None
    return MarkerChecker(detection.detection(manager.context.provider, table.system))


def java_writes(table: Table, *names: str, instant: str = JAVA, cut: int = 0) -> str:
    """A live Java writer with a marker server; the last bytes of its file may not be there yet. Returns the file."""
    table.storage.put(heartbeat_path(instant), b"")
    table.storage.put(inflight(instant, "deltacommit").path, b"")
    table.storage.put(f"{MARKERS_FOLDER}/{instant}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    content = "".join(f"{name}.marker.CREATE\n" for name in names).encode()
    path = f"{MARKERS_FOLDER}/{instant}/MARKERS7"
    table.storage.put(path, content[: len(content) - cut])
    return path


@pytest.mark.parametrize("group", [GROUP, SAME_BUCKET], ids=["the file group", "its bucket"])
def test_the_later_writer_learns_it_within_a_period(table: Table, group: str) -> None:
    from lakelatch.system import REAL_SYSTEM

    with served(table, count=2) as (early, late):
        kept = early.write(group)
        late.write(partition="q")
        late.write("00000004-0000-0000-0000-000000000000-0")
        with late.attempt() as files, pytest.raises(WriteConflict) as caught:
            files.announce("p", late.name())
            eventually(files_look(files, table), REAL_SYSTEM.sleep)
        conflict = caught.value
        assert conflict.early and conflict.winner == early.instant and conflict.file_groups == [("p", GROUP)]
        status, text = post(late.place, {"id": "x", "markers": ["q/00000009-x_1.marker.CREATE"]})
        assert status == 200 and early.instant in text and '"lost"' in text
        assert not any("00000009" in line for line in late.lines())  # an aborted write makes no further marker
        assert late.transaction.found_early() is not None and early.transaction.found_early() is None
        late.transaction.abort(late.transaction.found_early())
        assert early.commit(kept).instant == early.instant
    assert table.leftovers() == [] and table.data_files() == [kept.path]


def files_look(files: Any, table: Table) -> Callable[[], None]:
    def look() -> None:
        table.system.advance(1)
        files.look()

    return look


def test_a_write_is_told_of_its_loss_once_and_at_once(table: Table) -> None:
    told: list[str] = []
    manager = served_manager(table)
    early = Writer.begin(table)
    early.write()
    transaction = manager.begin()
    with transaction.serve_markers("127.0.0.1", when_lost=lambda: told.append("lost")) as address:
        writer = ServedWriter(table, transaction, address)
        with pytest.raises(WriteConflict):
            for number in range(200):
                writer.write(GROUP if number == 0 else f"1{number:07d}-x")
    assert told == ["lost"]


@pytest.mark.parametrize("strategy", ["timeline_server", "simple_direct"])
def test_earlier_writers_of_every_kind_are_seen(table: Table, strategy: str) -> None:
    """Direct ones, ours with a server, and Java's."""
    kinds = ["simple_direct", "timeline_server", "transactional_direct"]
    for number, kind in enumerate(kinds):
        if kind == "timeline_server":
            with served(table, kind) as (writer,):
                writer.write(f"1000000{number}-x")
        else:
            Writer.begin(table, kind).write(f"1000000{number}-x")
    java_writes(table, "p/.10000003-x_1.log.1_0-0-0")
    table.storage.put(heartbeat_path(JAVA), b"")
    for number in range(len(kinds) + 1):
        if strategy == "timeline_server":
            checker = checker_of(table)
            checker.add([("p", "10000009-x"), ("q", f"1000000{number}-x")])
            assert checker.round() is None
            checker.add([("p", f"1000000{number}-x")])
            found = checker.conflict or checker.round()
            assert found is not None and found.file_groups == {("p", f"1000000{number}-x")}
        else:
            late = Writer.begin(table, strategy)
            late.write(f"2000000{number}-x")
            late.write(f"1000000{number}-x", "q")
            with pytest.raises(WriteConflict) as caught:
                late.write(f"1000000{number}-x")
            assert caught.value.file_groups == [("p", f"1000000{number}-x")]


def test_a_file_that_is_cut_short_counts_as_far_as_it_goes_and_is_read_again(table: Table) -> None:
    name = f"p/.{GROUP}_1.log.1_0-0-0"
    checker = checker_of(table)
    checker.add([("p", GROUP), ("p", "00000001-x")])
    java_writes(table, "p/.00000002-x_1.log.1_0-0-0", name, cut=len(".marker.CREATE\n") + 1)
    assert checker.round() is None
    path = java_writes(table, "p/.00000002-x_1.log.1_0-0-0", name)
    table.storage.put(path, table.storage.read(path) + b"\x00\xff")
    found = checker.round()
    assert found is not None and found.winner.instant == JAVA and found.file_groups == {("p", GROUP)}


def test_only_files_that_have_changed_are_read_again(table: Table) -> None:
    reads: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "read" and "/MARKERS" in path:
            reads.append(path)

    with served(table, None, count=3) as writers:
        for number, writer in enumerate(writers):
            writer.write(f"0000000{number}-x")
        checker = checker_of(table, FaultyStorage(table.storage, before=before))
        checker.add([("p", "00000009-x")])
        for _ in range(3):
            assert checker.round() is None
        assert len(reads) == 3
        writers[1].write("00000005-x")
        assert checker.round() is None
        assert reads[3:] and all(writers[1].instant in path for path in reads[3:])
        checker.add([("p", "00000005-x")])  # held against what the last round has seen
        assert checker.conflict is not None and checker.conflict.winner.instant == writers[1].instant


def test_writers_that_are_not_concurrent_abort_nobody(table: Table) -> None:
    manager = early_manager(table)
    plan = manager.schedule(lambda folder: b"plan", "compaction")
    assert plan is not None
    service = manager.execute(plan, "compaction")
    with served(table, None, count=2) as (dead, gone):
        for writer in (dead, gone):
            writer.write()
    java_writes(table, f"p/.{GROUP}_1.log.1_0-0-0")  # its heartbeat is fresh, and it is no write that is under way
    table.storage.delete(inflight(JAVA, "deltacommit").path)
    table.storage.put(f"{MARKERS_FOLDER}/{plan}/MARKERS0", f"p/{GROUP}_0-0-0_{plan}.parquet.marker.CREATE\n".encode())
    checker = checker_of(table)
    with served(table, None) as (later,):
        later.write()
        table.expire(dead.instant)
        table.storage.delete(heartbeat_path(gone.instant))
        checker.add([("p", GROUP)])
        assert checker.round() is None and checker.add([("p", "00000003-y")]) is None
    service.release()


def test_who_committed_and_left_is_found_in_the_log_if_asked(table: Table) -> None:
    checkers = [checker_of(table, check_commits=check_commits) for check_commits in (True, False)]
    quick = Writer.begin(table)
    done = quick.commit(quick.write())
    for checker in checkers:
        checker.add([("p", GROUP)])
    found = checkers[0].round()
    assert found is not None and (found.winner.instant, found.winner.slot) == (quick.instant, done.slot)
    assert checkers[1].round() is None


def test_what_others_say_on_the_storage_reaches_the_server(table: Table) -> None:
    """An earlier writer with direct markers tells a later one that has looked before."""
    checker = checker_of(table)
    winner = OtherWrite(JAVA, "deltacommit", "", frozenset([("p", GROUP)]), inflight=True)
    mark_aborted(table.storage, checker._detection.instant, Conflict(winner, winner.file_groups))
    assert checker.round() is not None and checker.add([]) == checker.conflict


def test_later_writers_with_direct_markers_are_told(table: Table) -> None:
    """They have looked before; those with a server look by themselves."""
    checker = checker_of(table)
    direct, elsewhere = Writer.begin(table), Writer.begin(table)
    direct.write()
    elsewhere.write("00000009-x")
    with served(table) as (behind,):
        behind.transaction.markers.close()
        checker.add([("p", GROUP)])
        assert checker.round() is None and checker.round() is None
    conflict = direct.transaction.found_early()
    assert conflict is not None and conflict.winner == checker._detection.instant
    assert not elsewhere.told and aborted_by(table.storage, behind.instant) is None


def test_a_conflict_is_said_on_the_storage_as_soon_as_it_can_be(table: Table) -> None:
    down = [True]

    def before(operation: str, path: str) -> None:
        if down[0] and operation == "put_if_absent" and path.endswith("/doom"):
            from lakelatch.errors import Unavailable

            raise Unavailable("down")

    early = Writer.begin(table)
    early.write()
    checker = checker_of(table, FaultyStorage(table.storage, before=before))
    checker.add([("p", GROUP)])
    assert checker.round() is not None and aborted_by(table.storage, checker._detection.instant) is None
    down[0] = False
    checker.watch(0, 1)
    assert aborted_by(table.storage, checker._detection.instant) is not None


def test_a_strategy_that_promises_nothing_of_file_ids_misses_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimpleConflictStrategy, "equal_start_length", 0)
    java_writes(table, "p/.short_1.log.1_0-0-0", f"p/.{GROUP}_1.log.1_0-0-0")
    for group in ("short", SAME_BUCKET):
        checker = checker_of(table)
        checker.add([("p", group)])
        assert checker.round() is not None


@pytest.mark.parametrize("partition", ["", "p", "a_b/c=_", ".x", "é"])
def test_the_index_misses_no_file_group(partition: str) -> None:
    storage = MemoryStorage("/index")
    folder = f"{partition}/" if partition else ""
    ids = ["00000003", GROUP, "0badcafe-12", "x", "ab_", "12345678", "123456789", "1234567"]
    for kind in ("{}_1.parquet", ".{}_1.log.1_0-0-0"):
        for file_id in ids:
            lines = f"q/other_1.marker.CREATE\n{folder}{kind.format(file_id)}.marker.CREATE\n"
            storage.put(f"{MARKERS_FOLDER}/{JAVA}/MARKERS0", lines.encode())
            index = KeyIndex(storage)
            index.refresh([JAVA])
            assert index.instants_of(partition, file_id) == {JAVA}, (kind, file_id)
            assert index.instants_of(partition, "deadbeef-1") == set()
            index.refresh([])
            assert index.instants_of(partition, file_id) == set() and len(index) == 0


def test_the_index_names_all_writers_of_a_file_group() -> None:
    storage = MemoryStorage("/index")
    instants = [f"2020010100000000{number}" for number in range(4)]
    for instant in instants:
        for number in range(2):
            storage.put(f"{MARKERS_FOLDER}/{instant}/MARKERS{number}", f"p/.{GROUP}_1.log.marker.CREATE\n".encode())
    reads: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "read":
            reads.append(path)

    index = KeyIndex(FaultyStorage(storage, before=before))
    index.refresh(instants)
    assert index.instants_of("p", GROUP) == set(instants) and len(reads) == 8
    index.refresh(instants[2:])
    assert index.instants_of("p", GROUP) == set(instants[2:]) and len(reads) == 8


def test_a_commit_sees_what_a_servers_markers_say_of_live_writers(table: Table) -> None:
    """`prefer_writer` asks who is at work on the file groups of a table service."""
    from lakelatch.transactions.early.concurrent_writers import ConcurrentWriters

    with served(table, None) as (writer,):
        stat = writer.write()
        manager = table.manager()
        writers = ConcurrentWriters(
            table.storage, "20990101000000000", manager.context.strategy.group_part, manager.context.observer
        )
        (other_write,) = writers.on([("p", GROUP), ("p", "00000009-x")])
        assert (other_write.instant, other_write.file_groups, other_write.inflight) == (
            writer.instant,
            frozenset([("p", GROUP)]),
            True,
        )
        assert other_write.time
    assert writer.transaction.commit(CommitMetadata((stat,), "UPSERT")).instant == writer.instant
