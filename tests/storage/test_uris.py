"""From what a user writes to a storage: nothing of a path may get lost, or two tables would share a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.memory import MemoryStorage
from lakelatch.storage.uris import open_storage


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/data/flights", "/data/flights"),
        ("/data/flights/", "/data/flights"),
        ("/data/./x/../flights", "/data/flights"),
        ("file:///data/flights", "/data/flights"),
        ("file:///data/flights/", "/data/flights"),
        ("file:/data/flights", "/data/flights"),
        ("file://localhost/data/flights", "/data/flights"),
        ("FILE:///data/flights", "/data/flights"),
        ("//data/flights", "/data/flights"),
        ("file:////data/flights", "/data/flights"),
        ("/data/a:b", "/data/a:b"),
        ("/data/x://y", "/data/x:/y"),
    ],
)
def test_local_paths_and_uris(path: str, root: str) -> None:
    storage = open_storage(path)
    assert isinstance(storage, LocalStorage) and storage.root == root


@pytest.mark.parametrize("name", ["a#b", "a?b=c", "a%20b", "a b", "100%", "d=1", "ключ", "a;b", "[x]"])
def test_the_uri_of_a_storage_opens_the_same_place(name: str) -> None:
    for path in (f"/data/{name}", f"file:///data/{name}", f"file:/data/{name}"):
        storage = open_storage(path)
        assert storage.uri == f"file:///data/{name}"
        assert open_storage(storage.uri) == storage


def test_a_relative_path_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("tables/flights").uri == f"file://{tmp_path}/tables/flights"


@pytest.mark.parametrize("name", ["uris", "uris/below", "uris#1", "a?b", "host:80", "[x"])
def test_memory_is_found_by_its_whole_name(name: str) -> None:
    storage = MemoryStorage(name)
    assert open_storage(f"memory://{name}") is storage
    assert open_storage(storage.uri) is storage


def test_opening_makes_nothing(tmp_path: Path) -> None:
    open_storage(str(tmp_path / "table"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["s3n://bucket/table", "hdfs://host:8020/table", "ftp://x", "memory://"])
def test_an_unknown_place_is_refused_by_its_name(path: str) -> None:
    with pytest.raises(InvalidRequest, match=path.partition(":")[0]):
        open_storage(path)


@pytest.mark.parametrize("path", ["dbfs:/tables/flights", "s3:/bucket/table", "C:/tables", "hdfs:flights", "memory:x"])
def test_a_scheme_with_one_slash_makes_no_local_folder(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match=path.partition(":")[0].lower()):
        open_storage(path)
    assert open_storage(f"./{path}").uri == f"file://{tmp_path}/{path}"


@pytest.mark.parametrize("path", ["~", "~/tables/flights", "~somebody/flights"])
def test_a_home_that_only_a_shell_knows_makes_no_local_folder(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    with pytest.raises(InvalidRequest, match="only a shell") as caught:
        open_storage(path)
    assert path.replace("~/", "/home/me/") in caught.value.message
    assert open_storage(f"./{path}").uri == f"file://{tmp_path}/{path}"


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'path' is empty"):
        open_storage("")


def test_a_file_uri_of_another_host_is_refused() -> None:
    for path in ("file://server/data", "file://server", "file://"):
        with pytest.raises(InvalidRequest, match="file:///folder"):
            open_storage(path)
