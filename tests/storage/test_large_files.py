"""Files that are larger than one put: in parts to S3, never without a condition, and never whole in memory."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.storage import cloud, open_storage
from lakelatch.storage.contract import STAGING_FOLDER, PutUnknown, Storage
from lakelatch.storage.options import StorageOptions
from lakelatch.testing.servers import HttpFault, HttpProxy, HttpRequest, Server
from lakelatch.testing.servers.reach import place_options
from lakelatch.testing.servers.seaweedfs import BUCKET

SIZE = cloud.ONE_PUT_BYTES + 1_000_000
WRITE = """
import numpy, pyarrow, resource, sys
from lakelatch.format.parquet import parquet_file
from lakelatch.storage import open_storage
from lakelatch.storage.options import StorageOptions
piece = pyarrow.array(numpy.random.default_rng(1).random(500_000))  # 4 MB that do not get smaller
rows = pyarrow.table({"a": pyarrow.chunked_array([piece] * 75)})
storage = open_storage(sys.argv[1], StorageOptions.from_options(dict(one.split("=", 1) for one in sys.argv[2:])))
storage.put("before", b"1")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with parquet_file(rows, {}, "p/large.parquet", 1_000_000) as file:
    assert storage.create_from_file("p/large.parquet", file)
    size = file.seek(0, 2)
print(size, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.fixture
def proxy(seaweedfs_server: Server) -> Iterator[HttpProxy]:
    with closing(HttpProxy(seaweedfs_server.host, seaweedfs_server.port)) as opened:
        yield opened


@pytest.fixture
def storage(proxy: HttpProxy, tmp_path: Path) -> Storage:
    return open_storage(f"s3://{BUCKET}/{tmp_path.name}", StorageOptions.from_options(place_options(proxy)))


@pytest.fixture(scope="module")
def large() -> Iterator[BinaryIO]:
    with TemporaryFile() as file:
        file.write(os.urandom(SIZE))
        yield file


def content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def completions(proxy: HttpProxy, name: str) -> list[bool]:
    """Of each request that could make an object of this name appear, whether it has a condition."""
    making = [one for one in proxy.requests if one.path.endswith(name) and one.method in ("PUT", "POST")]
    return [one.conditional for one in making if "partNumber" not in one.query and "uploads" not in one.query]


def at_completion(fault: HttpFault) -> Callable[[HttpRequest], HttpFault | None]:
    """The fault for the request that completes the copy."""
    return lambda request: fault if request.conditional and "uploadId" in request.query else None


def test_a_large_file_appears_by_a_conditional_request_alone(
    storage: Storage, proxy: HttpProxy, large: BinaryIO
) -> None:
    assert storage.create_from_file("p/large", large) is True
    assert storage.read("p/large") == content(large)
    assert completions(proxy, "p/large") == [True]
    assert storage.list(STAGING_FOLDER).files == ()
    proxy.requests.clear()
    assert storage.create_from_file("p/large", large) is False
    assert [one.method for one in proxy.requests] == ["HEAD"]  # nothing is sent for what is there


def test_of_two_the_one_that_completes_first_wins(storage: Storage, proxy: HttpProxy, large: BinaryIO) -> None:
    assert storage.create_from_file("p/warm", large)

    def another_first(request: HttpRequest) -> None:
        if request.conditional and "uploadId" in request.query and not storage.exists("p/large"):
            proxy.faults = None
            storage.put("p/large", b"first")

    proxy.faults = another_first
    assert storage.create_from_file("p/large", large) is False
    assert storage.read("p/large") == b"first" and storage.list(STAGING_FOLDER).files == ()


def test_a_completion_whose_answer_was_lost_is_unknown(storage: Storage, proxy: HttpProxy, large: BinaryIO) -> None:
    assert storage.create_from_file("p/warm", large)
    for name, fault in (("done", HttpFault(500, done=True)), ("not", HttpFault(409)), ("lost", HttpFault(lost=True))):
        proxy.requests.clear()
        proxy.faults = at_completion(fault)
        with pytest.raises(PutUnknown):
            storage.create_from_file(f"p/{name}", large)
        proxy.faults = None
        assert completions(proxy, f"p/{name}") == [True]
        assert storage.exists(f"p/{name}") is (name != "not")


def test_a_store_that_copies_twice_gets_one_put(
    storage: Storage, proxy: HttpProxy, large: BinaryIO, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.faults = lambda request: HttpFault(501) if "uploads" in request.query else None
    with caplog.at_level(logging.WARNING, "lakelatch.storage"):
        assert storage.create_from_file("p/large", large) is True
    assert "large files are put whole" in caplog.text
    assert completions(proxy, "p/large") == [True] and storage.read("p/large") == content(large)
    assert storage.create_from_file("p/large", large) is False


def test_what_a_crash_left_is_removed_a_day_later(
    storage: Storage, large: BinaryIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put(f"{STAGING_FOLDER}/left", b"half")
    assert storage.create_from_file("p/a", large)
    assert storage.list(STAGING_FOLDER).files == ("left",)
    monkeypatch.setattr(cloud, "_STAGED_FOR", timedelta(days=-1))  # the store's times have whole seconds
    assert storage.create_from_file("p/b", large)
    assert storage.list(STAGING_FOLDER).files == ()


def test_a_file_that_no_store_takes_on_a_condition_is_refused(storage: Storage, proxy: HttpProxy) -> None:
    with TemporaryFile() as file:
        file.truncate(5 * 1024**3 + 1)
        with pytest.raises(InvalidRequest, match=r"'p/large' has 5368709121 bytes.*hoodie.bucket.index.num.buckets"):
            storage.create_from_file("p/large", file)
    assert proxy.requests == []


@pytest.mark.long
@pytest.mark.parametrize("place", ["local", "s3"])
def test_memory_does_not_grow_with_a_file(place: str, seaweedfs_server: Server, tmp_path: Path) -> None:
    """300 MB with less than 200 MB: what is in memory are the parts on their way, and a column chunk."""
    options = [f"{key}={value}" for key, value in place_options(seaweedfs_server).items()]
    uri = str(tmp_path / "t") if place == "local" else f"s3://{BUCKET}/{tmp_path.name}"
    command = [sys.executable, "-c", WRITE, uri, *(options if place == "s3" else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    size, grown = map(int, done.stdout.split())
    assert size > 250_000_000 and grown < size * 2 / 3, f"{grown} bytes more for a file of {size}"
