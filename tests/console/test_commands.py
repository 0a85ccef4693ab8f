"""The command line, without Spark: what it prints for people and for programs, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lakelatch.console.main import main
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage.local import LocalStorage
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata, WriteStat
from lakelatch.timeline.table_config import PROPERTIES_PATH, TableConfig
from lakelatch.transactions.attempt import table_lock
from lakelatch.transactions.base.settings import TransactionSettings
from lakelatch.transactions.manager import TransactionManager

SCHEMA = json.dumps({"type": "record", "name": "t", "fields": [{"name": "id", "type": "long"}]})
FILE_ID = "00000000-0000-0000-0000-000000000000-0"


@pytest.fixture
def table(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(str(tmp_path / "table"))
    storage.put_if_absent(PROPERTIES_PATH, TableConfig("t", ("id",), bucket_count=1).to_properties())
    return storage


@pytest.fixture
def manager(table: LocalStorage) -> TransactionManager:
    provider = FilesystemLockProvider(LockScope(table.uri, {}))
    settings = TransactionSettings(writer="the-writer")
    return TransactionManager(table, provider, HybridTimeGenerator(provider), settings)


def commit(manager: TransactionManager) -> str:
    transaction = manager.begin()
    name = f".{FILE_ID}_{transaction.instant}.log.1_0-0-0"
    transaction.markers.create_data_file("", name, b"rows")
    extra = {"schema": "{}", WRITER_KEY: manager.writer}
    stat = WriteStat("", FILE_ID, name, num_writes=7)
    return transaction.commit(CommitMetadata((stat,), "UPSERT", extra)).completion


def test_timeline_as_json(manager: TransactionManager, table: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    completion = commit(manager)
    pending = manager.begin()

    assert main(["timeline", table.root, "--json"]) == 0

    first, second = json.loads(capsys.readouterr().out)
    assert first["completion"] == completion
    assert (first["operation"], first["writer"], first["rows"], first["files"]) == ("upsert", "the-writer", 7, 1)
    assert first["duration_ms"] == to_ms(completion) - to_ms(first["requested"]) > 0
    assert (second["requested"], second["completion"], second["state"]) == (pending.instant, None, "inflight")
    pending.abort()


def test_timeline_for_a_person_and_as_a_picture(
    manager: TransactionManager, table: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    completions = [commit(manager) for _ in range(3)]

    assert main(["timeline", table.root, "--draw", str(tmp_path / "t.svg"), "--limit", "2"]) == 0

    text = capsys.readouterr().out
    assert completions[0] not in text
    assert completions[1] in text and completions[2] in text
    assert "1 earlier instants are not shown" in text
    assert "<svg" in (tmp_path / "t.svg").read_text()


@pytest.mark.parametrize("name, told", [("t.xyz", ".svg or .png"), ("no/t.svg", "no folder")])
def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_shown(
    name: str,
    told: str,
    manager: TransactionManager,
    table: LocalStorage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    completion = commit(manager)

    assert main(["timeline", table.root, "--draw", str(tmp_path / name)]) == 1

    shown = capsys.readouterr()
    assert told in shown.err.replace("\n", " ") and completion not in shown.out


def test_a_demo_that_cannot_draw_does_not_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--folder", str(tmp_path)]) == 1
    assert "matplotlib" in capsys.readouterr().err and not list(tmp_path.rglob("*.parquet"))


def test_locks_shows_holders_and_writers(
    manager: TransactionManager, table: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    transaction = manager.begin()
    with table_lock(manager.context) as lease:
        assert main(["locks", table.root, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
    assert [(held["key"], held["token"]) for held in shown["locks"]] == [("table", lease.token)]
    assert shown["writers"] == [{"instant": transaction.instant, "writer": "the-writer", "alive": True}]
    transaction.abort()

    assert main(["locks", table.root]) == 0
    text = capsys.readouterr().out
    assert "no lock is held" in text and "no transaction is open" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["timeline", "{missing}"], "there is no table"),
        (["locks", "{table}", "-o", "hoodie.write.lock.provider=zookeper"], "Did you mean 'zookeeper'"),
        (["locks", "{table}", "-o", "nonsense"], "KEY=VALUE"),
        (["demo", "--commits", "1"], "--commits 1 is too small"),
        (["timeline", "{table}", "--limit", "-1"], "--limit -1 is too small: use at least 1"),
        (["timeline", "{table}", "--limit", "0"], "--limit 0 is too small"),
        (["conflicts", "{table}", "--limit", "-1"], "--limit -1 is too small"),
        (["compact", "{table}", "--cores", "0"], "--cores 0 is too small"),
        (["clean", "{table}", "-o", "hoodie.clean.commits.retained=0"], "keeps nothing for readers"),
        (["clean", "{table}", "-o", "hoodie.cleaner.policy=KEEP_ALL"], "KEEP_LATEST_COMMITS"),
    ],
)
def test_errors_end_with_one_and_say_what_to_do(
    arguments: list[str], told: str, table: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [text.format(missing=tmp_path / "nothing", table=table.root) for text in arguments]

    assert main([*filled, "--json"]) == 1

    captured = capsys.readouterr()
    assert told in json.loads(captured.out)["message"]
    assert told in captured.err.replace("\n", " ")


def test_a_wrong_call_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["no-such-command"])
    assert ended.value.code == 2
    assert "no-such-command" in capsys.readouterr().err


def test_a_writer_may_be_called_anything(table: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    provider = FilesystemLockProvider(LockScope(table.uri, {}))
    settings = TransactionSettings(writer="[/etl] nightly")
    odd = TransactionManager(table, provider, HybridTimeGenerator(provider), settings)
    commit(odd)
    left = odd.begin()

    assert main(["timeline", table.root]) == 0
    assert main(["locks", table.root]) == 0
    assert capsys.readouterr().out.count("[/etl] nightly") >= 2
    left.abort()


def test_clean_says_what_goes_and_what_went(
    manager: TransactionManager, table: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two base files of one file group, and writes elsewhere until nobody within retention reads the first."""
    for number in range(5):
        transaction = manager.begin("commit")
        file_id = FILE_ID if number < 2 else FILE_ID.replace("0000-0", "0001-0", 1)
        name = f"{file_id}_0-0-{number}_{transaction.instant}.parquet"
        transaction.markers.create_data_file("", name, b"rows")
        transaction.commit(CommitMetadata((WriteStat("", file_id, name),), "UPSERT", {"schema": SCHEMA}))
        if number == 0:
            first = name
    options = ["-o", "hoodie.clean.commits.retained=1"]
    assert main(["clean", table.root, "--dry-run", "--json", *options]) == 0
    assert first in json.loads(capsys.readouterr().out)["would_remove"] and table.exists(first)
    assert main(["clean", table.root, *options]) == 0
    assert "files" in capsys.readouterr().out and not table.exists(first)
    assert main(["clean", table.root, "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {"completed": [], "waiting": []}


def test_without_matplotlib_the_text_is_there_and_the_error_names_the_extra(
    manager: TransactionManager,
    table: LocalStorage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completion = commit(manager)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["timeline", table.root, "--draw", str(tmp_path / "t.svg")]) == 1
    shown = capsys.readouterr()
    assert completion in shown.out and "pip install 'lakelatch[draw]'" in shown.err
    assert main(["timeline", table.root, "--draw", str(tmp_path / "t.svg"), "--json"]) == 1
    assert "lakelatch[draw]" in json.loads(capsys.readouterr().out)["message"]
