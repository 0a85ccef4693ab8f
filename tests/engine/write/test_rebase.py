"""A write that lost at its commit commits its files with the next try, as if it had written them only then."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from bare_table import leftovers
from live_table import LiveTable, Row
from table import Steps, Writing, stops_at

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.write import BLOCK_FORMAT, OPERATION
from lakelatch.engine.run.result import CommitResult
from lakelatch.errors import TransactionEnded, WriteConflict
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.testing.faults.storage import UNAVAILABLE, Fault, FaultyStorage
from lakelatch.transactions.base.settings import OPTIMISTIC, EarlySettings
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.conflicts.report import recent_losses
from lakelatch.transactions.early.notes import NOTES_FOLDER, mark_aborted

Step = Callable[[], object]


class Retrying:
    """A write with retries; before each of its commits something else happens."""

    def __init__(self, table: LiveTable, retries: int, meanwhile: Sequence[Step], **more: object) -> None:
        self.table = table
        self.manager = table.manager(conflict_retries=retries, early=EarlySettings())
        self.options = Call({**table.options, **more}).write()
        self.meanwhile = [*meanwhile]
        self.instants: list[str] = []
        self.computed = 0
        self.before_rewriting: Step = lambda: None

    def write(self, rows: Sequence[Row], partition: str = "p", files: int = 1) -> CommitResult:
        def put(writing: Writing) -> None:
            self.computed += 1
            for number in range(files):
                writing.put(partition, rows[number::files], f"{number}-0-0")

        steps = Steps(
            begun=lambda writing: self.instants.append(writing.instant),
            put=put,
            before_copying=lambda: self.before_rewriting(),
            before_commit=lambda: self.meanwhile.pop(0)() if self.meanwhile else None,
        )
        return self.table.write_with_tries(self.manager, self.options, steps)

    def nothing_is_left(self, *instants: str) -> None:
        storage = self.table.storage
        assert leftovers(storage) == []
        for name in storage.list("p").files:
            size_bytes = storage.stat(f"p/{name}").size_bytes
            assert not any(instant in name for instant in instants) or size_bytes == 0


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    return LiveTable(tmp_path / "t", mode=OPTIMISTIC)


def times(table: LiveTable) -> dict[object, tuple[str, str, str]]:
    """By key: commit time, sequence number and file name, as the rows have them."""
    rows = [dict(row) for row in table.read(meta=True)]
    names = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
    return {row["id"]: tuple(row[name] for name in names) for row in rows}


@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_rows_are_written_once_and_committed_by_the_next_try(table: LiveTable, block_format: str) -> None:
    table.write([(1, 1, "old"), (2, 1, "old")])
    won: list[CommitResult] = []
    writer = Retrying(table, 1, [lambda: won.append(table.write([(1, 2, "winner")]))], **{BLOCK_FORMAT: block_format})
    done = writer.write([(1, 3, "a"), (2, 3, "b"), (3, 3, "c")])
    lost, again = writer.instants
    assert (done.instant, done.conflicts_retried, done.rows_written, writer.computed) == (again, 1, 3, 1)
    assert lost < won[0].instant < won[0].completion < again
    assert table.agreed() == [("p", 1, 3, "a"), ("p", 2, 3, "b"), ("p", 3, 3, "c")]
    assert table.since(won[0].completion) == table.agreed()
    for time, sequence, file_name in times(table).values():
        assert time == again and sequence.startswith(f"{again}_0_") and file_name in "".join(done.files)
    assert len({sequence for _, sequence, _ in times(table).values()}) == 3
    sizes = {name: table.storage.stat(f"p/{name}").size_bytes for name in done.files}
    assert sum(sizes.values()) == done.bytes_written > 0
    writer.nothing_is_left(lost)
    (loss,) = recent_losses(table.storage)
    assert (loss.instant, loss.winner) == (lost, won[0].instant)
    assert (loss.rows_lost, loss.task_s_lost) == (0, 0) and loss.bytes_lost > 0
    table.compact()
    assert table.optimized() == table.agreed() == [("p", 1, 3, "a"), ("p", 2, 3, "b"), ("p", 3, 3, "c")]


def test_deletes_are_committed_by_the_next_try(table: LiveTable) -> None:
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = Retrying(table, 1, [lambda: table.write([(1, 2, "winner")])], **{OPERATION: "delete"})
    done = writer.write([(1, 3, "")])
    assert (done.deletes_written, writer.computed) == (1, 1)
    assert table.agreed() == [("p", 2, 1, "old")]


def test_files_follow_their_bucket_and_keep_their_order(table: LiveTable) -> None:
    """The winner has deleted the partition, so the buckets have other file ids; two files hold the same keys."""
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = Retrying(table, 1, [lambda: table.drop("p")])
    done = writer.write([(1, 3, "first"), (1, 3, "second"), (2, 3, "first"), (2, 3, "second")], files=2)
    assert writer.computed == 1 and len(done.files) == 4
    assert all(f".{file_name}_{done.instant}" in "".join(done.files) for _, _, file_name in times(table).values())
    assert table.agreed() == [("p", 1, 3, "second"), ("p", 2, 3, "second")]
    assert table.write([(1, 4, "next")]).instant > done.instant
    assert table.agreed() == [("p", 1, 4, "next"), ("p", 2, 3, "second")]


def test_an_overwrite_is_tried_again_as_well(table: LiveTable) -> None:
    table.write([(1, 1, "old"), (2, 1, "old")])
    writer = Retrying(table, 1, [lambda: table.write([(2, 2, "winner")])], **{OPERATION: "insert_overwrite"})
    done = writer.write([(3, 0, "over")])
    assert (writer.computed, done.file_groups_replaced) == (1, 2)
    assert table.agreed() == [("p", 3, 0, "over")]


def test_each_try_that_loses_hands_its_files_on(table: LiveTable) -> None:
    steps = [lambda: table.write([(1, 1, "x")]), lambda: table.write([(1, 2, "y")])]
    writer = Retrying(table, 2, steps)
    done = writer.write([(1, 3, "a")])
    assert (done.conflicts_retried, writer.computed) == (2, 1)
    assert [loss.instant for loss in recent_losses(table.storage)] == writer.instants[:2]
    assert table.agreed() == [("p", 1, 3, "a")]
    writer.nothing_is_left(*writer.instants[:2])


def test_a_loser_without_a_further_try_leaves_nothing(table: LiveTable) -> None:
    steps = [lambda: table.write([(1, 1, "x")]), lambda: table.write([(1, 2, "y")])]
    writer = Retrying(table, 1, steps)
    with pytest.raises(WriteConflict) as caught:
        writer.write([(1, 3, "a")])
    assert caught.value.details["instant"] == writer.instants[1] and caught.value.rows_lost == 1
    assert [loss.rows_lost for loss in recent_losses(table.storage)] == [0, 1]
    assert table.agreed() == [("p", 1, 2, "y")]
    writer.nothing_is_left(*writer.instants)


def test_a_copy_that_fails_leaves_nothing(table: LiveTable) -> None:
    writer = Retrying(table, 1, [lambda: table.write([(1, 1, "x")])])
    with stops_at("rebase.after_file"):
        writer.write([(1, 3, "a")])
    assert len(writer.instants) == 2 and table.agreed() == [("p", 1, 1, "x")]
    writer.nothing_is_left(*writer.instants)


def test_a_try_that_loses_while_it_copies_leaves_the_files_to_the_next(table: LiveTable) -> None:
    writer = Retrying(table, 2, [lambda: table.write([(1, 1, "x")])])

    def abort_the_copier() -> None:
        if len(writer.instants) == 2:
            groups = frozenset({("p", "00000000-0000-0000-0000-000000000000-0")})
            winner = OtherWrite(writer.instants[0], "deltacommit", "", groups, time="20990101000000000")
            mark_aborted(table.storage, writer.instants[1], Conflict(winner, groups))

    writer.before_rewriting = abort_the_copier
    done = writer.write([(1, 3, "a")])
    assert (done.conflicts_retried, done.instant, writer.computed) == (2, writer.instants[2], 1)
    assert table.agreed() == [("p", 1, 3, "a")]
    writer.nothing_is_left(*writer.instants[:2])


def test_files_that_somebody_has_rolled_back_are_not_committed(table: LiveTable) -> None:
    """The loser's process stood still for so long that it was taken for dead."""
    writer = Retrying(table, 1, [lambda: table.write([(1, 1, "x")])])

    def taken_for_dead() -> None:
        os.utime(table.root / heartbeat_path(writer.instants[0]), (1, 1))
        assert table.manager().recover() == writer.instants[:1]

    writer.before_rewriting = taken_for_dead
    with pytest.raises(TransactionEnded, match="taken for dead and rolled back"):
        writer.write([(1, 3, "a")])
    assert table.agreed() == [("p", 1, 1, "x")]
    writer.nothing_is_left(*writer.instants)


def test_files_are_not_kept_if_nobody_can_be_told_of_the_loss(table: LiveTable) -> None:
    """Others, and the next try itself, would take the one that lost for a concurrent writer."""
    writer = Retrying(table, 1, [lambda: table.write([(1, 1, "x")])])
    storage = FaultyStorage(table.storage, [Fault(UNAVAILABLE, "put_if_absent", NOTES_FOLDER)])
    writer.manager.context = replace(writer.manager.context, storage=storage)
    assert writer.write([(1, 3, "a")]).conflicts_retried == 1
    assert storage.failed == 1 and writer.computed == 2
    assert table.agreed() == [("p", 1, 3, "a")]
    writer.nothing_is_left(writer.instants[0])
