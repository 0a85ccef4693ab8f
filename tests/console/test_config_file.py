"""`lakelatch.toml`: tables by name, whose options hold, and what a mistake in it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bare_table import bare_table
from live_table import LiveTable

from lakelatch.console.main import main
from lakelatch.storage.local import LocalStorage

PROVIDER = "hoodie.write.lock.provider"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a table in `data/flights`, and another one in `data/trips`."""
    for name in ("flights", "trips"):
        bare_table(LocalStorage(str(tmp_path / "data" / name)), buckets=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKELATCH_CONFIG", raising=False)
    return tmp_path


def write(folder: Path, text: str, name: str = "lakelatch.toml") -> Path:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def looked_at(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Which locks `lakelatch locks` was told to look at."""
    code = main(["locks", *words, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0, told
    return str(told["asked"])


FLIGHTS = '[tables.flights]\npath = "data/flights"\n'


def test_a_table_has_a_name_and_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        folder, f'[options]\n{PROVIDER} = "in_process"\n{FLIGHTS}[tables.flights.options]\n{PROVIDER} = "filesystem"\n'
    )
    assert looked_at(capsys, "flights").startswith("filesystem")
    assert looked_at(capsys, "./data/flights") == "inprocess", "those of all calls"
    assert looked_at(capsys, "flights", "-o", f"{PROVIDER}=in_process") == "inprocess", "the command line is first"


@pytest.mark.parametrize(
    "quoted", ['"hoodie.write.lock.provider"', "hoodie.write.lock.provider", "hoodie.'write.lock'.provider"]
)
def test_keys_may_stand_in_quotes(quoted: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, f'[options]\n{quoted} = "in_process"\n')
    assert looked_at(capsys, "data/flights") == "inprocess"


def test_the_file_may_lie_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its paths begin where it lies, and what is named comes before what is found."""
    write(folder, "[options]\nno.such.option = 1\n")
    other = str(write(folder, '[tables.t]\npath = "../data/trips"\n', "etc/other.toml"))
    assert main(["--config", other, "locks", "t"]) == 0 and main(["locks", "t", "--config", other]) == 0
    monkeypatch.setenv("LAKELATCH_CONFIG", other)
    assert main(["locks", "t"]) == 0
    assert main(["locks", "t", "--config", "gone.toml"]) == 2
    assert "--config gone.toml: there is no such file" in capsys.readouterr().err


def test_a_folder_goes_before_a_guess(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "data", '[tables.flight]\npath = "elsewhere"\n')
    monkeypatch.chdir(folder / "data")
    assert main(["locks", "flights"]) == 0


def test_services_of_several_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commits, tables = "hoodie.compact.inline.max.delta.commits", ""
    for name, many in (("rarely", 9), ("often", 1)):
        LiveTable(folder / name).write([(1, 1, "a")])
        tables += f'[tables.{name}]\npath = "{name}"\n[tables.{name}.options]\n{commits} = {many}\n'
    write(folder, tables)
    assert main(["service", "run", "--once", "--cores", "0", "rarely", "often", "--json"]) == 0
    rarely, often = json.loads(capsys.readouterr().out)
    assert (rarely["done"], often["done"]) == (0, 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tabels]\n", "line 1, tabels: this key is not known: did you mean 'tables'? Known here: options, tables"),
        ('[tables.flights]\npth = "data"\n', "line 2, tables.flights.pth: this key is not known: did you mean 'path'?"),
        ("[tables.flights]\n", "line 1, tables.flights: it needs its path"),
        ("tables = 3\n", "line 1, tables: it is a section, written [tables]"),
        ('[tables."a b"]\npath = "t"\n', "line 1, tables.a b: a table's name has letters"),
        ("[options]\n\nhoodie.write.lock.provder = 'redis'\n", "line 3, options.hoodie.write.lock.provder: the option"),
        ("[options]\nhoodie.write.lock.provder = 'redis'\n", "did you mean 'hoodie.write.lock.provider'?"),
        ("[options]\nlakelatch.writer.name = 2026-11-26\n", "line 2, options.lakelatch.writer.name: use a text"),
        (
            FLIGHTS,
            "'fligts' is neither a folder here nor a table of lakelatch.toml: did you mean 'flights'? It has: flights",
        ),
        ("[options\n", "lakelatch.toml is no TOML"),
        (
            "[options]\nlakelatch.writer.name = 'env:NOBODY_SET_IT'\n",
            "line 2, options.lakelatch.writer.name: 'env:NOBODY_SET_IT'",
        ),
        ("[options]\nlakelatch.writer.name = 'file:no/such'\n", "the file no/such cannot be read: No such file"),
    ],
)
def test_a_mistake_is_told_with_its_place(
    text: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, text)
    assert main(["locks", "fligts" if "fligts" in told else "data/flights", "--json"]) == 2
    captured = capsys.readouterr()
    assert told in json.loads(captured.out)["message"] and told in captured.err and captured.err.count("\n") == 1
