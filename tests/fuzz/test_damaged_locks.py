"""Damaged files of locks: a lease that excludes others, or an error of ours that says which file to look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from damages import DAMAGES, NUMBER, Damage, one_of, tried
from hypothesis import given

from lakelatch.errors import CorruptTable, LakelatchError, LockTimeout
from lakelatch.locks.contract import TABLE_KEY, LockProvider, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.object_store.provider import HudiStorageLockProvider
from lakelatch.storage import LocalStorage

KINDS: dict[str, tuple[type[LockProvider], Mapping[str, str]]] = {
    "filesystem": (FilesystemLockProvider, {}),
    "storage": (HudiStorageLockProvider, {}),
}


def _provider(kind: str, root: Path) -> LockProvider:
    make, options = KINDS[kind]
    return make(LockScope(f"file://{root}", options))


def _files(root: Path) -> dict[str, bytes]:
    storage = LocalStorage(str(root))
    return {path: storage.read(path) for path in storage.walk("") if "guard" not in path}


@pytest.fixture(scope="module", params=KINDS)
def locked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A folder in which a lock was taken and given back, and times were drawn."""
    root = tmp_path_factory.mktemp("locked")
    provider = _provider(request.param, root)
    provider.acquire(TABLE_KEY, 5.0).release()
    provider.register("times").advance(1000, 3)
    held = provider.acquire("held", 5.0)
    _save(root, held_files := _files(root))
    held.release()
    provider.close()
    for path in _files(root):
        (root / path).unlink()
    _save(root, held_files)
    return request.param, root


def _save(root: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


@given(file=NUMBER, damage=DAMAGES)
@tried(25)
def test_a_damaged_file_of_locks(locked: tuple[str, Path], file: int, damage: Damage) -> None:
    kind, root = locked
    files = _files(root)
    path = one_of(files, file)
    (root / path).write_bytes(damage.apply(files[path], files))
    provider = _provider(kind, root)
    try:
        _use(provider)
    except LockTimeout:
        assert "table_lock" in path, "its time may be any, and nobody can tell"
    except CorruptTable as error:
        assert path in str(error)
    finally:
        provider.close()
        for left in _files(root):
            (root / left).unlink()
        _save(root, files)


def _use(provider: LockProvider) -> None:
    try:
        provider.holders()
    except CorruptTable as error:
        with pytest.raises(LakelatchError):
            raise error
    lease = provider.acquire(TABLE_KEY, 0.2)
    with pytest.raises(LockTimeout):
        provider.acquire(TABLE_KEY, 0.0)
    lease.release()
    first = provider.register("times").advance(2000, 2)
    assert provider.register("times").advance(0) > first >= 2000
