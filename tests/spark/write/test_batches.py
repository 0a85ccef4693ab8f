"""A batch is committed once, however often, by whomever and at whatever point of its life it is repeated."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from archiver import Archiver
from hypothesis import given, settings
from hypothesis import strategies as st
from live_table import LiveTable, Row, TableRows
from table import Writing

import lakelatch
from lakelatch.engine.options.batch import BATCH_APPLICATION, BATCH_NUMBER, Batch, refuse_batch
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.write.batches import BATCHES_FOLDER, BatchCommitted, BatchRegister
from lakelatch.errors import CommitUnknown, CorruptTable, InvalidRequest, TransactionEnded, Unavailable
from lakelatch.failpoints import active
from lakelatch.spark.streams.sink import ensure_nothing_beside
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import OPTIMISTIC


def begin_batch(table: LiveTable, batch: Batch, rows: Sequence[Row], register: BatchRegister | None = None) -> Writing:
    """A write of the batch up to its commit, in a process of its own unless `register` is given."""
    return table.begin_batch(batch, lambda writing: writing.put("p", rows), register)


def write_batch(table: LiveTable, batch: Batch, rows: Sequence[Row]) -> CommitResult:
    return table.commit_batch(batch, lambda writing: writing.put("p", rows))


def commits(table: LiveTable) -> int:
    return len([one for one in Snapshot.load(table.storage).completed if one.action == "deltacommit"])


def tries(table: LiveTable) -> list[str]:
    return [path.rpartition("/")[2] for path in table.storage.walk(BATCHES_FOLDER)]


def test_a_repeated_batch_is_the_commit_that_it_has(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    first = write_batch(table, Batch("q", 0), [(1, 1, "a"), (2, 1, "b")])
    again = write_batch(table, Batch("q", 0), [(1, 9, "other rows")])
    assert again == replace(first, repeated=True) and not first.repeated
    assert write_batch(table, Batch("r", 0), [(3, 1, "c")]).instant != first.instant, "another application's"
    assert commits(table) == 2
    assert table.agreed() == [("p", 1, 1, "a"), ("p", 2, 1, "b"), ("p", 3, 1, "c")]
    (instant,) = [one for one in Snapshot.load(table.storage).completed if one.requested == first.instant]
    extra = CommitMetadata.from_avro(table.storage.read(instant.path)).extra
    assert json.loads(extra["_hudi_streaming_sink_checkpoint"]) == {"q": "0"}


def test_a_repeated_batch_counts_the_rows_that_it_brought(tmp_path: Path) -> None:
    """And not those of the base files that it was merged with."""
    table = LiveTable(tmp_path / "t", OPTIMISTIC, buckets=1, hoodie__datasource__write__table__type="COPY_ON_WRITE")
    table.write([(key, 1, "a") for key in range(5)])
    first = write_batch(table, Batch("q", 0), [(1, 2, "b"), (7, 1, "c")])
    assert first.rows_written == 2 and len(table.agreed()) == 6
    assert write_batch(table, Batch("q", 0), [(1, 9, "other rows")]) == replace(first, repeated=True)


def test_earlier_batches_are_found_after_their_tries_have_gone(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    results = [write_batch(table, Batch("q", number), [(number, 1, "a")]) for number in (0, 1, 5)]
    assert tries(table) == ["00000000000000000005-000001.json"]
    again = [write_batch(table, Batch("q", number), [(number, 9, "b")]) for number in (1, 0, 5)]
    assert [one.instant for one in again] == [results[1].instant, results[0].instant, results[2].instant]
    with pytest.raises(InvalidRequest, match=r"batch\.number=3 .*numbers its batches upwards"):
        write_batch(table, Batch("q", 3), [(3, 1, "a")])
    assert commits(table) == 3


@pytest.mark.parametrize("number", [0, 1])
def test_a_batch_whose_commit_was_archived_is_not_written_again(tmp_path: Path, number: int) -> None:
    """The last one is found by its try, which is still registered, and one before it by a walk over the history."""
    table = LiveTable(tmp_path / "t", buckets=1)
    results = [write_batch(table, Batch("q", batch), [(batch, 1, "a")]) for batch in (0, 1)]
    table.compact()
    table.write([(7, 1, "x")])
    rows = table.agreed()
    leaving = [one.requested for one in Snapshot.load(table.storage).completed if one.requested <= results[1].instant]
    Archiver(table.storage).archive(leaving)
    there = {one.requested for one in Snapshot.load(table.storage).instants}
    assert len(leaving) == 2 and not there & set(leaving)
    again = write_batch(table, Batch("q", number), [(number, 9, "again")])
    assert again == replace(results[number], repeated=True)
    assert table.agreed() == rows and commits(table) == 1
    assert not write_batch(table, Batch("q", 2), [(2, 1, "next")]).repeated


def test_an_earlier_try_that_was_rolled_back_does_not_hide_an_archived_commit(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    dead = begin_batch(table, Batch("q", 0), [(1, 1, "dead")])
    dead.transaction.abort()
    done = write_batch(table, Batch("q", 0), [(1, 1, "a")])
    table.compact()
    gone = [one.requested for one in Snapshot.load(table.storage).completed if one.requested <= done.instant]
    Archiver(table.storage).archive(gone)
    assert write_batch(table, Batch("q", 0), [(1, 9, "again")]) == replace(done, repeated=True)
    assert table.agreed() == [("p", 1, 1, "a")]


@pytest.mark.parametrize("point", ["batch.after_register", "commit.after_lock", "commit.before_slot"])
def test_a_try_that_died_before_its_commit_is_done_again(tmp_path: Path, point: str) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    with active(f"{point}=raise"), pytest.raises(Unavailable, match=point):
        write_batch(table, Batch("q", 0), [(1, 1, "a")])
    assert not write_batch(table, Batch("q", 0), [(1, 1, "a")]).repeated
    assert commits(table) == 1 and table.agreed() == [("p", 1, 1, "a")]


@pytest.mark.parametrize("point", ["commit.after_slot", "commit.after_projection"])
def test_a_try_that_died_after_its_commit_is_found(tmp_path: Path, point: str) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    with active(f"{point}=raise"), pytest.raises(CommitUnknown):
        begin_batch(table, Batch("q", 0), [(1, 1, "a")]).transaction.commit(CommitMetadata((), "UPSERT"))
    assert write_batch(table, Batch("q", 0), [(1, 1, "a")]).repeated
    assert commits(table) == 1


def test_a_paused_driver_cannot_commit_what_its_successor_has_written(tmp_path: Path) -> None:
    """And the successor does not wait until that one counts as dead."""
    table = LiveTable(tmp_path / "t", buckets=1)
    paused = begin_batch(table, Batch("q", 7), [(1, 1, "paused")])
    result = write_batch(table, Batch("q", 7), [(1, 1, "a")])
    with pytest.raises(TransactionEnded):
        paused.commit()
    assert table.agreed() == [("p", 1, 1, "a")]
    assert write_batch(table, Batch("q", 7), [(1, 1, "paused")]) == replace(result, repeated=True)


def test_of_two_that_register_at_once_one_commits(tmp_path: Path) -> None:
    class Late(BatchRegister):
        """Has looked before the other one registered."""

        looked = False

        def resolve(self) -> int:
            if not self.looked:
                self.looked = True
                return 0
            return super().resolve()

    table = LiveTable(tmp_path / "t", buckets=1)
    batch = Batch("q", 0)
    first = begin_batch(table, batch, [(1, 1, "first")])
    second = begin_batch(table, batch, [(1, 2, "second")], Late(table.manager(), batch))
    with pytest.raises(TransactionEnded):
        first.commit()
    second.commit()
    with pytest.raises(BatchCommitted, match=second.instant):
        begin_batch(table, batch, [(1, 3, "third")], Late(table.manager(), batch))
    assert table.agreed() == [("p", 1, 2, "second")] and not Snapshot.load(table.storage).pending


def test_a_try_that_is_registered_after_the_batch_is_forgotten_is_none(tmp_path: Path) -> None:
    """A later batch has removed the tries of this one, so that the name it wants is free again."""

    class Paused(BatchRegister):
        """Looks, and then sleeps while its successor goes on."""

        looked = False

        def resolve(self) -> int:
            last = super().resolve()
            if not self.looked:
                self.looked = True
                results.extend(write_batch(table, Batch("q", number), [(number, 1, "a")]) for number in (0, 1))
            return last

    table = LiveTable(tmp_path / "t", buckets=1)
    results: list[CommitResult] = []
    batch = Batch("q", 0)
    with pytest.raises(BatchCommitted) as found:
        begin_batch(table, batch, [(0, 9, "zombie")], Paused(table.manager(), batch)).commit()
    assert found.value.details["result"] == replace(results[0], repeated=True)
    assert commits(table) == 2 and not Snapshot.load(table.storage).pending
    assert table.agreed() == [("p", 0, 1, "a"), ("p", 1, 1, "a")]


def test_an_earlier_try_that_could_not_be_ended_leaves_this_one_ended(tmp_path: Path) -> None:
    """What is unknown is the rollback, so the caller's own transaction does not stay open for as long as it lives."""
    table = LiveTable(tmp_path / "t", buckets=1)
    earlier = begin_batch(table, Batch("q", 0), [(0, 1, "a")])
    with active("commit.after_slot=raise@1"), pytest.raises(Unavailable) as failed:
        begin_batch(table, Batch("q", 0), [(0, 1, "b")])
    assert not isinstance(failed.value, CommitUnknown)
    pending = [one.requested for one in Snapshot.load(table.storage).pending if one.action == "deltacommit"]
    assert pending == [earlier.transaction.instant]
    write_batch(table, Batch("q", 0), [(0, 1, "c")])
    assert commits(table) == 1 and table.agreed() == [("p", 0, 1, "c")]


def test_a_try_that_is_removed_while_it_is_looked_at_is_none(tmp_path: Path) -> None:
    """A later batch has begun meanwhile, so its commit is what counts."""

    class Slow(BatchRegister):
        def _tries(self) -> list[Any]:
            found = super()._tries()
            if found and not later:
                later.append(write_batch(table, Batch("q", 1), [(1, 1, "b")]))
            return found

    table = LiveTable(tmp_path / "t", buckets=1)
    first = write_batch(table, Batch("q", 0), [(0, 1, "a")])
    later: list[CommitResult] = []
    with pytest.raises(BatchCommitted) as found:
        Slow(table.manager(), Batch("q", 0)).resolve()
    assert later and found.value.details["result"] == replace(first, repeated=True)


def test_a_writer_does_not_abort_its_own_earlier_try(tmp_path: Path) -> None:
    """Whose files it may still be taking over."""
    table = LiveTable(tmp_path / "t", buckets=1)
    batch = Batch("q", 0)
    register = BatchRegister(table.manager(), batch)
    lost = begin_batch(table, batch, [(1, 1, "a")], register)
    begin_batch(table, batch, [(1, 1, "a")], register)
    assert lost.instant in {one.requested for one in Snapshot.load(table.storage).pending}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}"])
def test_a_damaged_try_is_named(tmp_path: Path, content: bytes) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    write_batch(table, Batch("q", 0), [(1, 1, "a")])
    (path,) = table.storage.walk(BATCHES_FOLDER)
    table.storage.put(path, content)
    with pytest.raises(CorruptTable, match=path):
        write_batch(table, Batch("q", 0), [(1, 1, "a")])
    assert commits(table) == 1


def test_half_a_name_and_the_wrong_place_are_refused(tmp_path: Path) -> None:
    for values in ({BATCH_APPLICATION: "q"}, {BATCH_NUMBER: "1"}, {BATCH_APPLICATION: " ", BATCH_NUMBER: "1"}):
        with pytest.raises(InvalidRequest, match="name a batch together"):
            Batch.from_options(values)
    with pytest.raises(InvalidRequest, match=r"batch\.number=-1 is out of range"):
        Batch.from_options({BATCH_APPLICATION: "q", BATCH_NUMBER: "-1"})
    assert Batch.from_options({}) is None
    refuse_batch(None, "it")
    with pytest.raises(InvalidRequest, match="cannot tell a repeated batch"):
        lakelatch.delete_partitions(str(tmp_path), "p", {BATCH_APPLICATION: "q", BATCH_NUMBER: "1"})


@dataclass
class Run:
    """Two streams, a batch writer and a compactor on one bucket, and what is known of it from outside."""

    table: LiveTable
    writes: dict[str, list[Row]] = field(default_factory=dict)  # rows by instant
    moments: list[tuple[str, str, TableRows]] = field(default_factory=list)  # completion, instant, all rows
    plans: list[tuple[str, bool]] = field(default_factory=list)
    open: dict[str, Writing] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def completed(self, result: CommitResult, rows: list[Row]) -> None:
        if rows:
            assert result.instant not in self.writes, "a batch was committed twice"
            self.writes[result.instant] = rows
        best: dict[int, Row] = {}
        for row in (row for rows in self.writes.values() for row in rows):
            if row[0] not in best or row[1] > best[row[0]][1]:
                best[row[0]] = row
        self.moments.append((result.completion, result.instant, sorted(("p", *row) for row in best.values())))
        assert self.table.agreed() == self.moments[-1][2]

    def rows_of(self, writer: str) -> list[Row]:
        number = self.numbers.get(writer, 0)
        own = "abc".index(writer)
        return [(key, 3 * (7 * number + 3 * key) % 31 * 3 + own, f"{writer}{number}") for key in range(3)]

    def step(self, what: str) -> None:
        if what in "abc":
            rows, batch = self.rows_of(what), Batch(what, self.numbers.get(what, 0))
            if what not in self.open:
                self.open[what] = begin_batch(self.table, batch, rows)
                return
            self.completed(self.open.pop(what).commit(), rows)
            assert write_batch(self.table, batch, rows).repeated, "Spark did not get to know of it"
            self.numbers[what] = batch.number + 1
        elif what == "kill":  # `a` is restarted from its checkpoint, whether or not it was at work
            rows, batch = self.rows_of("a"), Batch("a", self.numbers.get("a", 0))
            self.open.pop("a", None)
            self.completed(write_batch(self.table, batch, rows), rows)
            self.numbers["a"] = batch.number + 1
        elif what == "plan":
            plan = self.table.plan_logs()
            self.plans += [(plan, True)] if plan else []
            plan = self.table.plan({"hoodie.compact.inline.max.delta.commits": "2"})
            self.plans += [(plan, False)] if plan else []
        elif self.plans:
            plan, of_logs = self.plans.pop()
            self.completed(self.table.execute_logs(plan) if of_logs else self.table.execute(plan), [])


STEPS = ["a"] * 4 + ["b"] * 4 + ["c"] * 2 + ["plan"] * 3 + ["carry out"] * 3 + ["kill"]


@settings(max_examples=6, deadline=None)
@given(steps=st.permutations(STEPS))
def test_streams_a_batch_writer_and_a_compactor_at_once(steps: list[str]) -> None:
    """None is aborted, and each reader of a window or of a moment gets what was true then, also later."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(LiveTable(Path(folder) / "t", buckets=1))
        for step in ["a", "b", "c", *steps]:  # all are in flight when the first plan is made
            run.step(step)
        begin = "0"
        for completion, instant, rows in run.moments:
            assert run.table.as_of(completion) == rows
            won = [row for row in rows if row[1:] in run.writes.get(instant, [])]
            assert run.table.since(begin, completion) == won
            begin = completion
        final = run.moments[-1][2]
        assert run.table.since("0") == final


@pytest.mark.parametrize(
    "key",
    [
        "hoodie.datasource.compaction.async.enable",
        "hoodie.clustering.async.enabled",
        "hoodie.clean.async.enabled",
        "hoodie.archive.async",
    ],
)
def test_services_beside_a_query_that_nobody_can_watch_are_refused_by_name(key: str) -> None:
    """As under Spark Connect. What is on by default was asked for by nobody, and does nothing there."""
    ensure_nothing_beside({})
    ensure_nothing_beside({key: "false"})
    with pytest.raises(InvalidRequest, match="lakelatch service run") as caught:
        ensure_nothing_beside({key: "true"})
    assert caught.value.details["option"] == key
