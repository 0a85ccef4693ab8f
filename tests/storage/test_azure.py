"""Tables' storage at Azure: the contract on Azurite, and what is wrong is told without secrets."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from azurite import ACCOUNT, ACCOUNT_KEY, CONTAINER, LocalAzurite, azurite_options

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage import open_storage
from lakelatch.storage.contract import Storage
from lakelatch.storage.options import StorageOptions
from lakelatch.testing.conformance.storage import SharedStorageConformance


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAzurite]:
    with closing(LocalAzurite(tmp_path_factory.mktemp("azurite"))) as server:
        server.start()
        yield server


def options(server: LocalAzurite, **changed: str) -> StorageOptions:
    values = {**azurite_options(server.host, server.port), "timeout_s": "10", **changed}
    return StorageOptions.from_options({f"lakelatch.storage.{key}": value for key, value in values.items()})


def uri(folder: str) -> str:
    return f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/{folder}"


class TestAzureStorage(SharedStorageConformance):
    shows_emptied_folders = True

    @pytest.fixture(autouse=True)
    def _use_server(self, azurite: LocalAzurite) -> None:
        self.server = azurite

    def make_storage(self, folder: Path) -> Storage:
        return open_storage(uri(f"{folder.name}/table"), options(self.server))


def test_secrets_are_in_no_text(azurite: LocalAzurite) -> None:
    storage = open_storage(uri("x"), options(azurite))
    assert ACCOUNT_KEY not in f"{storage!r} {storage} {options(azurite)!r}" and ACCOUNT_KEY in str(
        pickle.dumps(storage)
    )
    for wrong in ("d3Jvbmc=", "no base 64 " + ACCOUNT_KEY):
        with pytest.raises((InvalidRequest, Unavailable)) as told:
            open_storage(uri("x"), options(azurite, secret_access_key=wrong)).read("a")
        assert wrong not in str(told.value) and ACCOUNT_KEY not in str(told.value)
        assert isinstance(told.value, InvalidRequest) and "access_key" in str(told.value)


def test_a_container_that_is_not_there_is_no_missing_file(azurite: LocalAzurite) -> None:
    storage = open_storage(uri("x").replace(f"//{CONTAINER}@", "//none@"), options(azurite))
    for call in (lambda: storage.read("a"), lambda: storage.list(""), lambda: storage.put_if_absent("a", b"")):
        with pytest.raises(InvalidRequest, match="there is no bucket at abfss://none@"):
            call()
