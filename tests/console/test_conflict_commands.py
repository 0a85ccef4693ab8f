"""`lakelatch conflicts` on a table whose writers have met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bare_table import commit, manager_of

from lakelatch.console.main import main
from lakelatch.errors import WriteConflict
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.transactions.base.settings import EarlySettings
from lakelatch.transactions.conflicts.report import Work
from lakelatch.transactions.early.task_files import TaskFiles
from lakelatch.transactions.transaction import Transaction

GROUPS = [f"{number:08d}-0000-0000-0000-000000000000-0" for number in range(3)]


def begin(storage: LocalStorage, writer: str, early: EarlySettings | None = None) -> Transaction:
    return manager_of(storage, writer=writer, early=early).begin()


def stats(transaction: Transaction) -> tuple[WriteStat, ...]:
    names = [f".{group}_{transaction.instant}.log.1_0-0-0" for group in GROUPS]
    with TaskFiles(
        transaction.markers.storage,
        transaction.instant,
        "0-0-0",
        transaction.early_detection(),
    ) as files:
        for name in names:
            files.create("", name, b"12345", 10)
    return tuple(WriteStat("", group, name) for group, name in zip(GROUPS, names, strict=True))


def lose_at_the_commit(storage: LocalStorage) -> tuple[Transaction, Transaction]:
    loser, winner = begin(storage, "[red]nightly"), begin(storage, "hourly")
    mine, theirs = stats(loser), stats(winner)
    commit(winner, *theirs)
    with pytest.raises(WriteConflict):
        loser.commit(CommitMetadata(mine, "UPSERT"), work=Work(12_345, 678, 90_000))
    return loser, winner


def lose_early(storage: LocalStorage) -> tuple[Transaction, Transaction]:
    winner, loser = begin(storage, "first", EarlySettings()), begin(storage, "second", EarlySettings())
    theirs = stats(winner)
    with pytest.raises(WriteConflict):
        stats(loser)
    loser.abort(loser.found_early())
    commit(winner, *theirs)
    return loser, winner


def test_a_table_without_conflicts_says_so(storage: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conflicts", storage.root]) == 0
    assert "no write has lost lately" in capsys.readouterr().out
    assert main(["conflicts", storage.root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_conflicts_are_shown_to_people(
    storage: LocalStorage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")  # nothing is cut off in a narrow terminal
    loser, winner = lose_at_the_commit(storage)
    second, first = lose_early(storage)
    assert main(["conflicts", storage.root]) == 0
    lines = capsys.readouterr().out.splitlines()
    at_commit, early = (
        "\n".join(lines[index : index + 3])
        for one in (loser, second)
        for index, line in enumerate(lines)
        if line.startswith(one.instant)
    )
    assert winner.committed is not None and winner.committed.completion in at_commit and winner.instant in at_commit
    for text in (
        "at its commit",
        "12,345 rows",
        "678 bytes",
        "90.0 task s",
        f"{loser.instant} of [red]nightly lost to",
        f"./{GROUPS[0]}",
        "1 more",
    ):
        assert text in at_commit
    assert f"{winner.instant} of hourly" in at_commit
    assert " early, at " in early and f"{second.instant} of second lost to {first.instant} of first" in early
    assert lines[-1].startswith("2 conflicts; thrown away: 12,345 rows")
    assert main(["conflicts", storage.root, "--limit", "1"]) == 0
    last = capsys.readouterr().out
    assert loser.instant not in last and "\n1 conflict; thrown away" in last


def test_conflicts_are_given_to_programs(storage: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    loser, winner = lose_at_the_commit(storage)
    assert main(["conflicts", storage.root, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert winner.committed is not None
    assert shown["instant"] == loser.instant and shown["winner"] == winner.instant and not shown["early"]
    assert (shown["seen_slot"], shown["seen_time"]) == (winner.committed.slot, winner.committed.completion)
    assert (shown["rows_lost"], shown["bytes_lost"], shown["task_s_lost"]) == (12_345, 678, 90.0)
    assert shown["file_groups"] == [["", group] for group in GROUPS] and shown["file_group_count"] == 3


def test_a_wrong_limit_and_a_missing_table_are_told(
    storage: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conflicts", storage.root, "--limit", "0", "--json"]) == 2
    assert "--limit" in json.loads(capsys.readouterr().out)["message"]
    assert main(["conflicts", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
