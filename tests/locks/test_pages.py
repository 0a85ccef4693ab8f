"""The options on the page of each lock provider: it knows all of them, and a real server grants a lock by them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import PREFIX, PROVIDER
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import SERVER_OF, lock_options

PAGES = Path(__file__).parents[2] / "docs" / "locks"
#: What the servers of the tests do not ask for; other tests have servers with users and certificates.
SECURITY = ("username", "password", "ssl_ca_certs", "ca_cert")
SECRETS = {"REDIS_PASSWORD": "secret", "ZOOKEEPER_AUTH": "digest:lakelatch:secret"}


def options_of(page: Path) -> Iterator[dict[str, str]]:
    """The dictionaries of options that the blocks of a page make."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(block, names)
    return (value for value in names.values() if isinstance(value, dict) and PROVIDER in value)


def at_server(
    provider: str, options: Mapping[str, str], request: pytest.FixtureRequest, folder: Path
) -> dict[str, str]:
    """The options with the address of the server that is here, and what else that one wants."""
    if provider == "filesystem":
        return {**options, f"{PREFIX}filesystem.path": str(folder)}
    server: Server = request.getfixturevalue(f"{SERVER_OF[provider]}_server")
    served = lock_options(server)
    if provider == "zookeeper":  # below a node of its own, whose rights bother no other test
        served[f"{PREFIX}zookeeper.url"] += f"/{folder.parent.name}-{folder.name}"
    plain = {key: value for key, value in options.items() if key.rpartition(".")[2] not in SECURITY}
    return {**served, **plain, **{key: value for key, value in served.items() if key.endswith("url")}}


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_options_of_a_page_are_known_and_a_server_grants_a_lock_by_them(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: Path
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    found = list(options_of(page))
    assert found
    for number, options in enumerate(found):
        open_lock_provider(LockScope("memory://page", options)).close()
        reached = at_server(page.stem, options, request, tmp_path / str(number))
        made = {f"{PREFIX}dynamodb.create_table": "true"} if page.stem == "dynamodb" else {}
        for each in ({**reached, **made}, reached):
            scope = LockScope(f"memory://{tmp_path.name}", each)
            with closing(open_lock_provider(scope)) as provider, provider.acquire(TABLE_KEY, 10) as lease:
                assert lease.valid()
