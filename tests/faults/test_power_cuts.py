"""A crash of the machine, at each change of the storage: what was not synced may be gone, and nobody lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import bare_table
import pytest
from bare_table import add_file, age, commit

from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER, TASK_BEATS_FOLDER
from lakelatch.locks.contract import LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage import LocalStorage, MemoryStorage, local
from lakelatch.storage.contract import Storage, ends_with_its_writer
from lakelatch.storage.folders import sync_folder
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.clock import ManualSystem
from lakelatch.timeline.instant import requested
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.markers.direct import OPEN_FOLDER
from lakelatch.transactions.undo.recovery import recover

ENDING = ("all that was not synced is gone", "nothing is gone", "some of it is gone")


class PowerCut(BaseException):
    """Nothing of the process goes on."""


class ForgetfulStorage(MemoryStorage):
    """Keeps beside what is there what would be there after a crash, which comes after so many changes."""

    def __init__(self, name: str, changes_left: int) -> None:
        super().__init__(name)
        self.synced = MemoryStorage(f"{name}, synced")
        self.changes_left = changes_left

    def put(self, path: str, data: bytes) -> None:
        self._change(path)
        super().put(path, data)
        if not ends_with_its_writer(path):
            self.synced.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._change(path)
        done = super().put_if_absent(path, data)
        if done and not ends_with_its_writer(path):
            self.synced.put_if_absent(path, data)
        return done

    def delete(self, path: str) -> None:
        self._change(path)
        super().delete(path)
        if not ends_with_its_writer(path):
            self.synced.delete(path)

    def after(self, ending: str) -> MemoryStorage:
        """What is found after the crash."""
        left = MemoryStorage(f"{self.uri}, {ending}")
        chosen = ManualSystem(seed=len(self.synced.list("").files))
        for path in sorted({*self.walk(""), *self.synced.walk("")}):
            kept = self.synced if ending == ENDING[0] else self
            if ending == ENDING[2]:
                kept = self.synced if chosen.random() < 0.5 else self
            if kept.exists(path):
                left.put(path, kept.read(path))
        return left

    def _change(self, path: str) -> None:
        if self.changes_left == 0:
            raise PowerCut
        self.changes_left -= 1


def manager_of(storage: Storage) -> TransactionManager:
    """As a process that was started after everything else had ended."""
    provider = InProcessLockProvider(LockScope(f"{storage.uri}/{REAL_SYSTEM.new_id()}", {}))
    system = ManualSystem(1_795_262_400_000)
    return bare_table.manager_of(storage, provider, system, REAL_SYSTEM, slots_kept=2)


def write(manager: TransactionManager, group: str, gives_up: bool = False) -> tuple[Committed | None, str]:
    transaction = manager.begin()
    add_file(transaction, group, attempt=1, content=b"of an attempt that was given up")
    stat = add_file(transaction, group)
    if gives_up:
        transaction.abort()
        return None, ""
    return commit(transaction, stat), stat.path


@dataclass
class Done:
    """What was acknowledged: instants and plans with their files, and up to where the log went."""

    files: dict[str, str] = field(default_factory=dict)
    tail: int = -1


def work(storage: Storage, done: Done) -> None:
    """Writes, one that is rolled back, and a plan that is carried out."""
    manager = manager_of(storage)

    def acknowledged(what: str, name: str = "") -> None:
        done.files[what], done.tail = name, tail_of(manager)

    for number in range(3):
        committed, name = write(manager, f"g{number}")
        assert committed is not None
        acknowledged(committed.instant, name)
        write(manager, "x", gives_up=True)
    plan = manager.schedule(lambda folder: b"plan")
    assert plan is not None
    acknowledged(requested(plan, "compaction").path)
    executor = manager.execute(plan)
    executor.commit(CommitMetadata((), "COMPACT"))
    acknowledged(plan)


def tail_of(manager: TransactionManager) -> int:
    """By what is in the storage, whatever the manager remembers."""
    return manager_of(manager.storage).context.log.tail_number()


def check(storage: MemoryStorage, done: Done) -> None:
    """Nothing that was acknowledged is gone, and nothing else is left once dead writers are rolled back."""
    assert tail_of(manager_of(storage)) >= done.tail, "a number of the log would be given twice"
    for path in storage.walk(""):
        age(storage, path)
    manager = manager_of(storage)
    recover(manager.context)
    timeline = Snapshot.load(storage)
    completed = {instant.requested for instant in timeline.completed if instant.action != "rollback"}
    for what, name in done.files.items():
        assert storage.exists(what) if "/" in what else what in completed
        assert not name or storage.read(name)
    for path in storage.walk(""):
        if not path.startswith(".hoodie") and storage.stat(path).size_bytes:
            instant = path.rpartition("_")[2].partition(".")[0]
            assert instant in completed and "_0_" in path, path
    write(manager_of(storage), "after")
    assert [one for one in timeline.pending if one.action != "compaction"] == []


def test_a_power_cut_at_any_step_takes_nothing_that_was_acknowledged(request: pytest.FixtureRequest) -> None:
    cut_after, ended = 0, False
    while not ended:
        storage, done = ForgetfulStorage(f"{request.node.name} {cut_after}", cut_after), Done()
        try:
            work(storage, done)
            ended = True
        except PowerCut:
            pass
        for ending in ENDING:
            check(storage.after(ending), done)
        cut_after += 1
    assert cut_after > 60 and len(done.files) == 5


def test_what_is_not_synced_is_what_only_the_living_need() -> None:
    for folder in (HEARTBEAT_FOLDER, OPEN_FOLDER, TASK_BEATS_FOLDER):
        assert ends_with_its_writer(f"{folder}/20261122120000000")
    for path in (
        ".hoodie/timeline/1.requested",
        ".hoodie/.lakelatch/log/1.json",
        ".hoodie/.temp/1/a.marker.CREATE",
        "a",
    ):
        assert not ends_with_its_writer(path)


def test_a_small_write_syncs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real syncs, counted on their way."""
    manager = manager_of(LocalStorage(str(tmp_path)))
    write(manager, "a")
    syncs: list[str] = []
    sync_data = local._sync_data

    def folder(path: str) -> None:
        syncs.append(path)
        sync_folder(path)

    def data(handle: int) -> None:
        syncs.append("data")
        sync_data(handle)

    monkeypatch.setattr(local, "sync_folder", folder)
    monkeypatch.setattr(local, "_sync_data", data)
    transaction = manager.begin()
    transaction.markers.create_data_file("", f"a_{transaction.instant}.log", b"rows")
    began = len(syncs)
    transaction.commit(CommitMetadata((WriteStat("", "a", f"a_{transaction.instant}.log"),), "UPSERT"))
    assert (began, len(syncs) - began) == (5, 4)
    assert {"data", str(tmp_path)} <= set(syncs)
