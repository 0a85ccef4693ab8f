"""The files of the filesystem provider: where they are, what they hold, and what happens if somebody touches them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from lakelatch.errors import CorruptTable, InvalidRequest, LeaseLost, LockTimeout, Unavailable
from lakelatch.locks.contract import TABLE_KEY, Holder, LockScope
from lakelatch.locks.filesystem import provider as filesystem
from lakelatch.locks.filesystem.provider import DEFAULT_FOLDER, FilesystemLockProvider
from lakelatch.locks.options import FILESYSTEM_PATH
from lakelatch.storage.kernel_locks import kernel_locks
from lakelatch.system import process_name
from lakelatch.testing.conformance import in_processes
from lakelatch.testing.conformance.in_processes import Child, in_fork
from lakelatch.testing.conformance.lock_provider import SOON_S, assert_raises, pause, until, waiting_for


def open_provider(folder: Path) -> FilesystemLockProvider:
    return FilesystemLockProvider(LockScope(f"file://{folder}/table", {}))


def files_of(folder: Path) -> Path:
    return folder / "table" / DEFAULT_FOLDER


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    assert provider.holders() == [] and not provider.break_("no/such") and not (files_of(tmp_path) / "no").exists()
    provider.acquire(TABLE_KEY, 0).release()
    assert {"table.lock", "table.token"} <= set(os.listdir(files_of(tmp_path)))


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_the_folder_may_be_given_for_a_table_elsewhere(tmp_path: Path, form: str) -> None:
    options = {FILESYSTEM_PATH: form.format(tmp_path / "locks"), "hoodie.write.lock.filesystem.expire": "1"}
    one = FilesystemLockProvider(LockScope("s3://bucket/table", options))
    other = FilesystemLockProvider(LockScope("s3://bucket/table", options))
    with one.acquire(TABLE_KEY, 0):
        assert_raises(LockTimeout, lambda: other.acquire(TABLE_KEY, 0))
    assert (tmp_path / "locks" / "table.lock").exists()


@pytest.mark.parametrize(
    "uri, options",
    [
        ("s3://bucket/t", {}),
        ("file:///t", {FILESYSTEM_PATH: "hdfs://host/locks"}),
        ("file:///t", {FILESYSTEM_PATH: "dbfs:/locks"}),
        ("file:///t", {FILESYSTEM_PATH: "~/locks"}),
    ],
)
def test_a_folder_elsewhere_is_refused(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=FILESYSTEM_PATH):
        FilesystemLockProvider(LockScope(uri, options))


@pytest.mark.parametrize("content", [b"", b"12", b"x\n", b"1\n2\n", b"-1\n", b"\0\0\0\n"])
def test_a_damaged_counter_is_named_and_nothing_is_held(tmp_path: Path, content: bytes) -> None:
    provider = open_provider(tmp_path)
    provider.acquire(TABLE_KEY, 0).release()
    provider.register("time").advance(0)
    for name, action in (
        ("table.token", lambda: provider.acquire(TABLE_KEY, 0)),
        ("time.register", lambda: provider.register("time").advance(0)),
    ):
        (files_of(tmp_path) / name).write_bytes(content)
        assert name in str(assert_raises(CorruptTable, action))
    assert provider.holders() == []
    (files_of(tmp_path) / "table.token").write_bytes(b"41\n")
    assert provider.acquire(TABLE_KEY, 0).token == 42


def test_a_lease_whose_file_was_deleted_is_lost(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    lease = provider.acquire(TABLE_KEY, 0)
    shutil.rmtree(files_of(tmp_path))
    assert not lease.valid()
    assert_raises(LeaseLost, lease.ensure)
    assert provider.acquire(TABLE_KEY, 0).valid()
    assert not lease.release()


def test_breaking_frees_waiters_from_a_stopped_process(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    child = Child(in_processes.hold, provider, TABLE_KEY)
    token, pid = child.receive(), provider_pid(provider)
    os.kill(pid, signal.SIGSTOP)
    try:
        with waiting_for() as start:
            waiter = start(lambda: provider.acquire(TABLE_KEY, SOON_S))
            pause()
            assert not waiter.done()
            assert open_provider(tmp_path).break_(TABLE_KEY)
            lease = waiter.result(SOON_S)
            assert lease.token > token
            os.kill(pid, signal.SIGCONT)
            child.send("release")
            assert child.receive() is False
            assert lease.valid() and lease.release()
    finally:
        child.kill()


def test_a_key_that_is_broken_while_it_is_being_granted_is_taken_anew(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    lock_file = files_of(tmp_path) / "table.lock"
    with waiting_for() as start:
        with provider._guard(TABLE_KEY, SOON_S):  # which a first grant needs
            waiter = start(lambda: provider.acquire(TABLE_KEY, SOON_S))
            until(lambda: kernel_locks().locked(str(lock_file)))
            lock_file.unlink()
        lease = waiter.result(SOON_S)
    assert lease.valid() and lock_file.exists()
    assert lease.release()


def provider_pid(provider: FilesystemLockProvider) -> int:
    [holder] = provider.holders()
    return int(holder.owner.rpartition(":")[2])


def test_many_timeouts_leave_one_helper_thread(tmp_path: Path) -> None:
    until(lambda: not helpers())  # those of other tests
    provider = open_provider(tmp_path)
    lease = provider.acquire(TABLE_KEY, 0)
    for _ in range(5):
        assert_raises(LockTimeout, lambda: provider.acquire(TABLE_KEY, 0.02))
    [helper] = helpers()
    lease.release()
    until(lambda: not kernel_locks()._waits)  # it was granted the lock, and gave it back
    assert provider.acquire(TABLE_KEY, 0).release()
    lease = provider.acquire(TABLE_KEY, 0)
    assert_raises(LockTimeout, lambda: provider.acquire(TABLE_KEY, 0.02))
    assert helpers() == [helper]
    lease.release()
    helper.join(SOON_S)
    assert not helper.is_alive() and not kernel_locks()._parked


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lakelatch-kernel-lock"]


def test_a_try_is_not_refused_because_of_a_waiter_that_gave_up(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    for _ in range(50):
        lease = provider.acquire(TABLE_KEY, 0)
        assert_raises(LockTimeout, lambda: provider.acquire(TABLE_KEY, 0.001))
        lease.release()


def test_a_forked_child_does_not_keep_a_crashed_parent_s_lock(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    reader, writer = os.pipe()

    def parent_that_crashes() -> None:
        provider.acquire(TABLE_KEY, 0)

        def child() -> None:
            os.close(writer)
            os.read(reader, 1)  # lives until the test ends

        if os.fork() == 0:
            child()
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert not in_fork(parent_that_crashes)  # it was killed
    os.close(reader)
    try:
        assert provider.acquire(TABLE_KEY, SOON_S).release()
    finally:
        os.close(writer)


def test_locks_are_not_inherited_by_commands(tmp_path: Path) -> None:
    before = set(kernel_locks()._handles)
    provider = open_provider(tmp_path)
    with provider.acquire(TABLE_KEY, 0):
        handles = kernel_locks()._handles - before
        assert handles and not any(os.get_inheritable(handle) for handle in handles)
    provider.close()
    assert not handles & kernel_locks()._handles


def test_few_files_stay_open(tmp_path: Path) -> None:
    provider, other = open_provider(tmp_path), open_provider(tmp_path / "other")
    other.acquire(TABLE_KEY, 0).release()
    before = len(kernel_locks()._handles)
    for number in range(100):
        provider.acquire(f"key/{number}", 0).release()
    assert len(kernel_locks()._handles) <= before + 64
    assert provider.acquire("key/0", 0).token == 2  # whose file was closed
    mine = [path for path in kernel_locks()._idle if path.startswith(str(files_of(tmp_path)))]
    assert mine
    provider.close()
    assert not set(mine) & set(kernel_locks()._idle)


@pytest.mark.parametrize("damage", ["unlink", "replace"])
def test_a_file_that_is_kept_open_is_not_taken_for_the_one_that_replaced_it(tmp_path: Path, damage: str) -> None:
    provider = open_provider(tmp_path)
    provider.acquire(TABLE_KEY, 0).release()
    lock_file = files_of(tmp_path) / "table.lock"
    if damage == "replace":
        (tmp_path / "fresh").write_text("")
        os.replace(tmp_path / "fresh", lock_file)
    else:
        lock_file.unlink()
    with provider.acquire(TABLE_KEY, 0) as lease:
        assert lease.valid() and kernel_locks().locked(str(lock_file))
    lock_file.unlink()
    taken = kernel_locks().take(str(lock_file), 0)
    assert taken is not None and taken.current()
    taken.free(keep=False)


def test_a_caller_refused_before_a_break_is_not_refused_after_it(tmp_path: Path) -> None:
    provider, other = open_provider(tmp_path), open_provider(tmp_path)
    lease = provider.acquire(TABLE_KEY, 0)
    assert_raises(LockTimeout, lambda: other.acquire(TABLE_KEY, 0))
    assert provider.break_(TABLE_KEY)
    assert other.acquire(TABLE_KEY, 0).release()
    assert not lease.release()
    assert other.acquire(TABLE_KEY, 0).release()


def test_a_lock_is_freed_once(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = kernel_locks().take(path, 0)
    assert first is not None
    first.free()
    second = kernel_locks().take(path, 0)
    assert second is not None and second.handle == first.handle
    first.free()
    assert kernel_locks().locked(path)
    second.free(keep=False)
    assert not kernel_locks().locked(path)


def test_files_that_are_kept_open_are_not_shared_with_forked_children(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    provider.acquire(TABLE_KEY, 0).release()

    def child_takes_it() -> None:
        with provider.acquire(TABLE_KEY, 0) as lease:
            assert lease.valid()
            os.write(writer, b"taken")
            os.read(stop, 1)

    reader, writer = os.pipe()
    stop, stopper = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(stopper)
        os._exit(0 if in_fork(child_takes_it) else 1)
    assert os.read(reader, 5) == b"taken"
    assert_raises(LockTimeout, lambda: provider.acquire(TABLE_KEY, 0))
    os.close(stopper)
    assert os.waitpid(child, 0)[1] == 0
    lease = provider.acquire(TABLE_KEY, 0)

    def child_is_refused() -> None:
        assert_raises(LockTimeout, lambda: provider.acquire(TABLE_KEY, 0))

    assert in_fork(child_is_refused)
    assert lease.valid()
    assert_raises(LockTimeout, lambda: open_provider(tmp_path).acquire(TABLE_KEY, 0))
    assert lease.release()
    for handle in (reader, writer, stop):
        os.close(handle)


def test_a_lost_lease_is_noticed_after_a_time_without_any(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    provider.acquire(TABLE_KEY, 0).release()
    until(lambda: not provider._watching)
    lease = provider.acquire(TABLE_KEY, 0)
    assert provider.break_(TABLE_KEY)
    assert lease.lost.wait(SOON_S)
    until(lambda: not provider._watching)


def test_who_was_noted_by_an_earlier_version_is_shown(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    lock_file = files_of(tmp_path) / "table.lock"
    with provider.acquire(TABLE_KEY, 0):
        [holder] = provider.holders()
        assert json.loads(lock_file.read_bytes())["held"] is True
        lock_file.write_text(json.dumps({"owner": "host:1", "token": 7, "since_ms": holder.since_ms}))
        assert provider.holders() == [Holder(TABLE_KEY, "host:1", 7, holder.since_ms, waiting=0)]
    assert provider.holders() == []


def test_a_note_stays_whole_whoever_wrote_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("h" * 80 + ":1", "h:1", "\u043c\u0430\u0448\u0438\u043d\u0430:123456"):
        monkeypatch.setattr(filesystem, "process_name", lambda name=name: name)
        provider = open_provider(tmp_path)
        with provider.acquire(TABLE_KEY, 0) as lease:
            assert [(holder.owner, holder.token) for holder in provider.holders()] == [(name, lease.token)]


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    provider = FilesystemLockProvider(LockScope("s3://bucket/t", {FILESYSTEM_PATH: str(tmp_path / "file" / "locks")}))
    with pytest.raises(Unavailable, match=FILESYSTEM_PATH):
        provider.acquire(TABLE_KEY, 1)


def test_breaking_while_others_take_and_release_never_lets_two_in(tmp_path: Path) -> None:
    """Two leases may overlap after a break, but never two valid ones, and none has another's token."""
    providers = [open_provider(tmp_path) for _ in range(3)]
    tokens: list[int] = []
    stop = threading.Event()

    def work(provider: FilesystemLockProvider) -> None:
        while not stop.is_set():
            lease = provider.acquire(TABLE_KEY, SOON_S)
            tokens.append(lease.token)
            lease.release()

    with waiting_for() as start:
        workers = [start(lambda provider=provider: work(provider)) for provider in providers]  # type: ignore[misc]
        broken = 0
        until(lambda: len(tokens) > 5)
        for _ in range(60):
            broken += providers[0].break_(TABLE_KEY)
            time_passes()
        stop.set()
        for worker in workers:
            worker.result(SOON_S)
    assert broken > 0 and len(tokens) == len(set(tokens))
    assert providers[0].holders() == []
    assert providers[0].acquire(TABLE_KEY, 0).token > max(tokens)


def time_passes() -> None:
    threading.Event().wait(0.002)


def test_processes_that_wait_are_named(tmp_path: Path) -> None:
    provider, other = open_provider(tmp_path), open_provider(tmp_path)
    with waiting_for() as start:
        lease = provider.acquire(TABLE_KEY, 0)
        waiter = start(lambda: other.acquire(TABLE_KEY, SOON_S))
        until(lambda: provider.holders()[0].waiting == 1)
        assert provider.holders()[0].waiters == (process_name(),)
        lease.release()
        until(lambda: [one.waiting for one in provider.holders()] == [0])
        assert waiter.result(SOON_S).release()
