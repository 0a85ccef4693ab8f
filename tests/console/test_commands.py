"""The command line, without Spark: what it prints for people and for programs, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from bare_table import add_log, commit, manager_of

from lakelatch.console.main import main
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.storage.local import LocalStorage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.metadata import WRITER_KEY, WriteStat
from lakelatch.transactions.manager import TransactionManager

SCHEMA = json.dumps({"type": "record", "name": "t", "fields": [{"name": "id", "type": "long"}]})
FILE_ID = "00000000-0000-0000-0000-000000000000-0"


@pytest.fixture
def manager(storage: LocalStorage) -> TransactionManager:
    return manager_of(storage, writer="the-writer")


def committed(manager: TransactionManager) -> str:
    transaction = manager.begin()
    extra = {"schema": "{}", WRITER_KEY: manager.writer}
    return commit(transaction, add_log(transaction, FILE_ID, rows=7), extra=extra).completion


def test_timeline_as_json(
    manager: TransactionManager, storage: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    completion = committed(manager)
    pending = manager.begin()

    assert main(["timeline", storage.root, "--json"]) == 0

    first, second = json.loads(capsys.readouterr().out)
    assert first["completion"] == completion
    assert (first["operation"], first["writer"], first["rows"], first["files"]) == ("upsert", "the-writer", 7, 1)
    assert first["duration_ms"] == to_ms(completion) - to_ms(first["requested"]) > 0
    assert (second["requested"], second["completion"], second["state"]) == (pending.instant, None, "inflight")
    pending.abort()


def test_timeline_for_a_person_and_as_a_picture(
    manager: TransactionManager, storage: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    completions = [committed(manager) for _ in range(3)]

    assert main(["timeline", storage.root, "--draw", str(tmp_path / "t.svg"), "--limit", "2"]) == 0

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
    storage: LocalStorage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    completion = committed(manager)

    assert main(["timeline", storage.root, "--draw", str(tmp_path / name)]) == 2

    shown = capsys.readouterr()
    assert told in shown.err.replace("\n", " ") and completion not in shown.out


def test_a_picture_whose_file_cannot_be_written_is_told_with_its_name(
    manager: TransactionManager, storage: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(manager)
    assert main(["timeline", storage.root, "--draw", "/proc/t.svg"]) == 1
    assert "a picture cannot be drawn as '/proc/t.svg': No such file" in capsys.readouterr().err.replace("\n", " ")


def test_a_demo_that_cannot_draw_does_not_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--folder", str(tmp_path)]) == 1
    assert "matplotlib" in capsys.readouterr().err and not list(tmp_path.rglob("*.parquet"))


def test_locks_shows_holders_and_writers(
    manager: TransactionManager, storage: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    transaction = manager.begin()
    with manager.context.provider.acquire(TABLE_KEY, 5) as lease:
        assert main(["locks", storage.root, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
    assert [(held["key"], held["token"]) for held in shown["locks"]] == [("table", lease.token)]
    assert shown["writers"] == [{"instant": transaction.instant, "writer": "the-writer", "alive": True}]
    transaction.abort()

    assert main(["locks", storage.root]) == 0
    text = capsys.readouterr().out
    assert "no lock is held" in text and "no transaction is open" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["locks", "{table}", "-o", "hoodie.write.lock.provider=zookeper"], "Did you mean 'zookeeper'"),
        (["clean", "{table}", "-o", "hoodie.clean.commits.retained=0"], "keeps nothing for readers"),
        (["clean", "{table}", "-o", "hoodie.cleaner.policy=KEEP_ALL"], "KEEP_LATEST_COMMITS"),
    ],
)
def test_a_wrong_value_of_an_option_of_a_table_ends_with_two_and_says_what_to_do(
    arguments: list[str], told: str, storage: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*(text.format(table=storage.root) for text in arguments), "--json"]) == 2

    captured = capsys.readouterr()
    assert told in json.loads(captured.out)["message"]
    assert told in captured.err.replace("\n", " ")


def test_a_path_without_a_table_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", str(tmp_path / "nothing"), "--json"]) == 1

    captured = capsys.readouterr()
    assert "there is no table" in json.loads(captured.out)["message"]
    assert "there is no table" in captured.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no-such-command"], "No such command 'no-such-command'."),
        (["timelin", "t"], "No such command 'timelin'. Did you mean 'timeline'?"),
        (["timeline", "t", "--limt", "1"], "No such option '--limt'. (Did you mean one of: '--limit',"),
        (["timeline"], "Missing argument 'TABLE'"),
        (
            ["locks", "t", "-o", "nonsense"],
            "no value: write KEY=VALUE. See lakelatch locks show --help",
        ),
        (["locks", "t", "-o", "hoodie.write.lock.provder=redis"], "did you mean 'hoodie.write.lock.provider'?"),
        (["demo", "--commits", "1"], "'--commits': 1 is not in the range x>=2"),
        (["timeline", "t", "--limit", "-1"], "'--limit': -1 is not in the range x>=1"),
        (["conflicts", "t", "--limit", "0"], "'--limit': 0 is not in the range x>=1"),
        (["compact", "t", "--cores", "-1"], "'--cores': -1 is not in the range x>=0"),
        (["cluster", "t", "--layout", "z"], "'z' is not one of 'linear', 'z-order', 'hilbert'"),
        (["service", "run", "t", "--every", "often"], "'often' is no time between rounds: write 30s"),
    ],
)
def test_a_wrong_call_ends_with_two(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--json"]) == 2

    captured = capsys.readouterr()
    assert told in json.loads(captured.out)["message"]
    assert told in captured.err and captured.err.count("\n") == 1


def test_a_writer_may_be_called_anything(storage: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    odd = manager_of(storage, writer="[/etl] nightly")
    committed(odd)
    left = odd.begin()

    assert main(["timeline", storage.root]) == 0
    assert main(["locks", storage.root]) == 0
    assert capsys.readouterr().out.count("[/etl] nightly") >= 2
    left.abort()


def test_clean_says_what_goes_and_what_went(
    manager: TransactionManager, storage: LocalStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two base files of one file group, and writes elsewhere until nobody within retention reads the first."""
    for number in range(5):
        transaction = manager.begin("commit")
        file_id = FILE_ID if number < 2 else FILE_ID.replace("0000-0", "0001-0", 1)
        name = f"{file_id}_0-0-{number}_{transaction.instant}.parquet"
        transaction.markers.create_data_file("", name, b"rows")
        commit(transaction, WriteStat("", file_id, name), extra={"schema": SCHEMA})
        if number == 0:
            first = name
    options = ["-o", "hoodie.clean.commits.retained=1"]
    assert main(["clean", storage.root, "--dry-run", "--json", *options]) == 0
    assert first in json.loads(capsys.readouterr().out)["would_remove"] and storage.exists(first)
    assert main(["clean", storage.root, *options]) == 0
    assert "files" in capsys.readouterr().out and not storage.exists(first)
    assert main(["clean", storage.root, "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {"completed": [], "waiting": []}


def test_without_matplotlib_the_text_is_there_and_the_error_names_the_extra(
    manager: TransactionManager,
    storage: LocalStorage,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completion = committed(manager)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["timeline", storage.root, "--draw", str(tmp_path / "t.svg")]) == 1
    shown = capsys.readouterr()
    assert completion in shown.out and "pip install 'lakelatch[draw]'" in shown.err
    assert main(["timeline", storage.root, "--draw", str(tmp_path / "t.svg"), "--json"]) == 1
    assert "lakelatch[draw]" in json.loads(capsys.readouterr().out)["message"]
