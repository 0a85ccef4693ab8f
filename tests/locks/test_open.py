"""Which provider a name opens, and what is said if there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import PROVIDER
from lakelatch.plugins import find_component

OURS = "lakelatch.locks."
HUDI = "org.apache.hudi.client.transaction.lock."


def open_by_name(name: str | None) -> LockProvider:
    return open_lock_provider(LockScope("file:///nowhere/table", {} if name is None else {PROVIDER: name}))


@pytest.mark.parametrize(
    "name, kind",
    [
        (None, FilesystemLockProvider),
        ("filesystem", FilesystemLockProvider),
        (" In_Process ", InProcessLockProvider),
        (HUDI + "InProcessLockProvider", InProcessLockProvider),
    ],
)
def test_a_name_opens_its_provider(name: str | None, kind: type[LockProvider]) -> None:
    assert type(open_by_name(name)) is kind


def test_hudis_lock_by_a_file_is_refused_since_kernel_locks_exclude_no_java_writer() -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_by_name(HUDI + "FileSystemBasedLockProvider")
    text = str(caught.value)
    assert PROVIDER in text and "FileSystemBasedLockProvider" in text
    assert "ZookeeperBasedLockProvider" in text and "'filesystem'" in text


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_by_name("Filesytem")
    text = str(caught.value)
    assert PROVIDER in text and "Did you mean 'filesystem'?" in text and "in_process" in text


@pytest.mark.parametrize(
    "name, module, client, extra",
    [
        ("zookeeper", "zookeeper", "kazoo", "zookeeper"),
        ("Redis", "redis", "redis", "redis"),
        ("dynamodb", "dynamodb", "boto3", "dynamodb"),
        ("storage", "object_store", "obstore", "s3"),
        (HUDI + "ZookeeperBasedLockProvider", "zookeeper", "kazoo", "zookeeper"),
    ],
)
def test_a_backend_whose_client_is_missing_names_its_extra(
    name: str, module: str, client: str, extra: str, no_plugins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = (client + ".", OURS + module, "lakelatch.storage.cloud_objects")
    for loaded in [known for known in sys.modules if known == client or known.startswith(users)]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, client, None)
    with pytest.raises(InvalidRequest, match=rf"cannot be loaded.*lakelatch\[{extra}\]"):
        open_by_name(name)


def test_what_cannot_be_loaded_is_not_said_to_be_installed(no_plugins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [known for known in sys.modules if known == "kazoo" or known.startswith(("kazoo.", OURS + "zoo"))]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(InvalidRequest) as caught:
        open_by_name("zookeper")
    there, missing = str(caught.value).partition("Installed: ")[2].split(". Not installed: ")
    assert "Did you mean 'zookeeper'?" in str(caught.value)
    assert "filesystem" in there and "redis" in there and "ookeeper" not in there
    assert missing.endswith("zookeeper with pip install 'lakelatch[zookeeper]'") and "redis" not in missing


@pytest.fixture
def no_plugins() -> Iterator[None]:
    find_component.cache_clear()
    yield
    find_component.cache_clear()


class Plugins:
    """A distribution on sys.path with entry points of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, package: str, code: str, *points: str) -> None:
        (self.folder / f"{package}.py").write_text(code)
        info = self.folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[lakelatch.lock_providers]\n" + "\n".join(points) + "\n")


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_plugins: None) -> Iterator[Plugins]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Plugins(tmp_path)
    for name in ("lakelatch_plugin_one", "lakelatch_plugin_two"):
        sys.modules.pop(name, None)


GOOD = """
from lakelatch.testing.faults.lying_lock import LyingLockProvider
class Provider(LyingLockProvider):
    pass
"""


def test_a_third_party_s_provider_is_found(plugins: Plugins) -> None:
    plugins.install("lakelatch_plugin_one", GOOD, "mine = lakelatch_plugin_one:Provider")
    assert type(open_by_name("MINE")).__module__ == "lakelatch_plugin_one"


def test_a_name_that_two_packages_claim_is_refused(plugins: Plugins) -> None:
    plugins.install("lakelatch_plugin_one", GOOD, "mine = lakelatch_plugin_one:Provider")
    plugins.install("lakelatch_plugin_two", GOOD, "mine = lakelatch_plugin_two:Provider")
    with pytest.raises(InvalidRequest, match="lakelatch_plugin_one:Provider and lakelatch_plugin_two:Provider"):
        open_by_name("mine")


def test_a_provider_that_cannot_be_imported_says_what_is_missing(plugins: Plugins) -> None:
    plugins.install("lakelatch_plugin_one", "import no_such_client", "mine = lakelatch_plugin_one:Provider")
    with pytest.raises(InvalidRequest, match=r"no_such_client.*install what it needs"):
        open_by_name("mine")


def test_what_is_no_provider_is_refused(plugins: Plugins) -> None:
    plugins.install("lakelatch_plugin_one", "Provider = lambda scope: [scope]", "mine = lakelatch_plugin_one:Provider")
    with pytest.raises(InvalidRequest, match="made a list"):
        open_lock_provider(LockScope("file:///nowhere", {PROVIDER: "mine"}))
