"""All services on one table, in random order, beside writers, with an oracle of what was written.

The oracle knows of a table only what users know: which writes have completed, in which order, and which of them were
taken back. Every step is another process.
"""

from __future__ import annotations

import os
import random  # noqa: TID251  (seeded)
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from live_table import LiveTable, Row, TableRows
from sweep import find_losses
from table import Writing

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.options.table_services.compaction import CompactionOptions
from lakelatch.engine.read.plan import ReadPlan, plan_read
from lakelatch.engine.services import cancelling, restoring, savepoints
from lakelatch.engine.services.removals import archiving
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.log_compaction import LogCompaction
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import InvalidRequest, LakelatchError, TransactionEnded, Unavailable, WriteConflict
from lakelatch.timeline.actions import CLUSTERING, COMPACTION, LOG_COMPACTION, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.cancel_requests import plan_of

PARTITIONS = ("p", "q")
KEYS = 6
RETAINED = 2
DAY_S = 86_400
Step = tuple[str, int, int]
State = dict[tuple[str, int], tuple[int, str | None]]  # partition and id: ts, and the value or None if deleted
KINDS = {
    "write": 6,
    "begin": 3,
    "commit": 4,
    "abort": 1,
    "delete": 2,
    "overwrite": 1,
    "drop": 1,
    "compact": 2,
    "plan_compaction": 2,
    "compact_logs": 2,
    "plan_logs": 1,
    "cluster": 2,
    "plan_clustering": 2,
    "execute": 4,
    "cancel": 2,
    "execute_cancels": 2,
    "clean": 4,
    "plan_clean": 1,
    "archive": 3,
    "savepoint": 1,
    "give_up_savepoint": 2,
    "restore": 1,
    "roll_back": 2,
    "read": 2,
    "a_day_passes": 1,
    "recover": 1,
}


@dataclass(frozen=True)
class Write:
    """A completed one. `rows` have None for a value that was deleted; `cleared` are partitions that it began anew."""

    instant: str
    completion: str
    rows: tuple[tuple[str, int, int, str | None], ...] = ()
    cleared: tuple[str, ...] = ()


def state_after(writes: Iterable[Write]) -> TableRows:
    state: State = {}
    for write in writes:
        for place in [one for one in state if one[0] in write.cleared]:
            del state[place]
        for partition, key, ts, value in write.rows:
            if (partition, key) not in state or state[partition, key][0] <= ts:
                state[partition, key] = (ts, value)
    return sorted((place[0], place[1], ts, value) for place, (ts, value) in state.items() if value is not None)


@dataclass
class Reader:
    """A read that was planned, and what it has to see."""

    plan: ReadPlan
    expected: TableRows
    completed: int  # how many instants had


@dataclass
class Services:
    """Carries steps out. What was refused is counted by kind and error: it must be for a reason."""

    table: LiveTable
    writes: list[Write] = field(default_factory=list)
    open: list[tuple[Writing, list[tuple[str, int, int, str | None]]]] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    refused: dict[tuple[str, str], int] = field(default_factory=dict)
    ts: int = 0
    tables_anew: int = 0

    def step(self, kind: str, a: int, b: int) -> None:
        try:
            getattr(self, f"do_{kind}")(a, b)
        except (InvalidRequest, TransactionEnded, WriteConflict, Unavailable) as error:
            allowed = ALLOWED.get(kind, ())
            assert isinstance(error, allowed), f"{kind}: {error!r}"
            self.refused[kind, type(error).__name__] = self.refused.get((kind, type(error).__name__), 0) + 1

    # -- writes -------------------------------------------------------------------------------------------------------

    def do_write(self, a: int, b: int) -> None:
        self._commit(*self._begun(a, b))

    def do_delete(self, a: int, b: int) -> None:
        self._commit(*self._begun(a, b, "delete"))

    def do_overwrite(self, a: int, b: int) -> None:
        writing, rows = self._begun(a, b, "insert_overwrite")
        self._commit(writing, rows, (PARTITIONS[a % 2],))

    def do_drop(self, a: int, _: int) -> None:
        partition = PARTITIONS[a % 2]
        self._commit(self.table.begin("delete_partition"), [], (partition,), (partition,))

    def do_begin(self, a: int, b: int) -> None:
        if len(self.open) < 3:
            self.open.append(self._begun(a, b, "delete" if b % 5 == 0 else "upsert"))

    def do_commit(self, a: int, _: int) -> None:
        if self.open:
            self._commit(*self.open.pop(a % len(self.open)))

    def do_abort(self, a: int, _: int) -> None:
        if self.open:
            self.open.pop(a % len(self.open))[0].transaction.abort()

    def _begun(self, a: int, b: int, operation: str = "upsert") -> tuple[Writing, list[Any]]:
        partition = PARTITIONS[a % 2]
        rows: list[Row] = []
        for key in {(b + n * (1 + a % 3)) % KEYS for n in range(1 + a % 4)}:
            self.ts += 1
            rows.append((key, self.ts, f"v{self.ts * 7 % 10}"))
        writing = self.table.begin(operation).put(partition, rows)
        deleted = operation == "delete"
        return writing, [(partition, key, ts, None if deleted else value) for key, ts, value in rows]

    def _commit(
        self, writing: Writing, rows: list[Any], cleared: tuple[str, ...] = (), partitions: tuple[str, ...] = ()
    ) -> None:
        done = writing.commit(partitions)
        self.writes.append(Write(done.instant, done.completion, tuple(rows), cleared))

    # -- services that rewrite ----------------------------------------------------------------------------------------

    def do_compact(self, _: int, __: int) -> None:
        self.table.compact({"hoodie.compact.inline.max.delta.commits": "1"})

    def do_plan_compaction(self, a: int, _: int) -> None:
        cancellable = "true" if a % 2 else "false"
        parsed = Call(
            {"hoodie.compact.inline.max.delta.commits": "1", "lakelatch.service.cancellable": cancellable}
        ).services()
        opened = open_table(self.table.storage)
        Compaction(parsed.compaction, parsed.cancellation).schedule(ServiceContext(opened, self.table.manager()))

    def do_plan_logs(self, _: int, __: int) -> str | None:
        options = CompactionOptions(least_logs_of_run=2)
        return LogCompaction(options).schedule(self.table.context())

    def do_compact_logs(self, a: int, b: int) -> None:
        plan = self.do_plan_logs(a, b)
        if plan is not None:
            self._execute(Instant(plan, LOG_COMPACTION, "REQUESTED"))

    def do_cluster(self, _: int, __: int) -> None:
        self.table.cluster()

    def do_plan_clustering(self, a: int, b: int) -> None:
        in_part, cancellable = ("false", "true")[a % 2], ("false", "true")[b % 2]
        options = {"lakelatch.service.cancel.in.part": in_part, "lakelatch.service.cancellable": cancellable}
        self.table.plan_clustering("v", options)

    def do_execute(self, a: int, _: int) -> None:
        plans = self.pending()
        if plans:
            self._execute(plans[a % len(plans)])

    def _execute(self, plan: Instant) -> None:
        if plan.action == CLUSTERING:
            self.table.execute_clustering(plan.requested)
        elif plan.action == COMPACTION:
            self.table.execute(plan.requested)
        else:
            opened = open_table(self.table.storage)
            LogCompaction().execute(ServiceContext(opened, self.table.manager()), plan.requested)

    def pending(self) -> list[Instant]:
        """Plans that wait."""
        pending = Snapshot.load(self.table.storage).pending
        return sorted({one for one in pending if one.action in (CLUSTERING, COMPACTION, LOG_COMPACTION)})

    def do_cancel(self, a: int, b: int) -> None:
        plans = self.pending()
        if not plans:
            return
        plan = plans[a % len(plans)]
        manager, groups = self.table.manager(), None
        if b % 2:
            found = plan_of(self.table.storage, plan)
            groups = sorted(found.groups)[:1] if found is not None else None
        cancelling.request_cancel(manager, plan.requested, groups)

    def do_execute_cancels(self, _: int, __: int) -> None:
        cancelling.execute_open(self.table.manager())

    # -- what keeps a table small -------------------------------------------------------------------------------------

    def do_clean(self, _: int, b: int) -> None:
        options = CleaningOptions(commits=RETAINED, parallelism=1, incremental=b % 4 != 0)
        Clean(options).run(self.table.context())

    def do_plan_clean(self, _: int, __: int) -> None:
        options = CleaningOptions(commits=RETAINED, parallelism=1)
        Clean(options).schedule(self.table.context())

    def do_archive(self, a: int, _: int) -> None:
        least = 2 + a % 3
        options = ArchivingOptions(min_commits=least, max_commits=least + 1, merged_files=3, minimum_age_s=0)
        archiving.archive(self.table.manager(), self.table.opened.config, options)

    # -- what takes back ----------------------------------------------------------------------------------------------

    def completed(self, *actions: str) -> list[str]:
        return [one.requested for one in Snapshot.load(self.table.storage).completed if one.action in actions]

    def do_savepoint(self, a: int, _: int) -> None:
        found = self.completed(*WRITE_ACTIONS)
        if found:
            config, manager = self.table.opened.config, self.table.manager()
            savepoints.create_savepoint(config, manager, found[-1 - a % min(len(found), 3)])

    def do_give_up_savepoint(self, a: int, _: int) -> None:
        found = self.completed(SAVEPOINT)
        if found:
            savepoints.delete_savepoint(self.table.manager(), found[a % len(found)])

    def do_restore(self, a: int, _: int) -> None:
        found = self.completed(*WRITE_ACTIONS)
        if found:
            to = found[-1 - a % min(len(found), 4)]
            self._undone(restoring.restore(self.table.opened.config, self.table.manager(), to).undone)
            self.readers.clear()

    def do_roll_back(self, a: int, _: int) -> None:
        found = self.completed(*WRITE_ACTIONS)
        if found:
            instant = found[-1 - a % min(len(found), 6)]
            self._undone(restoring.roll_back(self.table.manager(), instant).undone)
            self.readers.clear()

    def _undone(self, instants: Iterable[str]) -> None:
        gone = set(instants)
        self.writes = [one for one in self.writes if one.instant not in gone]

    # -- readers, time and death --------------------------------------------------------------------------------------

    def do_read(self, _: int, __: int) -> None:
        plan = plan_read(str(self.table.root), None)
        self.readers.append(Reader(plan, state_after(self.writes), self.number_completed()))

    def number_completed(self) -> int:
        whole = WholeTimeline.load(self.table.storage)
        return len(whole.completed(WRITE_ACTIONS))

    def do_a_day_passes(self, _: int, __: int) -> None:
        """For files only: whoever is at work counts as dead afterwards."""
        for folder, _folders, names in os.walk(self.table.root):
            for name in names:
                status = os.stat(f"{folder}/{name}")
                os.utime(f"{folder}/{name}", (status.st_atime, status.st_mtime - 2 * DAY_S))

    def do_recover(self, _: int, __: int) -> None:
        self.table.manager().recover()

    # -- what has to hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        table, expected = self.table, state_after(self.writes)
        if not self.writes:
            return
        assert table.read() == expected, "our reader"
        assert table.by_hudi_rs() == expected, "hudi-rs"
        assert find_losses(table.storage, table.opened.config, at_rest=False) == []
        now = self.number_completed()
        self.readers = [one for one in self.readers if now - one.completed <= RETAINED]
        for reader in self.readers:
            batches = [batch for one in reader.plan.slices for batch in reader.plan.read(one)]
            rows = [row for batch in batches for row in batch.to_pylist()]
            assert sorted((row["part"], row["id"], row["ts"], row["v"]) for row in rows) == reader.expected, "a reader"

    def check_past(self) -> None:
        """As of each moment: what was there then, or an error."""
        for count, write in enumerate(self.writes, 1):
            try:
                found = self.table.as_of(write.completion)
            except InvalidRequest:
                continue
            assert found == state_after(self.writes[:count]), f"as of {write.completion}"

    def end(self) -> None:
        """All that has begun ends, and what is superfluous goes."""
        while self.open:
            self.step("commit", 0, 0)
            self.check()
        self.do_a_day_passes(0, 0)
        self.do_recover(0, 0)
        for one in self.completed(SAVEPOINT):
            savepoints.delete_savepoint(self.table.manager(), one)
        for _ in range(3):
            self.do_execute_cancels(0, 0)
            for plan in self.pending():
                try:
                    self._execute(plan)
                except (TransactionEnded, WriteConflict):  # called off, or others have written to what it planned
                    self.do_execute_cancels(0, 0)
        assert self.pending() == []
        self.check()
        for number in range(RETAINED + 1):
            self.do_write(number, 0)
            self.do_compact(0, 0)
            self.do_a_day_passes(0, 0)
            self.do_clean(0, number)
            self.do_archive(0, 0)
            self.check()
        assert not list(Snapshot.load(self.table.storage).pending), "nothing is pending for ever"
        assert not self.table.storage.names(".hoodie/.cancel"), "no request is open for ever"
        assert find_losses(self.table.storage, self.table.opened.config) == []
        self.check_past()


_WRITE_ERRORS = (WriteConflict, TransactionEnded)
ALLOWED: dict[str, tuple[type[LakelatchError], ...]] = {
    "write": (WriteConflict,),
    "delete": (WriteConflict,),
    "overwrite": (WriteConflict,),
    "drop": (WriteConflict, InvalidRequest),
    "commit": _WRITE_ERRORS,
    "execute": (TransactionEnded, WriteConflict),
    "cluster": (TransactionEnded,),
    "compact_logs": (TransactionEnded,),
    "compact": (TransactionEnded,),
    "cancel": (InvalidRequest,),
    "savepoint": (InvalidRequest,),
    "restore": (InvalidRequest,),
    "roll_back": (InvalidRequest,),
}


def steps_of(seed: int, number: int) -> list[Step]:
    chance = random.Random(seed)
    kinds = chance.choices(list(KINDS), list(KINDS.values()), k=number)
    return [("write", 1, 0), *((kind, chance.randrange(1000), chance.randrange(1000)) for kind in kinds)]
