"""Objects with versions: races among threads and processes, stores that do not keep their conditions, lost answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from object_store_conformance import ObjectStoreConformance, SharedObjectStoreConformance

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage import open_storage
from lakelatch.storage.cloud_client import CloudSettings
from lakelatch.storage.cloud_objects import CloudObjectStore
from lakelatch.storage.contract import PutUnknown
from lakelatch.storage.object_store import (
    CheckedObjectStore,
    GuardedObjectStore,
    ObjectStore,
    VersionedObject,
    check_conditions,
)
from lakelatch.storage.options import StorageOptions
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT
from lakelatch.testing.servers.seaweedfs import BUCKET


def local_objects(folder: Path | str) -> GuardedObjectStore:
    return GuardedObjectStore(open_storage(str(folder)), "guards", 30.0, "the.option")


def cloud_objects(server: Server | TcpProxy, prefix: str) -> CloudObjectStore:
    place = StorageOptions(
        endpoint_url=f"http://{server.host}:{server.port}",
        region="us-east-1",
        allow_http=True,
        access_key_id=AWS_ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        secret_access_key=AWS_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    )
    return CloudObjectStore(f"s3://{BUCKET}/{prefix}", CloudSettings(place, 5.0, "the."))


@pytest.fixture(params=["local", "memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return local_objects(tmp_path)
    if request.param == "memory":
        return local_objects(f"memory://{tmp_path.name}")
    return cloud_objects(request.getfixturevalue("seaweedfs_server"), tmp_path.name)


class TestLocalObjects(SharedObjectStoreConformance):
    def make_objects(self, folder: Path) -> ObjectStore:
        return local_objects(folder)


class TestMemoryObjects(ObjectStoreConformance):
    def make_objects(self, folder: Path) -> ObjectStore:
        return local_objects(f"memory://{folder.name}")


class TestCloudObjects(SharedObjectStoreConformance):
    @pytest.fixture(autouse=True)
    def _use_server(self, seaweedfs_server: Server) -> None:
        self.server = seaweedfs_server

    def make_objects(self, folder: Path) -> ObjectStore:
        return cloud_objects(self.server, folder.name)


def test_a_put_whose_answer_was_lost_is_unknown(
    seaweedfs_server: Server, proxy_to: Callable[[Server], TcpProxy], tmp_path: Path
) -> None:
    proxy = proxy_to(seaweedfs_server)
    near, far = cloud_objects(seaweedfs_server, tmp_path.name), cloud_objects(proxy, tmp_path.name)
    assert far.put_if_absent("before", b"")
    proxy.lose_answers()
    with pytest.raises(PutUnknown):
        far.put_if_absent("a", b"1")
    assert near.get("a").data == b"1"
    proxy.lose_answers()
    with pytest.raises(PutUnknown):
        far.replace("a", b"2", near.get("a").version)
    assert near.get("a").data == b"2"
    proxy.lose_answers()
    with pytest.raises(Unavailable) as read:
        far.get("a")
    assert not isinstance(read.value, PutUnknown)


class Forgetful(ObjectStore):
    """A store that ignores conditions, as some clones of S3 do: it puts whatever it is told to."""

    where = "s3://clone"

    def __init__(self, objects: ObjectStore, creates: bool, replaces: bool) -> None:
        self.objects = objects
        self.creates, self.replaces = creates, replaces

    def get(self, path: str) -> VersionedObject:
        return self.objects.get(path)

    def put_if_absent(self, path: str, data: bytes) -> str | None:
        if self.creates:
            self.objects.delete(path)
        return self.objects.put_if_absent(path, data)

    def replace(self, path: str, data: bytes, version: str) -> str | None:
        return self.objects.replace(path, data, self.objects.get(path).version if self.replaces else version)

    def delete(self, path: str) -> None:
        self.objects.delete(path)

    def paths(self, folder: str) -> list[str]:
        return self.objects.paths(folder)

    def close(self) -> None:
        self.objects.close()


def test_a_store_that_forgets_its_conditions_is_refused_at_the_first_call(tmp_path: Path) -> None:
    good = local_objects(tmp_path)
    forgetful = Forgetful(good, creates=False, replaces=True)
    checked = CheckedObjectStore(forgetful, "records", REAL_SYSTEM, "the.option", ("clone", tmp_path))
    for call in (lambda: checked.get("a"), lambda: checked.put_if_absent("a", b"1"), lambda: checked.paths("")):
        with pytest.raises(InvalidRequest, match=r"s3://clone replaces an object that has changed.*the\.option"):
            call()
    checked = CheckedObjectStore(good, "records", REAL_SYSTEM, "the.option", ("good", tmp_path))
    assert checked.put_if_absent("a", b"1") is not None
    assert good.paths("records") == [] and good.get("a").data == b"1"


@pytest.mark.parametrize("which", ["creates", "replaces", "nothing"])
def test_a_store_that_does_not_keep_its_conditions_is_refused(objects: ObjectStore, which: str) -> None:
    tried = Forgetful(objects, creates=which == "creates", replaces=which == "replaces")
    if which == "nothing":
        check_conditions(tried, "", REAL_SYSTEM, "the.option")
    else:
        with pytest.raises(InvalidRequest, match=r"s3://clone .*the\.option"):
            check_conditions(tried, "", REAL_SYSTEM, "the.option")
    assert objects.paths("checks") == []


def test_a_trial_put_whose_first_answer_was_lost_is_not_taken_for_a_lie(tmp_path: Path) -> None:
    good = local_objects(tmp_path)

    class Repeating(Forgetful):
        def put_if_absent(self, path: str, data: bytes) -> str | None:
            self.objects.put_if_absent(path, data)
            return self.objects.put_if_absent(path, data)

    check_conditions(Repeating(good, creates=False, replaces=False), "", REAL_SYSTEM, "the.option")


def test_a_guard_that_cannot_be_locked_is_reported(tmp_path: Path) -> None:
    (tmp_path / "guards").write_text("a file where the folder of the guards has to be")
    with pytest.raises(Unavailable, match=r"cannot be guarded.*the\.option"):
        local_objects(tmp_path).put_if_absent("a", b"1")
