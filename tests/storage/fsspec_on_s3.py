"""s3fs on an object store. `test_fsspec.py` runs this in an environment that has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.storage.conditional_puts import ensure_refuses_second
from lakelatch.storage.contract import Storage
from lakelatch.storage.fsspec import open_fsspec_storage
from lakelatch.storage.options import StorageOptions
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.conformance.storage import SharedStorageConformance
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT
from lakelatch.testing.servers.seaweedfs import BUCKET


@pytest.fixture
def s3_reached(seaweedfs_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What botocore finds in the environment, in this process and in its children."""
    found = {"AWS_ENDPOINT_URL": f"http://{seaweedfs_server.host}:{seaweedfs_server.port}", **AWS_ENVIRONMENT}
    for name, value in {**found, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    yield


class TestS3(SharedStorageConformance):
    shows_emptied_folders = True

    @pytest.fixture(autouse=True)
    def _use_server(self, s3_reached: None) -> None:
        pass

    def make_storage(self, folder: Path) -> Storage:
        return open_fsspec_storage(f"s3://{BUCKET}/{folder.name}/fsspec", StorageOptions())


def test_exclusive_creation_is_tried_out_as_everywhere(s3_reached: None, tmp_path: Path) -> None:
    storage = open_fsspec_storage(f"s3://{BUCKET}/{tmp_path.name}/fsspec", StorageOptions())
    ensure_refuses_second(storage, REAL_SYSTEM)
    assert list(storage.walk("")) == []


def test_wrong_credentials_are_named_and_not_shown(s3_reached: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-nobody")
    storage = open_fsspec_storage(f"s3://{BUCKET}/refused", StorageOptions())
    for call in (lambda: storage.read("a"), lambda: storage.list(""), lambda: storage.put_if_absent("a", b"")):
        with pytest.raises(InvalidRequest, match="refuses these credentials") as told:
            call()
        assert "of-nobody" not in str(told.value)
