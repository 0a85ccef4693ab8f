"""`lakelatch cancel`, and what `lakelatch timeline` says of plans that were called off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_table import LiveTable

import lakelatch
from lakelatch.console.main import main
from lakelatch.errors import InvalidRequest

CANCELLABLE = {"lakelatch.service.cancellable": "true"}


@pytest.fixture
def live(tmp_path: Path) -> LiveTable:
    live = LiveTable(tmp_path / "t")
    live.write([(number, 1, "a") for number in range(10)])
    return live


def plan(live: LiveTable, options: dict[str, str] = CANCELLABLE) -> str:
    found = lakelatch.schedule_compaction(str(live.root), options)
    assert found is not None
    return found


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_plan_is_called_off_shown_and_ended(
    monkeypatch: pytest.MonkeyPatch, live: LiveTable, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    path, instant = str(live.root), plan(live)
    assert run(capsys, "cancel", "list", path)[1] == "no cancellation is open\n"
    code, out, _ = run(capsys, "cancel", "request", path, instant)
    assert code == 0 and out == f"compaction {instant} will never commit: end it with lakelatch cancel execute\n"
    assert instant in run(capsys, "cancel", "list", path)[1]
    assert "requested, cancelled" in run(capsys, "timeline", path)[1]
    code, out, _ = run(capsys, "cancel", "execute", path, instant)
    assert code == 0 and out == f"{instant} has been aborted, and its files are gone\n"
    assert "aborted before" in run(capsys, "cancel", "execute", path, instant)[1]
    assert "aborted before" in run(capsys, "cancel", "request", path, instant)[1]
    assert run(capsys, "cancel", "list", path)[1] == "no cancellation is open\n"
    shown = run(capsys, "timeline", path)[1]
    assert "aborted" in shown and "✗" in shown
    assert len(live.agreed()) == 10


def test_for_programs(live: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    path, instant = str(live.root), plan(live)
    asked = {"instant": instant, "action": "compaction", "file_groups": None}
    assert json.loads(run(capsys, "cancel", "request", path, instant, "--json")[1]) == {**asked, "state": "requested"}
    assert json.loads(run(capsys, "cancel", "list", path, "--json")[1]) == [asked]
    ended = json.loads(run(capsys, "cancel", "execute", path, instant, "--json")[1])
    assert ended == {"instant": instant, "state": "aborted", "now": True}
    assert json.loads(run(capsys, "cancel", "list", path, "--json")[1]) == []
    (entry,) = [one for one in json.loads(run(capsys, "timeline", path, "--json")[1]) if one["requested"] == instant]
    assert (entry["state"], entry["cancelled"], entry["file_groups"]) == ("aborted", "whole", 2)


def test_bad_input(live: LiveTable, capsys: pytest.CaptureFixture[str]) -> None:
    path, instant = str(live.root), plan(live, {})
    for words, said in [
        (["request", path, instant], "is immutable"),
        (["request", path, "20200101000000000"], "there is no instant '20200101000000000'"),
        (["request", path, instant, "--file-group", "x"], "write PARTITION/FILE_ID"),
        (["execute", path, instant], "there is no request to cancel compaction"),
        (["request", str(live.root / "none"), instant], "there is no table"),
    ]:
        code, _, complaint = run(capsys, "cancel", *words)
        assert code == (2 if "--file-group" in words else 1) and said in complaint, words
    with pytest.raises(InvalidRequest, match="is no threshold"):
        lakelatch.request_cancel(path, instant, {"lakelatch.service.cancellation.policy": "soon"})


def test_pictures_show_what_was_cancelled(live: LiveTable, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, instant = str(live.root), plan(live)
    lakelatch.request_cancel(path, instant)
    lakelatch.execute_cancel(path, instant)
    live.drop("p")
    code, out, _ = run(capsys, "timeline", path, "--draw", str(tmp_path / "t.svg"))
    assert code == 0 and "◆2" in out
    assert (tmp_path / "t.svg").stat().st_size > 1000
