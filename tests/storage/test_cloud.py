"""Tables' storage on an object store: the contract, bad input, lost answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage import open_storage
from lakelatch.storage.contract import PutUnknown, Storage, SupportsFirstPaths
from lakelatch.storage.options import StorageOptions
from lakelatch.testing.conformance.storage import SharedStorageConformance
from lakelatch.testing.servers import Server, TcpProxy
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT, place_options
from lakelatch.testing.servers.seaweedfs import BUCKET

SECRET = AWS_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]


def options(server: Server | TcpProxy, **changed: str) -> StorageOptions:
    changes = {f"lakelatch.storage.{key}": value for key, value in {"timeout_s": "5", **changed}.items()}
    return StorageOptions.from_options({**place_options(server), **changes})


def cloud(server: Server | TcpProxy, folder: str, scheme: str = "s3", **changed: str) -> Storage:
    return open_storage(f"{scheme}://{BUCKET}/{folder}/", options(server, **changed))


class TestCloudStorage(SharedStorageConformance):
    shows_emptied_folders = True

    @pytest.fixture(autouse=True)
    def _use_server(self, seaweedfs_server: Server) -> None:
        self.server = seaweedfs_server

    def make_storage(self, folder: Path) -> Storage:
        return cloud(self.server, f"{folder.name}/table")


def test_a_place_is_the_same_by_both_names_of_s3(seaweedfs_server: Server, tmp_path: Path) -> None:
    cloud(seaweedfs_server, tmp_path.name).put("folder/a", b"1")
    other = cloud(seaweedfs_server, tmp_path.name, "s3a")
    assert other.read("folder/a") == b"1" and other.uri == f"s3a://{BUCKET}/{tmp_path.name}"
    assert other.full_path("folder/a") == f"s3a://{BUCKET}/{tmp_path.name}/folder/a"


def test_a_put_whose_answer_was_lost_is_unknown_and_is_not_repeated(
    seaweedfs_server: Server, proxy_to: Callable[[Server], TcpProxy], tmp_path: Path
) -> None:
    proxy = proxy_to(seaweedfs_server)
    near, far = cloud(seaweedfs_server, tmp_path.name), cloud(proxy, tmp_path.name)
    assert far.put_if_absent("before", b"")
    proxy.lose_answers()
    with pytest.raises(PutUnknown):
        far.put_if_absent("a", b"1")
    assert near.read("a") == b"1"


def test_paths_are_shown_at_once_as_long_as_one_answer_holds_them(seaweedfs_server: Server, tmp_path: Path) -> None:
    storage = cloud(seaweedfs_server, tmp_path.name)
    storage.together(*(partial(storage.put, f"f/{number:04}", b"") for number in range(999)))
    all_of_them = [f"f/{number:04}" for number in range(999)]
    assert isinstance(storage, SupportsFirstPaths)
    assert storage.first_paths("f") == (all_of_them, True)
    storage.put("f/0999", b"")
    assert storage.first_paths("f") == ([*all_of_them, "f/0999"], False) and len(list(storage.walk("f"))) == 1000


def test_secrets_are_in_no_text(seaweedfs_server: Server) -> None:
    storage = cloud(seaweedfs_server, "x")
    assert SECRET not in f"{storage!r} {storage} {options(seaweedfs_server)!r}" and SECRET in str(pickle.dumps(storage))
    with pytest.raises(InvalidRequest) as told:
        cloud(seaweedfs_server, "x", secret_access_key="wrong" + SECRET).read("a")
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"secret_access_key": "wrong"}, InvalidRequest, "refuses these credentials.*lakelatch.storage.access_key_id"),
        ({"endpoint_url": "http://127.0.0.1:1"}, Unavailable, "could not be used.*path and the endpoint"),
        ({"allow_http": "false"}, InvalidRequest, "lakelatch.storage.allow_http"),
    ],
)
def test_what_is_wrong_is_named(
    seaweedfs_server: Server, changed: dict[str, str], error: type[Exception], match: str
) -> None:
    storage = cloud(seaweedfs_server, "x", **changed)
    for call in (lambda: storage.read("a"), lambda: storage.list(""), lambda: storage.put_if_absent("a", b"")):
        with pytest.raises(error, match=match):
            call()


def test_a_bucket_that_is_not_there_is_no_missing_file(seaweedfs_server: Server) -> None:
    storage = open_storage("s3://no-such-bucket/x", options(seaweedfs_server))
    for call in (lambda: storage.read("a"), lambda: storage.list("")):  # this server makes a bucket for a put
        with pytest.raises(InvalidRequest, match=r"there is no bucket at s3://no-such-bucket/x.*set path to"):
            call()


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("s3://", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://a:b@c/d", "credentials"),
        ("s3://c/d//e", "a folder ''"),
        ("gs://c/../e", "a folder '..'"),
        ("s3://c/d\te", r"a folder 'd\\te'"),
    ],
)
def test_paths_that_are_no_places(path: str, match: str) -> None:
    with pytest.raises(InvalidRequest, match=match) as told:
        open_storage(path)
    assert "a:b" not in str(told.value)
