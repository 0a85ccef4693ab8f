"""What simulated processes do: write, compact, clean up after others, read. All of it with the product's own code."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from course import Setting, Told
from plain_member import PlainMember
from seams import Place, SimulatedLocks, SimulatedScope
from world import SECOND_NS, Process, SimulatedSystem

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import abort_after, commit_files
from lakelatch.engine.write.commit import write_task
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import CommitUnknown, LakelatchError, TransactionEnded, WriteConflict
from lakelatch.heartbeat.contract import LEASE, STORAGE, HeartbeatSettings
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.storage.uris import open_storage
from lakelatch.testing.faults.lying_lock import LyingLockProvider
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.actions import SAVEPOINT
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.half_shown import half_shown_now
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.checks import Check
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC, TransactionSettings
from lakelatch.transactions.early.task_files import TaskFiles
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

ACCOUNTS = ("a", "b", "c")  # written by optimistic transfers, whose sum stays
JOURNALS = ("x", "y")  # appended to without conflicts
LEASE_S = 2.0
HEARTBEAT = HeartbeatSettings(interval_ms=500, tolerable_misses=2)
_PATIENCE = 60
_MEETING_NS = SECOND_NS
WRITES = ("commit", "deltacommit", "replacecommit")


class Actor:
    """One process at work. A process that was killed is begun anew under another name."""

    def __init__(
        self,
        place: Place,
        setting: Setting,
        history: Told,
        name: str,
        process: Process | None = None,
        open_table: Callable[[str], Storage] = open_storage,
    ) -> None:
        self.place, self.setting, self.history = place, setting, history
        self.process = process or Process(place.world, name)
        self._open_table = open_table
        self.system = SimulatedSystem(self.process)
        self.storage = place.storage(self.process, any_order=setting.at_once)
        self.random = self.process.random
        self.work = ""
        self._managers: dict[str, TransactionManager] = {}
        self._provider: LockProvider | None = None

    @property
    def name(self) -> str:
        return self.process.name

    def start(self, work: Callable[[], None], then: Callable[[], None] = lambda: None) -> None:
        def run() -> None:
            work()
            self.history.finished.add(self.name)
            then()

        self.place.world.start(self.process, run, self.name)

    def provider(self) -> LockProvider:
        if self._provider is None:
            if self.setting.lying:
                self._provider = LyingLockProvider(LockScope(self.place.uri, {}, self.system))
            else:
                place, process = self.place, self.process
                scope = SimulatedScope(place.uri, {}, self.system, place=place, process=process, lease_s=LEASE_S)
                self._provider = SimulatedLocks(scope)
        return self._provider

    def manager(self, mode: str, anew: bool = False) -> TransactionManager:
        """The manager of this process; a new one with the memory of the last one, if it is opened `anew`."""
        last = self._managers.get(mode)
        if last is None or (anew and self.setting.remembers):
            settings = TransactionSettings(
                mode=mode,
                lock_timeout_s=5.0,
                heartbeat=HEARTBEAT,
                writer=self.name,
                heartbeat_type=LEASE if self.setting.leased_beats and not self.setting.lying else STORAGE,
                early=self.setting.early if mode == OPTIMISTIC else None,
                lock_elision=self.setting.lock_elision,
                side_by_side=self.setting.at_once,
            )
            provider = self.provider()
            self._managers[mode] = TransactionManager(
                self.storage,
                provider,
                HybridTimeGenerator(provider, self.system),
                settings,
                self.system,
                slots_kept=self.setting.slots_kept,
                memory=last.memory if last is not None else None,
                open_table=self._open_table,
                stays_open=self.setting.own_files and self.setting.remembers,
            )
        manager = self._managers[mode]
        if self.setting.crowded:
            manager.memory.queue.left = 4
        return manager

    def manager_for_write(self, mode: str) -> TransactionManager:
        """The manager, which in some runs claims the time of its next write beside what it checks."""
        manager = self.manager(mode, anew=True)
        if self.setting.own_files:
            manager.begin_ahead()
        return manager

    def begin_write(self, mode: str) -> Transaction:
        """Begins a write, after a recovery; in some runs it goes by what is remembered."""
        manager, own = self.manager_for_write(mode), self.setting.own_files
        believes = own and self.setting.remembers and manager.believe(lambda: True)
        manager.recover()
        return manager.begin(for_tasks=not (own and (believes or self.random.random() < 0.5)))

    def storage_time_ms(self) -> int:
        return self.manager(NON_BLOCKING).context.observer.storage_time_ms()

    def patiently(self, work: Callable[[], object], name: str) -> None:
        """Does something until it succeeds, as a job that is restarted by its scheduler would."""
        self.work = name
        for _ in range(_PATIENCE):
            try:
                work()
            except LakelatchError as error:
                self.place.count(type(error).__name__)
                self.place.world.note(f"{self.name}: {type(error).__name__}")
                if isinstance(error, WriteConflict):
                    self.place.count("lost early" if error.details["early"] else "lost at its commit")
                    self.note_conflict(error)
                self.system.sleep(0.05 + self.random.random() * 0.4)
            else:
                return
        self.history.problems.append(f"{self.name} did not get through, {_PATIENCE} times")

    def note_conflict(self, error: WriteConflict) -> None:
        self.history.note("conflict", self.name, **error.details)

    # -- writers ----------------------------------------------------------------------------------------------------

    def transfer(self) -> None:
        """Reads two accounts, and writes both: wrong as soon as anybody else's transfer comes in between."""
        transaction = self.begin_write(OPTIMISTIC)
        with aborted_on_error(transaction):
            one, other = self.random.sample(ACCOUNTS, 2)
            amount = self.random.randrange(1, 100)
            stats = []
            for group, change in ((one, -amount), (other, amount)):
                base, balance = self.read_account(group)
                content = {"group": group, "base": base, "optimistic": True, "balance": balance + change}
                stats.append(self.add_file(transaction, group, content))
            if self.random.random() < 0.08:
                transaction.abort()
                self._tell(transaction, "refused")
                return
            self.commit(transaction, CommitMetadata(tuple(stats), "UPSERT", {WRITER_KEY: self.name}))

    def append(self) -> None:
        transaction = self.begin_write(NON_BLOCKING)
        with aborted_on_error(transaction):
            groups = self.random.sample(JOURNALS, self.random.choice((1, 2)))
            contents = {group: {"group": group, "base": [], "optimistic": False} for group in groups}
            stats = [self.add_file(transaction, group, content) for group, content in contents.items()]
            self.commit(transaction, CommitMetadata(tuple(stats), "UPSERT", {WRITER_KEY: self.name}))

    def compact(self) -> None:
        """Schedules a compaction that names what it includes, and carries it out; or takes over somebody's plan."""
        manager = self.manager(NON_BLOCKING)
        manager.recover()

        def build(snapshot: Snapshot) -> bytes | None:
            listed = [found for found in snapshot.by_completion if found.action == "deltacommit"]
            archived = [found.instant for found in History.load(self.storage).instants(("deltacommit",))]
            done = sorted({*listed, *archived})
            return json.dumps([found.file_name for found in done]).encode() if done else None

        if self.random.random() < 0.6:
            manager.schedule(build)
        pending = [found.requested for found in Snapshot.load(self.storage).pending if found.action == "compaction"]
        if pending:
            self._execute(manager, self.random.choice(pending))

    def _execute(self, manager: TransactionManager, instant: str) -> None:
        transaction = manager.execute(instant)
        name = f"base_0_{instant}.parquet"  # of the plan alone, so that two executors make one file
        try:
            self.storage.put_if_absent(name, b"compacted")
            transaction.commit(
                CommitMetadata((WriteStat("", "base", name, file_size_bytes=1),), "COMPACT", compacted=True)
            )
            self._tell(transaction, "committed")  # that this attempt was refused says nothing of the next one
        except CommitUnknown:
            raise
        except LakelatchError:
            transaction.release()
            raise

    def create_once(self, files: TaskFiles, folder: str, name: str, data: bytes) -> None:
        """Makes a base file of one row, unless another attempt has."""

        def put() -> int:
            files.ensure_wanted()
            self.storage.put_if_absent(path_below(folder, name), data)
            return len(data)

        files.create_once(folder, name, lambda: 1, put)

    def add_file(
        self,
        transaction: Transaction,
        group: str,
        content: dict[str, Any],
        partition: str = "",
        name_of: Callable[[int], str] | None = None,
    ) -> WriteStat:
        """By a task, which may fail and be tried again, and whose first attempt may go on beside the second one, by the
        name that `name_of` gives each attempt; or by the transaction's own process, at its commit.
        """
        data = json.dumps({**content, "work": self.work}).encode()
        if transaction.own_files is not None:
            name = f"{group}_0_{transaction.instant}.log"
            transaction.own_files.create(partition, name, data)
            return WriteStat(partition, group, f"{partition}/{name}" if partition else name, file_size_bytes=1)
        early = transaction.early_detection()
        for attempt in range(4):
            name = f"{group}_{attempt}_{transaction.instant}.log" if name_of is None else name_of(attempt)
            last = attempt == 3 or self.random.random() > 0.25
            if not last and self.random.random() < 0.5:
                self.system.start_thread(partial(self._zombie, transaction, partition, name), "zombie")
                continue
            try:
                with TaskFiles(self.storage, transaction.instant, f"{group}-{attempt}", early, self.system) as files:
                    files.create(partition, name, data, rows=1)
            except (TransactionEnded, WriteConflict):
                raise
            except LakelatchError:
                self.system.sleep(0.05)
                continue
            if last:
                return WriteStat(partition, group, f"{partition}/{name}" if partition else name, file_size_bytes=1)
        raise TransactionEnded("no attempt of the task got through", instant=transaction.instant)

    def _zombie(self, transaction: Transaction, partition: str, name: str) -> None:
        self.system.sleep(3 * self.random.random() ** 3)
        try:
            transaction.markers.create_data_file(partition, name, b"of an attempt that was given up")
        except LakelatchError:
            return

    def read_account(self, group: str, as_of: str = "") -> tuple[list[str], int]:
        """All that was written to it, as a reader finds it, and its balance; now, or as of a completion time."""
        times = {found.requested: found.completion or "" for found in self.completed() if found.action in WRITES}
        times = {requested: time for requested, time in times.items() if not as_of or time <= as_of}
        names = [name for name in self.storage.list("").files if name.startswith(f"{group}_")]
        done = {name: instant_of(name) for name in names if instant_of(name) in times}
        contents = (self.storage.read(name) for name in sorted(done, key=lambda name: times[done[name]], reverse=True))
        newest = next(filter(None, contents), b'{"balance": 0}')  # empty ones bar names of given up attempts
        return sorted(set(done.values())), int(json.loads(newest)["balance"])

    def commit(self, transaction: Transaction, metadata: CommitMetadata, *own: Check) -> None:
        member = None if own else PlainMember(metadata)
        self.told(transaction, lambda: transaction.commit(metadata, own, member=member))

    def task(
        self, table: OpenedTable, options: WriteOptions, transaction: Transaction, in_bulk: bool = False
    ) -> WriteTask:
        """What the product's tasks of a write work with."""
        return write_task(table, options, transaction, in_bulk)

    def commit_files(
        self, transaction: Transaction, table: OpenedTable, options: WriteOptions, reports: list[FileReport]
    ) -> None:
        """Commits as the product's writes do, in one try."""
        self.told(transaction, lambda: commit_files(transaction, table, options, reports))

    def told(self, transaction: Transaction, work: Callable[[], object]) -> None:
        """Commits, and notes down what came of it."""
        if self.setting.meets and self.random.random() < 0.8:
            self._meet()
        try:
            work()
        except (WriteConflict, TransactionEnded):
            self._tell(transaction, "refused")
            raise
        except CommitUnknown:
            self._tell(transaction, "unknown")
            raise
        except LakelatchError as error:
            try:
                abort_after(transaction, error)
            except CommitUnknown:  # others may have committed it by its record
                self._tell(transaction, "unknown")
                raise
            raise
        self._tell(transaction, "committed")

    def _meet(self) -> None:
        """Waits for others who want to commit."""
        self.system.sleep((_MEETING_NS - self.place.world.now_ns % _MEETING_NS) / SECOND_NS)

    def _tell(self, transaction: Transaction, outcome: str) -> None:
        completion = transaction.committed.completion if transaction.committed else ""
        told = {"instant": transaction.instant, "outcome": outcome, "completion": completion}
        self.history.note("return", self.name, work=self.work, role="write", **told)
        self.place.count(outcome)
        self.place.world.note(f"{self.name} was told {outcome} {transaction.instant} {completion}")

    # -- readers ----------------------------------------------------------------------------------------------------

    def tail(self, how_far: Callable[[], int]) -> None:
        """Follows the table by completion time, as an incremental reader does, until the run is over.

        `how_far` is 0 while there is much to see, 1 while there is little, and 2 when nobody writes any more.
        """
        seen, known = list[str](), set[Instant]()
        self.history.note("seen", self.name, files=seen)  # which grows
        last = False
        while True:
            stage = how_far()
            try:
                for found in sorted(self.completed(), key=lambda found: found.completion or ""):
                    if found not in known:
                        self._look_at(found)
                        seen.append(found.file_name)
                        known.add(found)
                if last:
                    return
                last = stage == 2  # so that it looks once more
            except NotFound as error:
                self.history.problems.append(f"{self.name} listed what is not there: {error}")
            except LakelatchError:
                pass
            self.system.sleep((0.1 + self.random.random() * 0.9) * (1, 5, 0)[stage])

    def _look_at(self, found: Instant) -> None:
        try:
            if found.action in WRITES and not self.storage.read(found.path):
                self.history.problems.append(f"{self.name} found {found.file_name} empty")
        except NotFound:
            if History.load(self.storage).find(found.requested) is None:
                raise

    def completed(self) -> list[Instant]:
        """What has completed: on the timeline, and in the history. Savepoints come and go, and are not followed."""
        return self.completed_in(self.storage, self.setting.at_once)

    @staticmethod
    def completed_in(storage: Storage, at_once: bool = False) -> list[Instant]:
        """The same for somebody who reaches the storage in another way; `at_once` if files of a slot appear so."""
        snapshot = Snapshot.load(storage)
        half = half_shown_now(storage, snapshot) if at_once else ()
        active = [one for one in snapshot.completed if one.action != SAVEPOINT and one.requested not in half]
        archived = History.load(storage).instants()
        return list(dict.fromkeys((*active, *(one.instant for one in archived))))


class aborted_on_error:
    """Rolls back after an error in its block, as drivers do."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, LakelatchError) or isinstance(error, CommitUnknown) or self._transaction.committed:
            return
        abort_after(self._transaction, error)  # what fails now is left to the next writer


def instant_of(name: str) -> str:
    """The instant that has made a data file."""
    return name.rpartition(".")[0].rpartition("_")[2]
