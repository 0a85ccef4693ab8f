"""Tables' storage on an object store in trouble: each answer is told for what it is, and bad input in one error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import boto3
import pytest

from lakelatch.errors import InvalidRequest, LakelatchError, Unavailable
from lakelatch.storage import open_storage
from lakelatch.storage.cloud_client import CloudSettings
from lakelatch.storage.cloud_objects import CloudObjectStore
from lakelatch.storage.conditional_puts import create_own, ensure_created, ensure_refuses_second
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.storage.object_store import PutCollided
from lakelatch.storage.options import StorageOptions
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import HttpFault, HttpProxy, HttpRequest, Server
from lakelatch.testing.servers.contract import wait_until
from lakelatch.testing.servers.reach import place_options
from lakelatch.testing.servers.seaweedfs import BUCKET

Opening = Callable[..., Storage]
REFUSED = r"refuses these credentials, or their rights \({}\).*lakelatch.storage.access_key_id"


def s3_error(code: str, message: str = "") -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


@pytest.fixture
def proxy(seaweedfs_server: Server) -> Iterator[HttpProxy]:
    with closing(HttpProxy(seaweedfs_server.host, seaweedfs_server.port)) as opened:
        yield opened


@pytest.fixture
def opening(proxy: HttpProxy, tmp_path: Path) -> Opening:
    """Opens the test's place by the proxy, or directly, with options changed."""

    def open_one(server: Server | HttpProxy = proxy, bucket: str = BUCKET, **changed: str) -> Storage:
        values = {**place_options(server), "lakelatch.storage.timeout_s": "5"}
        values |= {f"lakelatch.storage.{key}": value for key, value in changed.items()}
        return open_storage(f"s3://{bucket}/{tmp_path.name}", StorageOptions.from_options(values))

    return open_one


def at_puts(fault: HttpFault, count: int = 1) -> Callable[[HttpRequest], HttpFault | None]:
    """The fault for the first conditional puts, and nothing for the others."""
    left = [fault] * count
    return lambda request: left.pop() if request.conditional and left else None


def calls(storage: Storage) -> dict[str, Callable[[], object]]:
    return {
        "read": lambda: storage.read("a"),
        "stat": lambda: storage.stat("a"),
        "list": lambda: storage.list(""),
        "walk": lambda: list(storage.walk("")),
        "put": lambda: storage.put("a", b""),
        "put_if_absent": lambda: storage.put_if_absent("b", b""),
        "delete": lambda: storage.delete("a"),
        "delete_folder": lambda: storage.delete_folder("d"),
    }


# Conditional puts


@pytest.mark.parametrize("status", [304, 412])
def test_an_object_that_is_there_is_no_error(opening: Opening, proxy: HttpProxy, status: int) -> None:
    proxy.faults = at_puts(HttpFault(status))
    assert opening().put_if_absent("a", b"1") is False


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_two_puts_that_met_may_both_have_created_nothing(opening: Opening, proxy: HttpProxy, code: str) -> None:
    storage, fault = opening(), HttpFault(409, s3_error(code))
    proxy.faults = at_puts(fault)
    with pytest.raises(PutUnknown, match="another put of 'a' met this one"):
        storage.put_if_absent("a", b"1")
    assert not storage.exists("a")
    for path, create in (("b", ensure_created), ("c", create_own)):
        proxy.faults = at_puts(fault)
        create(storage, path, b"1", REAL_SYSTEM)
        assert storage.read(path) == b"1"


def test_a_record_whose_put_met_another_one_collided(proxy: HttpProxy, tmp_path: Path) -> None:
    given = StorageOptions.from_options(place_options(proxy))
    settings = CloudSettings(given, 5.0, "the.")
    objects = CloudObjectStore(f"s3://{BUCKET}/{tmp_path.name}", settings)
    proxy.faults = at_puts(HttpFault(409, s3_error("ConditionalRequestConflict")))
    with pytest.raises(PutCollided):
        objects.put_if_absent("a", b"1")
    version = objects.put_if_absent("a", b"1")
    proxy.faults = at_puts(HttpFault(409, s3_error("ConditionalRequestConflict")))
    with pytest.raises(PutCollided):
        objects.replace("a", b"2", version or "")
    assert objects.get("a").data == b"1"


@pytest.mark.parametrize("fault", [HttpFault(503, s3_error("SlowDown")), HttpFault(429)])
def test_a_busy_store_is_asked_again_since_it_has_done_nothing(
    opening: Opening, proxy: HttpProxy, fault: HttpFault
) -> None:
    storage = opening()
    proxy.faults = at_puts(fault, 2)
    assert storage.put_if_absent("a", b"1") is True
    assert len(proxy.requests) == 3 and storage.read("a") == b"1"
    proxy.faults = at_puts(fault, 1000)
    with pytest.raises(Unavailable, match=r"is too busy to take 'b': try again later") as told:
        storage.put_if_absent("b", b"1")
    assert not isinstance(told.value, PutUnknown) and not storage.exists("b")


@pytest.mark.parametrize(
    "fault",
    [
        HttpFault(503, done=True),
        HttpFault(500, s3_error("InternalError"), done=True),
        HttpFault(504, done=True),
        HttpFault(lost=True),
    ],
)
def test_an_answer_that_says_nothing_is_resolved_by_reading(
    opening: Opening, proxy: HttpProxy, fault: HttpFault
) -> None:
    storage = opening()
    proxy.faults = at_puts(fault)
    with pytest.raises(PutUnknown):
        storage.put_if_absent("a", b"1")
    assert len(proxy.requests) == 1 and storage.read("a") == b"1"
    proxy.faults = at_puts(fault)
    assert create_own(storage, "b", b"1", REAL_SYSTEM) is True
    proxy.faults = at_puts(fault)
    assert create_own(storage, "b", b"2", REAL_SYSTEM) is False


def test_a_put_that_was_doubled_on_its_way_is_known_by_its_content(opening: Opening, proxy: HttpProxy) -> None:
    storage = opening()
    proxy.faults = at_puts(HttpFault(sent=2))
    assert storage.put_if_absent("a", b"1") is False and storage.read("a") == b"1"
    proxy.faults = at_puts(HttpFault(sent=2))
    assert create_own(storage, "b", b"1", REAL_SYSTEM) is True
    assert create_own(storage, "b", b"2", REAL_SYSTEM) is False


def test_half_a_put_makes_no_object(opening: Opening, proxy: HttpProxy) -> None:
    storage = opening()
    proxy.faults = at_puts(HttpFault(half_sent=True))
    with pytest.raises(PutUnknown):
        storage.put_if_absent("a", b"0123456789")
    assert not storage.exists("a") and storage.list("").files == ()
    assert storage.put_if_absent("a", b"9876543210") and storage.read("a") == b"9876543210"


def test_a_put_that_arrives_late_finds_what_was_put_meanwhile(opening: Opening, proxy: HttpProxy) -> None:
    storage = opening()
    proxy.faults = at_puts(HttpFault(sent=0, late_s=0.3))
    with pytest.raises(PutUnknown):
        storage.put_if_absent("a", b"late")
    assert storage.put_if_absent("a", b"mine") is True
    proxy.faults = at_puts(HttpFault(sent=0, late_s=0.3))
    with pytest.raises(PutUnknown):
        storage.put_if_absent("b", b"late")
    assert wait_until(lambda: storage.exists("b"), 60)
    assert storage.read("b") == b"late" and storage.read("a") == b"mine"


# Everything else


def test_an_answer_that_breaks_off_is_asked_for_again(opening: Opening, proxy: HttpProxy) -> None:
    storage = opening()
    storage.put("a", bytes(range(200)))
    left = [HttpFault(half_answered=True)]
    proxy.faults = lambda request: left.pop() if request.method == "GET" and left else None
    assert storage.read("a") == bytes(range(200)) and left == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_other_requests_are_repeated_with_back_off(opening: Opening, proxy: HttpProxy, status: int) -> None:
    storage = opening()
    storage.put("a", b"1")
    for call in calls(storage).values():
        left = [HttpFault(status)] * 2
        proxy.faults = lambda request, left=left: None if request.conditional or not left else left.pop()
        call()
    assert storage.read("b") == b"" and not storage.exists("a")


def test_a_store_that_says_nothing_is_given_up_at_the_first_time_out(opening: Opening, proxy: HttpProxy) -> None:
    storage = opening(timeout_s="1")
    proxy.faults = lambda request: HttpFault(delay_s=3)
    for name, call in calls(storage).items():
        proxy.requests.clear()
        with pytest.raises(Unavailable, match="could not be used"):
            call()
        assert len(proxy.requests) == 1, name


# Bad input


def check_each_call(storage: Storage, error: type[LakelatchError], match: str, but: tuple[str, ...] = ()) -> None:
    for name, call in calls(storage).items():
        if name not in but:
            with pytest.raises(error) as told:
                call()
            assert re.search(match, str(told.value)), (name, str(told.value))


@pytest.mark.parametrize(
    ("fault", "error", "match"),
    [
        (HttpFault(403, s3_error("AccessDenied")), InvalidRequest, REFUSED.format("(AccessDenied|403 Forbidden)")),
        (HttpFault(403, s3_error("RequestTimeTooSkewed")), LakelatchError, "its clock is wrong|clock must be right"),
        (HttpFault(400, s3_error("AuthorizationHeaderMalformed")), LakelatchError, "another region|400 Bad Request"),
        (HttpFault(301, s3_error("PermanentRedirect")), InvalidRequest, "another region; see lakelatch.storage.region"),
    ],
)
def test_what_the_store_refuses_is_told(
    opening: Opening, proxy: HttpProxy, fault: HttpFault, error: type[LakelatchError], match: str
) -> None:
    """A store says of a `HEAD` no more than its status."""
    proxy.faults = lambda request: fault
    check_each_call(opening(), error, match)


def test_no_right_to_list(opening: Opening, proxy: HttpProxy) -> None:
    storage = opening()
    storage.put("d/a", b"")
    denied = HttpFault(403, s3_error("AccessDenied"))
    proxy.faults = lambda request: denied if "list-type" in request.query else None
    for ask in (storage.list, storage.delete_folder, lambda folder: list(storage.walk(folder))):
        with pytest.raises(InvalidRequest, match=REFUSED.format("AccessDenied")):
            ask("d")
    assert storage.read("d/a") == b""


def test_no_right_to_delete_is_found_before_anything_is_written(opening: Opening, proxy: HttpProxy) -> None:
    storage = opening()
    storage.put("d/a", b"")
    key = f"{storage.uri.rpartition('/')[2]}/d/a"
    one = f"<DeleteResult><Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    proxy.faults = lambda request: HttpFault(200, one.encode()) if request.method == "POST" else None
    with pytest.raises(InvalidRequest, match=REFUSED.format("AccessDenied")):
        storage.delete_folder("d")
    denied = HttpFault(403, s3_error("AccessDenied"))
    proxy.faults = lambda request: denied if request.method in ("POST", "DELETE") else None
    with pytest.raises(InvalidRequest, match=REFUSED.format("AccessDenied")):
        storage.delete_folder("d")
    with pytest.raises(InvalidRequest, match=REFUSED.format("AccessDenied")):
        ensure_refuses_second(storage, REAL_SYSTEM)
    assert storage.read("d/a") == b""


def test_stores_without_conditional_puts_are_refused(opening: Opening, proxy: HttpProxy) -> None:
    storage = opening(timeout_s="6")
    proxy.faults = lambda request: HttpFault(501, s3_error("NotImplemented")) if request.conditional else None
    with pytest.raises(InvalidRequest, match=r"s3://lakelatch/\S+ does not know conditional puts"):
        ensure_refuses_second(storage, REAL_SYSTEM)
    ignored = HttpFault(200, headers=(("ETag", '"1"'),), done=True)
    proxy.faults = lambda request: ignored if request.conditional else None
    with pytest.raises(InvalidRequest, match="creates an object that is there already a second time"):
        ensure_refuses_second(storage, REAL_SYSTEM)
    assert list(storage.walk("")) == []


@pytest.mark.parametrize("endpoint", ["127.0.0.1:1", "http://", "ftp://host", "http://a b"])
def test_an_endpoint_that_is_none(opening: Opening, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match=rf"lakelatch.storage.endpoint_url='{endpoint}' is no endpoint"):
        opening(endpoint_url=endpoint).read("a")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(InvalidRequest, match=rf"AWS_ENDPOINT_URL='{endpoint}' is no endpoint"):
        opening(endpoint_url="").read("a")


def test_an_endpoint_that_nobody_answers_at(opening: Opening) -> None:
    storage = opening(endpoint_url="http://no-such-host.invalid", timeout_s="1")
    check_each_call(storage, Unavailable, r"could not be used \(dns error\).*path and the endpoint")


def test_no_credentials(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    storage = opening(access_key_id="", secret_access_key="", timeout_s="1")
    check_each_call(storage, InvalidRequest, "no credentials were found.*lakelatch.storage.access_key_id")


def test_a_versioned_bucket_keeps_the_contract(opening: Opening, seaweedfs_server: Server) -> None:
    given = StorageOptions.from_options(place_options(seaweedfs_server))
    client = boto3.client(
        "s3",
        endpoint_url=given.endpoint_url,
        region_name=given.region,
        aws_access_key_id=given.access_key_id,
        aws_secret_access_key=given.secret_access_key,
    )
    client.create_bucket(Bucket="versioned")
    client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    storage = opening(seaweedfs_server, "versioned")
    ensure_refuses_second(storage, REAL_SYSTEM)
    assert storage.put_if_absent("d/a", b"1") and not storage.put_if_absent("d/a", b"2")
    storage.delete("d/a")
    assert not storage.exists("d/a") and storage.list("d").files == ()
    assert storage.put_if_absent("d/a", b"3") and storage.read("d/a") == b"3"
    storage.put("d/a", b"4")
    assert list(storage.walk("")) == ["d/a"] and storage.read("d/a") == b"4"
    storage.delete_folder("d")
    assert list(storage.walk("")) == []
