"""Tokens and registers of the filesystem provider grow over crashes, reboots, power cuts and people with editors.

A reboot or a power cut leaves of a record what had been written back by then, which may be anything that it ever was,
with the boot id of its time; of a reserve it leaves the last one, since that was synced before anybody acted on it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.filesystem import durable_counter
from lakelatch.locks.filesystem.provider import DEFAULT_FOLDER, FilesystemLockProvider
from lakelatch.storage.kernel_locks import Taken, kernel_locks
from lakelatch.testing.conformance import in_processes
from lakelatch.testing.conformance.in_processes import Child, in_fork
from lakelatch.testing.conformance.lock_provider import assert_raises

OTHER_BOOT = b'"boot":"11111111-2222-3333-4444-555555555555"'
NOW_MS = 1_795_262_400_000


def open_provider(folder: Path) -> FilesystemLockProvider:
    return FilesystemLockProvider(LockScope(f"file://{folder}/table", {}))


def files_of(folder: Path) -> Path:
    return folder / "table" / DEFAULT_FOLDER


class Tokens:
    """The tokens of a table's lock."""

    record, reserve, ahead = "table.lock", "table.token", 1000

    def draw(self, folder: Path) -> int:
        return self.draw_by(open_provider(folder))

    def draw_by(self, provider: FilesystemLockProvider) -> int:
        with provider.acquire(TABLE_KEY, 0) as lease:
            return lease.token


class Times:
    """A register that is asked for the time, which stands still; so it grows by ones as tokens do."""

    record, reserve, ahead = "time.value", "time.register", 2000

    def draw(self, folder: Path) -> int:
        return self.draw_by(open_provider(folder))

    def draw_by(self, provider: FilesystemLockProvider) -> int:
        return provider.register("time").advance(NOW_MS)


both = pytest.mark.parametrize("kind", [Tokens(), Times()], ids=["tokens", "times"])


def reboot(record: Path) -> None:
    changed, count = re.subn(rb'"boot":"[^"]*"', OTHER_BOOT, record.read_bytes())
    assert count == 1
    record.write_bytes(changed)


@both
def test_many_draws_make_few_reserves(tmp_path: Path, kind: Tokens | Times) -> None:
    values, reserves = [], set()
    for _ in range(2500):
        values.append(kind.draw(tmp_path))
        reserves.add(int((files_of(tmp_path) / kind.reserve).read_text()))
        assert max(reserves) >= values[-1]
    assert values == list(range(values[0], values[0] + 2500))
    assert len(reserves) <= 3


@both
def test_values_go_on_above_the_reserve_after_a_reboot(tmp_path: Path, kind: Tokens | Times) -> None:
    record, reserve = files_of(tmp_path) / kind.record, files_of(tmp_path) / kind.reserve
    last = kind.draw(tmp_path)
    for _ in range(3):
        reserved = int(reserve.read_text())
        reboot(record)
        assert kind.draw(tmp_path) == reserved + 1 > last
        last = kind.draw(tmp_path)
        assert last == reserved + 2 <= int(reserve.read_text()) <= last + kind.ahead


def test_a_register_goes_on_from_the_clock_once_it_is_later_than_the_reserve(tmp_path: Path) -> None:
    register = open_provider(tmp_path).register("time")
    assert register.advance(NOW_MS) == NOW_MS
    reboot(files_of(tmp_path) / Times.record)
    assert register.advance(NOW_MS + 5000) == NOW_MS + 5000
    assert register.advance(NOW_MS - 60_000, 10) == NOW_MS + 5001  # the clock went back
    assert register.advance(NOW_MS) == NOW_MS + 5011


@both
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:100],
        lambda text: text.replace(b"  ", b" x", 1),
        lambda text: re.sub(rb" +[0-9]+", lambda found: b"9" * len(found[0]), text, count=1),
        lambda text: b"\0" * len(text),
        lambda text: b'{"owner": "host:1", "token": 1, "since_ms": 1}',
        lambda text: b"[1]",
    ],
    ids=["empty", "cut", "no number", "beyond the reserve", "zeros", "an earlier version's", "another thing"],
)
def test_a_damaged_record_is_not_believed(
    tmp_path: Path, kind: Tokens | Times, damage: Callable[[bytes], bytes]
) -> None:
    record, reserve = files_of(tmp_path) / kind.record, files_of(tmp_path) / kind.reserve
    kind.draw(tmp_path)
    last, reserved = kind.draw(tmp_path), int(reserve.read_text())
    record.write_bytes(damage(record.read_bytes()))
    assert kind.draw(tmp_path) == reserved + 1 > last
    assert kind.draw(tmp_path) == reserved + 2


@both
def test_a_copied_folder_goes_on_above_its_reserve_wherever_it_is_put(tmp_path: Path, kind: Tokens | Times) -> None:
    kind.draw(tmp_path / "a")
    shutil.copytree(files_of(tmp_path / "a"), files_of(tmp_path / "b"))
    shutil.copytree(files_of(tmp_path / "a"), tmp_path / "backup")
    drawn = [kind.draw(tmp_path / "a") for _ in range(5)]
    assert kind.draw(tmp_path / "b") > drawn[0]
    shutil.rmtree(files_of(tmp_path / "a"))
    shutil.copytree(tmp_path / "backup", files_of(tmp_path / "a"))
    assert kind.draw(tmp_path / "a") > drawn[-1]


@both
def test_a_record_that_was_put_back_is_not_believed(tmp_path: Path, kind: Tokens | Times) -> None:
    record = files_of(tmp_path) / kind.record
    one, other = open_provider(tmp_path), open_provider(tmp_path)
    kind.draw_by(one)
    shutil.copy2(record, tmp_path / "backup")
    last = [kind.draw_by(provider) for provider in (one, other, other)][-1]
    os.replace(tmp_path / "backup", record)
    assert last < kind.draw_by(other) < kind.draw_by(one)


@both
def test_counters_go_on_from_files_of_an_earlier_version(tmp_path: Path, kind: Tokens | Times) -> None:
    files_of(tmp_path).mkdir(parents=True)
    (files_of(tmp_path) / kind.reserve).write_bytes(b"%d\n" % (NOW_MS + 41))
    assert kind.draw(tmp_path) == NOW_MS + 42


@both
def test_counters_go_on_at_once_from_a_reserve_that_somebody_wrote(tmp_path: Path, kind: Tokens | Times) -> None:
    reserve = files_of(tmp_path) / kind.reserve
    kind.draw(tmp_path)
    reserve.write_bytes(b"%d\n" % (NOW_MS * 2))
    assert kind.draw(tmp_path) == NOW_MS * 2 + 1
    last = kind.draw(tmp_path)
    reserve.unlink()
    assert kind.draw(tmp_path) == last + 1
    assert int(reserve.read_text()) > last
    reserve.write_bytes(b"1\n")
    assert kind.draw(tmp_path) == last + 2


@both
def test_without_boot_ids_each_value_is_reserved_by_itself(
    tmp_path: Path, kind: Tokens | Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = files_of(tmp_path) / kind.reserve
    monkeypatch.setattr(durable_counter, "boot_id", lambda: "")
    first = kind.draw(tmp_path)
    for number in range(1, 4):
        assert kind.draw(tmp_path) == first + number == int(reserve.read_text())
    monkeypatch.undo()
    assert kind.draw(tmp_path) == first + 4  # a container that sees the id, next to one that does not
    reserved = int(reserve.read_text())
    monkeypatch.setattr(durable_counter, "boot_id", lambda: "")
    assert kind.draw(tmp_path) == reserved + 1


@pytest.mark.parametrize("text", [None, "", "0\n", "11111111-2222-3333-4444-55555555555Z\n"])
def test_what_is_no_boot_id_is_not_used(tmp_path: Path, text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if text is not None:
        (tmp_path / "id").write_text(text)
    monkeypatch.setattr(durable_counter, "_BOOT_ID", str(tmp_path / "id"))
    durable_counter.boot_id.cache_clear()
    try:
        assert durable_counter.boot_id() == ""
        (tmp_path / "id").write_text("11111111-2222-3333-4444-555555555555\n")
        durable_counter.boot_id.cache_clear()
        assert durable_counter.boot_id() == "11111111-2222-3333-4444-555555555555"
    finally:
        durable_counter.boot_id.cache_clear()


def test_a_killed_process_loses_no_token(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    provider.acquire(TABLE_KEY, 0).release()
    child = Child(in_processes.hold, provider, TABLE_KEY)
    token = child.receive()
    child.kill()
    assert token == 2 and provider.acquire(TABLE_KEY, 10).token == 3


@both
def test_a_process_that_is_killed_while_it_reserves_does_no_harm(
    tmp_path: Path, kind: Tokens | Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step in turn: the staged file is synced, it is in its place, the folder is synced."""
    last, parent = 0, os.getpid()
    for name in ("fsync", "replace", "ftruncate"):
        real = getattr(os, name)

        def kill(*arguments: object, real: Callable[..., None] = real) -> None:
            real(*arguments)
            if os.getpid() != parent:  # other threads of this process go on with their files
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(os, name, kill)
        if last:
            reboot(files_of(tmp_path) / kind.record)
        assert not in_fork(lambda: check_drawn(kind.draw(tmp_path)))
        monkeypatch.undo()
        value = kind.draw(tmp_path)
        assert value > last
        last = value


def check_drawn(value: int) -> None:
    assert value > 0


def test_the_disk_has_a_reserve_before_a_token_of_it_is_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = open_provider(tmp_path)
    files_of(tmp_path).mkdir(parents=True)
    calls: list[str] = []
    for name in ("fsync", "replace", "pwrite"):
        real = getattr(os, name)

        def call(*arguments: object, name: str = name, real: Callable[..., object] = real) -> object:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(os, name, call)
    lease = provider.acquire(TABLE_KEY, 0)
    assert calls == ["fsync", "replace", "fsync", "pwrite"]
    lease.release()
    calls.clear()
    provider.acquire(TABLE_KEY, 0)
    assert calls == ["pwrite"]


@both
@pytest.mark.parametrize("name", ["fsync", "replace", "pwrite"])
def test_a_disk_that_fails_is_reported_and_nothing_is_held(
    tmp_path: Path, kind: Tokens | Times, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = kind.draw(tmp_path)
    reboot(files_of(tmp_path) / kind.record)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, name, fail)
    error = assert_raises(Unavailable, lambda: kind.draw(tmp_path))
    assert kind.reserve in str(error) and "free some space" in str(error)
    monkeypatch.undo()
    assert open_provider(tmp_path).holders() == []
    assert kind.draw(tmp_path) > last


def test_a_damaged_reserve_is_reported_although_the_record_is_good(tmp_path: Path) -> None:
    provider = open_provider(tmp_path)
    first = provider.acquire(TABLE_KEY, 0)
    first.release()
    (files_of(tmp_path) / Tokens.reserve).write_bytes(b"nonsense")
    assert "nonsense" in str(assert_raises(CorruptTable, lambda: provider.acquire(TABLE_KEY, 0)))
    (files_of(tmp_path) / Tokens.reserve).write_bytes(b"0\n")
    assert provider.acquire(TABLE_KEY, 0).token == first.token + 1


def test_grants_do_not_need_the_guard(tmp_path: Path) -> None:
    """Whoever is stopped while it reserves holds up nobody else before the next reserve."""
    provider = open_provider(tmp_path)
    provider.acquire(TABLE_KEY, 0).release()
    with provider._guard(TABLE_KEY, 0):
        assert provider.acquire(TABLE_KEY, 0).token == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["draw", "many", "stale", "stale many", "break", "power cut", "forget"]), max_size=25))
def test_tokens_grow_whatever_happens(steps: list[str]) -> None:
    """Also where those who were broken go on to draw from their old files: nobody else is ever given the same."""
    with TemporaryDirectory() as name:
        path = Path(name) / "record"
        counter = counter_in(Path(name))
        history: list[bytes] = [b""]
        stale: list[Taken] = []
        seen: set[int] = set()
        current, greatest = open_record(path), 0

        for step in steps:
            count = 700 if step.endswith("many") else 1
            if step.startswith("stale") and stale:
                first = counter.advance(stale[-1], 1, 1, count)
                assert not seen & set(range(first, first + count))
                seen |= set(range(first, first + count))
            elif step == "break":
                path.with_name("fresh").write_bytes(b"")
                os.replace(path.with_name("fresh"), path)
                stale.append(current)
                current = open_record(path)
            elif step == "power cut":
                kept = re.sub(rb'"boot":"[^"]*"', OTHER_BOOT, history[len(history) // 2])
                path.write_bytes(kept)
                close_records(stale)
            elif step == "forget":
                counter = counter_in(Path(name))
            else:
                first = counter.advance(current, 1, 1, count)
                assert first > greatest and first not in seen
                greatest = first + count - 1
                seen |= set(range(first, first + count))
                history.append(path.read_bytes())
        close_records([*stale, current])


def counter_in(folder: Path) -> durable_counter.Counter:
    provider = FilesystemLockProvider(LockScope(f"file://{folder}/table", {}))
    return durable_counter.Counter(str(folder / "reserve"), "token", 1000, lambda _: provider._guard("k", 1))


def open_record(path: Path) -> Taken:
    taken = kernel_locks().take(str(path), 0)
    assert taken is not None and taken.current()
    return taken


def close_records(records: list[Taken]) -> None:
    for taken in records:
        taken.free(keep=False)
    records.clear()
