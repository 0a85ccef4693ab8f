"""Conflicts that the marker server finds: in its memory, and in the markers of other live writers on the storage."""

from __future__ import annotations

import random  # noqa: TID251  (seeded here, so that a run can be repeated)
from collections.abc import Callable
from typing import Any

import pytest
from early_writes import GROUP, Writer, early_manager
from one_table import Table
from served_writes import SERVER_STRATEGIES, ServedWriter, post, served, served_manager

from lakelatch.errors import WriteConflict
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage import MemoryStorage
from lakelatch.testing.faulty_storage import FaultyStorage
from lakelatch.timeline.instants import inflight
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.bloom import Bloom, BloomReader, bloom_folder, bloom_key, hashes_of, write_bloom
from lakelatch.transactions.conflicts import Conflict, OtherWrite
from lakelatch.transactions.doom import condemn, doom_of
from lakelatch.transactions.early_detection import Detection
from lakelatch.transactions.marker_checker import MarkerChecker
from lakelatch.transactions.marker_files import MARKERS_FOLDER, KeyIndex
from lakelatch.transactions.strategies import SimpleConflictStrategy

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


def checker_of(table: Table, storage: FaultyStorage | None = None, blooms: bool = False, **early: Any) -> MarkerChecker:
    """The checker of a write that begins now, without its thread."""
    manager = served_manager(table, storage=storage, **early)
    detection = manager.begin().early_detection()
    assert detection is not None
    return MarkerChecker(Detection(detection, manager.provider, table.system), blooms)


def java_writes(table: Table, *names: str, instant: str = JAVA, cut: int = 0) -> str:
    """A live Java writer with a marker server; the last bytes of its file may not be there yet. Returns the file."""
    table.storage.put(heartbeat_path(instant), b"")
    table.storage.put(inflight(instant, "deltacommit").path, b"")
    table.storage.put(f"{MARKERS_FOLDER}/{instant}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    content = "".join(f"{name}.marker.CREATE\n" for name in names).encode()
    path = f"{MARKERS_FOLDER}/{instant}/MARKERS7"
    table.storage.put(path, content[: len(content) - cut])
    return path


@pytest.mark.parametrize("strategy", SERVER_STRATEGIES)
@pytest.mark.parametrize("group", [GROUP, SAME_BUCKET], ids=["the file group", "its bucket"])
def test_the_later_writer_learns_it_within_a_period(table: Table, strategy: str, group: str) -> None:
    from lakelatch.system import REAL_SYSTEM

    with served(table, strategy, count=2) as (early, late):
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
        assert not any("00000009" in line for line in late.lines())  # a doomed write makes no further marker
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


@pytest.mark.parametrize("strategy", [*SERVER_STRATEGIES, "simple_direct", "simple_direct_bloom"])
def test_earlier_writers_of_every_kind_are_seen(table: Table, strategy: str) -> None:
    """Direct ones, ours with a server, with and without Bloom files, and Java's."""
    kinds = ["simple_direct", "simple_direct_bloom", *SERVER_STRATEGIES]
    for number, kind in enumerate(kinds):
        if kind in SERVER_STRATEGIES:
            with served(table, kind) as (writer,):
                writer.write(f"1000000{number}-x")
        else:
            Writer.begin(table, kind).write(f"1000000{number}-x")
    java_writes(table, "p/.10000004-x_1.log.1_0-0-0")
    table.storage.put(heartbeat_path(JAVA), b"")
    for number in range(len(kinds) + 1):
        if strategy in SERVER_STRATEGIES:
            checker = checker_of(table, blooms=strategy.endswith("bloom"))
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


def test_writers_that_are_no_rivals_end_nobody(table: Table) -> None:
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
    service.end("aborted")


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
    condemn(table.storage, checker._detection.instant, Conflict(winner, winner.file_groups))
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
    assert not elsewhere.told and doom_of(table.storage, behind.instant) is None


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
    assert checker.round() is not None and doom_of(table.storage, checker._detection.instant) is None
    down[0] = False
    checker.watch(0, 1)
    assert doom_of(table.storage, checker._detection.instant) is not None


def test_a_strategy_that_promises_nothing_of_file_ids_misses_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimpleConflictStrategy, "equal_start_length", 0)
    java_writes(table, "p/.short_1.log.1_0-0-0", f"p/.{GROUP}_1.log.1_0-0-0")
    for blooms in (False, True):
        for group in ("short", SAME_BUCKET):
            checker = checker_of(table, blooms=blooms)
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
    index = KeyIndex(storage)
    index.refresh(instants)
    assert index.instants_of("p", GROUP) == set(instants) and index.files_read == 8
    index.refresh(instants[2:])
    assert index.instants_of("p", GROUP) == set(instants[2:]) and index.files_read == 8


def test_bloom_files_miss_nothing_and_seldom_claim_more() -> None:
    draw = random.Random(7)
    for count in (1, 2, 30, 1000):
        held = [bloom_key(f"p{draw.random()}", f"{draw.getrandbits(32):08x}-x") for _ in range(count)]
        strange = [bloom_key("q", f"{draw.getrandbits(32):08x}-x") for _ in range(5000)]
        bloom = Bloom.from_bytes(Bloom.of(held).to_bytes())
        assert all(bloom.holds_any(hashes_of([key])) for key in held)
        assert bloom.holds_any(hashes_of([*strange[:3], held[-1]]))
        assert sum(bloom.holds_any(hashes_of([key])) for key in strange) < 25
        assert not bloom.holds_any(hashes_of([]))
        assert len(Bloom.of(held).to_bytes()) < 32 + 3 * count


@pytest.mark.parametrize("content", [b"", b"LLB1", b"LLB1\0\0\0\0", b"LLB1\0\0\0\x40\0", b"junk" * 9])
def test_a_bloom_file_that_cannot_be_read_holds_everything(content: bytes) -> None:
    storage = MemoryStorage("/bloom")
    reader, hashes = BloomReader(storage), hashes_of([b"key"])
    assert reader.may_mark(JAVA, hashes)  # there is none: Java's writers have none
    write_bloom(storage, JAVA, "1", [b"another"])
    assert not reader.may_mark(JAVA, hashes)
    storage.put(f"{bloom_folder(JAVA)}/2", content)
    assert reader.may_mark(JAVA, hashes)
    write_bloom(storage, JAVA, "2", [b"a third"])
    assert not reader.may_mark(JAVA, hashes)
    write_bloom(storage, JAVA, "3", [b"key"])
    assert reader.may_mark(JAVA, hashes)


def test_bloom_files_are_there_before_the_markers_and_spare_their_reading(table: Table) -> None:
    calls: list[tuple[str, str]] = []
    storage = FaultyStorage(table.storage, before=lambda operation, path: calls.append((operation, path)))
    other = Writer.begin(table, "simple_direct_bloom")
    other.write("00000001-x", storage=storage)
    puts = [path for operation, path in calls if operation.startswith("put")]
    assert puts[0].startswith(bloom_folder(other.instant)) and MARKERS_FOLDER in puts[1]
    late = Writer.begin(table, "simple_direct_bloom")
    del calls[:]
    late.write("00000002-x", storage=storage)
    assert [path for operation, path in calls if operation == "list" and MARKERS_FOLDER in path] == []
    with pytest.raises(WriteConflict):
        late.write("00000001-x", storage=storage)
    with served(table, "timeline_server_bloom", storage=storage) as (writer,):
        del calls[:]
        writer.write("00000005-x")
    puts = [path for operation, path in calls if operation.startswith("put")]
    marked = next(number for number, path in enumerate(puts) if path.endswith("/MARKERS0"))
    assert any(path.startswith(bloom_folder(writer.instant)) for path in puts[:marked])


def test_every_step_of_an_attempt_has_its_bloom_file(table: Table) -> None:
    early, late = Writer.begin(table, "simple_direct_bloom"), Writer.begin(table, "simple_direct_bloom")
    with early.attempt() as files:
        files.announce_all([("p", early.name("00000001-x")), ("p", early.name("00000002-x"))])
        files.announce("q", early.name("00000003-x"))
    late.write("00000004-x")
    for partition, group in (("p", "00000001-x"), ("p", "00000002-x"), ("q", "00000003-x")):
        another = Writer.begin(table, "simple_direct_bloom")
        with pytest.raises(WriteConflict):
            another.write(group, partition)
        another.transaction.abort(another.transaction.found_early())


def test_bloom_files_spare_the_server_what_has_other_file_groups(table: Table) -> None:
    reads: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation in ("read", "list") and MARKERS_FOLDER in path:
            reads.append(path)

    with served(table, "timeline_server_bloom", count=2) as writers:
        for number, writer in enumerate(writers):
            writer.write(f"0000000{number}-x")
        checker = checker_of(table, FaultyStorage(table.storage, before=before), blooms=True)
        checker.add([("p", "00000001-x")])
        assert checker.round() is not None
        assert reads and all(writers[1].instant in path for path in reads)


def test_a_commit_sees_what_a_servers_markers_say_of_live_writers(table: Table) -> None:
    """`prefer_writer` asks who is at work on the file groups of a table service."""
    from lakelatch.transactions.rivals import Rivals

    with served(table, None) as (writer,):
        stat = writer.write()
        manager = table.manager()
        rivals = Rivals(table.storage, "20990101000000000", manager.strategy.group_part, manager.observer)
        (rival,) = rivals.on([("p", GROUP), ("p", "00000009-x")])
        assert (rival.instant, rival.file_groups, rival.inflight) == (writer.instant, frozenset([("p", GROUP)]), True)
        assert rival.time
    assert writer.transaction.commit(CommitMetadata((stat,), "UPSERT")).instant == writer.instant
