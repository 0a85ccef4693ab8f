"""Secrets that `lakelatch.toml` and `-o` refer to get into no output: text, JSON, error, traceback, log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from rich.table import Table

from lakelatch.console.base.streams import People
from lakelatch.console.config.secrets import HidingFormatter, Secrets, is_reference
from lakelatch.console.main import main
from lakelatch.storage.local import LocalStorage

SECRET = "correct-horse-battery"
WRITER = "lakelatch.writer.name"


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secrets:
    """Those of a URL with a password, and of a file."""
    monkeypatch.setenv("LAKE_URL", f"redis://:{SECRET}@host:6379/0")
    (tmp_path / "token").write_text("7" * 40 + "\n")
    found = Secrets()
    assert found.look_up("env:LAKE_URL", tmp_path) == f"redis://:{SECRET}@host:6379/0"
    assert found.look_up("file:token", tmp_path) == "7" * 40
    assert found.look_up("plain", tmp_path) == "plain" and found.look_up(7, tmp_path) == 7
    return found


def test_what_is_a_reference() -> None:
    assert is_reference("env:NAME") and is_reference("file:/run/secret") and is_reference("file:secret")
    assert not is_reference("file:///data/t") and not is_reference("environment") and not is_reference("")


def test_texts_json_and_reprs(secrets: Secrets) -> None:
    assert secrets.hide(f"at redis://:{SECRET}@host:6379/0!") == "at <env:LAKE_URL>!"
    assert secrets.hide(f"the password {SECRET} alone") == "the password <env:LAKE_URL> alone"
    assert secrets.hide_all({"a": [f"x{'7' * 40}", 7, None]}) == {"a": ["x<file:token>", 7, None]}
    assert repr(secrets) == "Secrets(env:LAKE_URL, file:token)"


def test_a_secret_is_hidden_before_a_line_is_wrapped(
    secrets: Secrets, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    console = People(secrets.hide, to_errors=False)
    table = Table("of a table")
    table.add_row("7" * 40)
    console.print(table)
    console.print(f"some words before {'7' * 40}")
    said = capsys.readouterr().out
    assert "777" not in said and said.count("<file:token>") == 2


def test_log_lines_and_their_tracebacks(secrets: Secrets) -> None:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        record = logging.LogRecord("x", logging.WARNING, "", 0, "%s failed", (SECRET,), (ValueError, error, None))
    line = HidingFormatter(secrets).format(record)
    assert SECRET not in line and "<env:LAKE_URL> failed" in line and "ValueError: <env:LAKE_URL>" in line


@pytest.mark.parametrize("option", [f"{WRITER}=env:LAKE", "hoodie.write.lock.provider=env:LAKE", f"{WRITER}x=env:LAKE"])
@pytest.mark.parametrize("more", [["--debug"], ["--json"]])
def test_errors_name_the_reference(
    option: str,
    more: list[str],
    storage: LocalStorage,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKE", SECRET)
    code = main(["locks", "break", storage.root, "-o", option, *more])
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err
    if "provider" in option:
        assert code == 2 and "hoodie.write.lock.provider='<env:LAKE>' is no known lock provider" in captured.err


def test_results_name_it_too(
    storage: LocalStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock's key is printed as it was given, so it can hold whatever an option holds."""
    monkeypatch.setenv("LAKE", SECRET)
    assert main(["locks", "break", storage.root, SECRET, "-o", f"{WRITER}=env:LAKE", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["key"] == "<env:LAKE>" and SECRET not in captured.out + captured.err
