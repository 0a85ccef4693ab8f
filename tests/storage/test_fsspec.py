"""Tables' storage in file systems of fsspec's: the contract, what is found by scheme, what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from lakelatch.errors import InvalidRequest
from lakelatch.storage import open_storage
from lakelatch.storage.cloud import CloudStorage
from lakelatch.storage.contract import Storage
from lakelatch.storage.fsspec import FsspecStorage
from lakelatch.storage.options import StorageOptions
from lakelatch.testing.conformance.storage import StorageConformance


class TestMemory(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return FsspecStorage(f"memory://{folder.name}")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_s3fs_keeps_the_contract_on_a_store(tmp_path: Path) -> None:
    """In an environment of its own: s3fs pins an older botocore than the rest is tested with."""
    packages, tests = tmp_path / "packages", Path(__file__).with_name("fsspec_on_s3.py")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages)]
    subprocess.run([*install, "s3fs>=2025.2"], check=True, timeout=550)
    (botocore,) = packages.glob("botocore-*.dist-info")  # boto3 counts alike; pip would try all that are newer first
    version = botocore.name.removeprefix("botocore-").removesuffix(".dist-info")
    subprocess.run([*install, "--no-deps", f"boto3<={version}", "s3transfer"], check=True, timeout=550)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-5000:] + done.stderr[-2000:]


def test_a_file_system_is_found_by_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registry, "elsewhere", MemoryFileSystem)
    storage = open_storage("elsewhere://place/table/")
    assert isinstance(storage, FsspecStorage) and storage.uri == "elsewhere://place/table"
    assert isinstance(open_storage("s3://bucket/table"), CloudStorage)


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("ftp://host/table", "on fsspec's FTPFileSystem, which cannot create an object whole and exclusively"),
        ("local:///data/table", "on fsspec's LocalFileSystem, which cannot create"),
        ("hf://datasets/a/b", "cannot be used by fsspec: Install huggingface_hub"),
        ("ftp://me:secret@host/table", "path 'ftp://host/table'"),
        ("nowhere://host/table", "for which there is no storage"),
    ],
)
def test_paths_that_fsspec_cannot_hold(path: str, match: str) -> None:
    with pytest.raises(InvalidRequest, match=match):
        open_storage(path)


def test_options_for_s3_are_refused_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registry, "elsewhere", MemoryFileSystem)
    options = StorageOptions.from_options({"lakelatch.storage.region": "us-east-1"})
    with pytest.raises(InvalidRequest, match=r"lakelatch.storage.\* are for s3://.*FSSPEC_<PROTOCOL>_<SETTING>"):
        open_storage("elsewhere://place/table", options)
    assert open_storage("elsewhere://place/table", StorageOptions(timeout_s=5)).list("").files == ()
