"""Writers of one table in an object store, with its locks there as well: which objects are changed more than once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from bare_table import commit, manager_of

from lakelatch.locks.contract import LockScope
from lakelatch.locks.object_store.provider import StorageLockProvider
from lakelatch.locks.options import LEASE
from lakelatch.storage import open_storage
from lakelatch.storage.options import StorageOptions
from lakelatch.testing.servers import HttpProxy, Server
from lakelatch.testing.servers.reach import place_options
from lakelatch.testing.servers.seaweedfs import BUCKET
from lakelatch.timeline.metadata import WriteStat
from lakelatch.transactions.base.settings import NON_BLOCKING

WRITERS, COMMITS = 3, 6


@pytest.fixture
def proxy(seaweedfs_server: Server) -> Iterator[HttpProxy]:
    with closing(HttpProxy(seaweedfs_server.host, seaweedfs_server.port)) as opened:
        yield opened


def commits(place: str, options: dict[str, str], writer: int) -> int:
    """What a process does, with a provider of its own."""
    storage = open_storage(place, StorageOptions.from_options(options))
    with closing(StorageLockProvider(LockScope(place, options))) as provider:
        manager = manager_of(storage, provider, mode=NON_BLOCKING, lock_timeout_s=60)
        for number in range(COMMITS):
            transaction = manager.begin("deltacommit")
            name = f".group_{transaction.instant}.log.1_{writer}-{number}-0"
            transaction.markers.create_data_file("", name, b"rows")
            commit(transaction, WriteStat("", "group", name))
    return COMMITS


def test_only_the_lock_and_the_clock_of_a_table_are_changed_again_and_again(proxy: HttpProxy, tmp_path: Path) -> None:
    """Some stores take one change of an object a second; all other objects are put once, but for signs of life."""
    place, options = f"s3://{BUCKET}/{tmp_path.name}/table", {**place_options(proxy), LEASE: "6"}
    with ThreadPoolExecutor(WRITERS) as pool:
        done = sum(pool.map(lambda writer: commits(place, options, writer), range(WRITERS)))
    assert done == WRITERS * COMMITS
    root = f"/{BUCKET}/{tmp_path.name}/table/.hoodie/.lakelatch/"
    puts = Counter(request.path for request, status in proxy.answered if request.method == "PUT" and status == 200)
    often = {path.removeprefix(root): count for path, count in puts.items() if count > 1}
    (clock,) = (path for path in often if re.fullmatch(r"lock_records/registers/\w+/time.json", path))
    (lock,) = (path for path in often if re.fullmatch(r"lock_records/locks/\w+/table.json", path))
    assert often.pop(lock) <= 2 * done and often.pop(clock) <= 3 * done  # one more for each slot that was lost
    assert all(path == "now" or path.startswith(("lock_records/sessions/", "lock_records/checks/")) for path in often)
    assert len(puts) > 8 * done
