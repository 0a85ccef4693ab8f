"""`lakelatch locks`, `locks break` and `locks migrate` on a table with kernel locks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bare_table import commit, manager_of, provider_of

from lakelatch.console.main import main
from lakelatch.engine.arrow import ArrowTable
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.log.lock_names import WrongLocks


def test_a_lock_is_broken_and_its_holder_is_told(storage: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    provider = provider_of(storage)
    lease = provider.acquire(TABLE_KEY, 5)
    assert main(["locks", "break", storage.root, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"key": TABLE_KEY, "broken": True, "holder": lease.owner}
    assert not lease.valid() and not lease.release()
    with provider.acquire(TABLE_KEY, 5) as successor:
        assert successor.token > lease.token
    assert main(["locks", "break", storage.root]) == 1
    assert "has no holder" in capsys.readouterr().out
    provider.close()


def test_only_the_named_lock_is_broken(storage: LocalStorage) -> None:
    provider = provider_of(storage)
    with provider.acquire(TABLE_KEY, 5) as kept, provider.acquire("file_group/a/b", 5) as gone:
        assert main(["locks", "break", storage.root, "file_group/a/b"]) == 0
        assert kept.valid() and not gone.valid()
    provider.close()


def test_a_table_moves_to_other_locks(storage: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = manager_of(storage), manager_of(storage, InProcessLockProvider(LockScope(storage.uri, {})))
    late = old.begin()
    move = ["locks", "migrate", storage.root, "--from", "filesystem", "--to", "in_process", "--json"]
    assert main(move) == 0
    moved = json.loads(capsys.readouterr().out)
    assert moved["changed"] and moved["domain"] == "inprocess"
    with pytest.raises(WrongLocks, match="locks migrate"):
        commit(late)
    with pytest.raises(WrongLocks):
        old.begin()
    assert new.begin().instant > moved["time"]
    assert main(move) == 0
    assert json.loads(capsys.readouterr().out) == {"changed": False, "domain": "inprocess"}
    assert main(["locks", storage.root]) == 0
    assert "locks of the table: inprocess; looked at: inprocess" in capsys.readouterr().out
    assert main(["locks", storage.root, "-o", "hoodie.write.lock.provider=filesystem"]) == 0
    text = capsys.readouterr().out
    assert "locks of the table: inprocess; looked at: filesystem" in text and "use other locks" in text


def test_a_move_needs_no_name_of_the_old_locks_where_the_table_has_it(
    storage: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    move = ["locks", "migrate", storage.root, "--to", "in_process", "--json"]
    assert main(move) == 2
    told = json.loads(capsys.readouterr().out)
    assert "--from is missing: neither the table's properties nor its log" in told["message"]
    manager_of(storage).begin().abort()
    commit(manager_of(storage).begin())  # its slot names the locks, as the properties do not
    assert main(move) == 0
    assert json.loads(capsys.readouterr().out)["changed"]
    assert main(move) == 0  # the properties name them by now
    assert json.loads(capsys.readouterr().out) == {"changed": False, "domain": "inprocess"}


def test_a_table_that_was_made_here_and_names_no_locks_has_those_of_who_names_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "made")
    ArrowTable.create(path, "id long", key="id", buckets=1)
    assert main(["locks", "migrate", path, "--to", "in_process", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["domain"] == "inprocess"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--from", "filesystem", "--to", "filesystem"], 1, "the same"),
        (["--from", "filesystem", "--to", "redis"], 1, "hoodie.write.lock.redis.url"),
        (["--from", "filesystem", "--to", "storage", "-o", "hoodie.write.lock.provider=redis"], 2, "--from and --to"),
    ],
)
def test_a_move_that_cannot_be_made_changes_nothing(
    arguments: list[str], code: int, told: str, storage: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["locks", "migrate", storage.root, *arguments, "--json"]) == code
    assert told in json.loads(capsys.readouterr().out)["message"]
    manager_of(storage).begin().abort()
