"""Files: the shared suite, and what only a file system can do: crash in the middle, fill up, leave things behind."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import STAGING_FOLDER, NotFound, Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.system import RealSystem
from lakelatch.testing.conformance.storage import SharedStorageConformance

SIZE = 3_000_000
PUT_FOR_EVER = f"""
import itertools, sys
from lakelatch.storage.local import LocalStorage
storage = LocalStorage(sys.argv[1])
for number in itertools.count():
    data = bytes([number % 251]) * {SIZE}
    storage.put_if_absent(f"slots/{{number}}", data)
    storage.put("replaced", data)
    print(number, flush=True)
"""
PUT_TOO_MUCH = """
import pickle, resource, sys
from lakelatch.errors import LakelatchError
from lakelatch.storage.local import LocalStorage
storage = LocalStorage(sys.argv[1])
storage.put("folder/before", b"1")
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
errors = []
for put in (storage.put, storage.put_if_absent):
    for path in ("folder/before", "folder/large"):
        if put == storage.put_if_absent and path == "folder/before":
            continue
        try:
            put(path, b"x" * 2_000_000)
        except LakelatchError as error:
            errors.append(error)
found = {path: storage.read(path) for path in storage.walk("")}
storage.put("folder/after", b"2")
sys.stdout.buffer.write(pickle.dumps((errors, found, storage.read("folder/after"))))
"""


class TestLocal(SharedStorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return LocalStorage(str(folder / "table"))

    def test_a_put_leaves_no_staged_file(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path)
        storage.put("a", b"1")
        assert storage.put_if_absent("a", b"2") is False and storage.put_if_absent("b", b"2")
        assert storage.list(STAGING_FOLDER).files == ()


@pytest.mark.parametrize("puts", [1, 4, 9])
def test_a_killed_writer_leaves_whole_files_only(tmp_path: Path, puts: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", PUT_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        for _ in range(puts):
            assert child.stdout.readline()
        Event().wait(0.003 * puts)  # to another step of the next put
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == -signal.SIGKILL
    storage = LocalStorage(str(tmp_path))
    slots = storage.list("slots").files
    assert len(slots) >= puts
    for path in [*(f"slots/{name}" for name in slots), "replaced"]:
        data = storage.read(path)
        assert len(data) == SIZE and data == bytes(data[:1]) * SIZE


def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    check_refusals(run_put_too_much([str(tmp_path), "limit"]), "ulimit -f")


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    """On a small file system of its own if this user may mount one, else with a limit on file sizes instead."""
    disk = tmp_path / "disk"
    disk.mkdir()
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        if shutil.which("unshare") and subprocess.run([*unshare, *mounting(disk), "true"], check=False).returncode == 0:
            check_refusals(run_put_too_much([str(disk), "full"], [*unshare, *mounting(disk)]), "free some space")
            assert list(disk.iterdir()) == []
            return
    check_refusals(run_put_too_much([str(disk), "limit"]), "ulimit -f")


def mounting(disk: Path) -> list[str]:
    """Runs the arguments that follow with one megabyte of memory mounted at a folder, for them alone."""
    return ["sh", "-c", 'mount -t tmpfs -o size=1m none "$0" 2>/dev/null && exec "$@"', str(disk)]


def run_put_too_much(arguments: list[str], before: list[str] | None = None) -> bytes:
    command = [*(before or []), sys.executable, "-c", PUT_TOO_MUCH, *arguments]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def check_refusals(output: bytes, way_out: str) -> None:
    errors, found, after = pickle.loads(output)
    assert [type(error) for error in errors] == [Unavailable] * 3
    for error, path in zip(errors, ["folder/before", "folder/large", "folder/large"], strict=True):
        assert repr(path) in str(error) and way_out in str(error) and error.details["path"] == path
    assert found == {"folder/before": b"1"} and after == b"2"


def test_the_sweep_removes_what_is_old_and_nothing_else(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put("data/a", b"1")
    for name, age_s in (("old", 7200), ("older", 90_000), ("young", 60)):
        storage.put(f"{STAGING_FOLDER}/{name}", b"half")
        staged = tmp_path / STAGING_FOLDER / name
        then = staged.stat().st_mtime - age_s
        os.utime(staged, (then, then))
    assert storage.sweep(3600) == 2
    assert storage.list(STAGING_FOLDER).files == ("young",)
    assert storage.sweep(3600) == 0
    assert storage.read("data/a") == b"1"


def test_the_sweep_of_a_table_without_staging_removes_nothing(tmp_path: Path) -> None:
    assert LocalStorage(str(tmp_path / "nowhere")).sweep(0) == 0


def test_a_file_where_a_folder_has_to_be_is_an_error_that_names_path_and_table(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put("a", b"1")
    for put in (storage.put, storage.put_if_absent):
        with pytest.raises(Unavailable, match=rf"'a/b/c' in {tmp_path}: "):
            put("a/b/c", b"2")
    assert list(storage.walk("")) == ["a"]


def test_an_object_is_never_a_folder(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put("folder/a", b"1")
    for ask in (storage.read, storage.stat):
        with pytest.raises(NotFound, match="'folder'"):
            ask("folder")
    with pytest.raises(Unavailable, match="'folder'"):
        storage.put("folder", b"2")
    with pytest.raises(Unavailable, match="'folder'"):
        storage.put_if_absent("folder", b"2")
    assert storage.read("folder/a") == b"1" and storage.list(STAGING_FOLDER).files == ()


def test_a_link_that_leads_nowhere_is_no_free_place(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "a").symlink_to(tmp_path / "gone")
    assert storage.put_if_absent("a", b"1") is False
    assert not (tmp_path / "gone").exists()


class SameIds(RealSystem):
    def new_id(self) -> str:
        return "same"


@pytest.mark.parametrize("put", [LocalStorage.put, LocalStorage.put_if_absent])
def test_a_staged_name_that_is_taken_is_told_and_is_not_the_object(
    tmp_path: Path, put: Callable[[LocalStorage, str, bytes], object]
) -> None:
    storage = LocalStorage(str(tmp_path), SameIds())
    staged = tmp_path / STAGING_FOLDER / "same"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(b"of another process")
    with pytest.raises(Unavailable):
        put(storage, "object", b"data")
    assert not storage.exists("object") and staged.read_bytes() == b"of another process"
