"""The report says what happened, to people: whole, alone in one file, and safe whatever an error text holds."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import round_damages as do
from told_run import tell_round, tell_run

from lakelatch.errors import InvalidRequest
from lakelatch.torture.check.checker import check_round
from lakelatch.torture.report.report import write_report

EMPTY_TAGS = {"meta"}


class Page(HTMLParser):
    """What a page holds; `wrong` says which tags do not match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.wrong: list[str] = []
        self._open: list[str] = []
        self.feed(self.source)
        self.close()
        self.wrong += self._open

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in EMPTY_TAGS:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(data)


def report_on(run: Path) -> Page:
    out = run / "report.html"
    write_report(run, out)
    page = Page(out)
    assert page.wrong == []
    return page


def test_a_sound_run_says_so(copied: Callable[[], Path]) -> None:
    folder = copied()
    check_round(folder)
    page = report_on(folder.parent.parent)
    assert (
        "Nothing lost, nothing doubled." in page.text
        and "1 round checked; hudi-rs read the same rows in 1" in page.text
    )
    for said in (
        "9 acknowledged commits",
        "2 unknown, 1 of them committed",
        "1 conflicts",
        "2 faults",
        "commit.after_slot",
    ):
        assert said in page.text
    assert page.tags["svg"] == 1 and "lock server" in page.text and "transfer-1" in page.text
    assert "append-1.1.0003: never answered" in page.text and "paused, transfer-1" in page.text
    assert "append-1.2 begins" in page.text and "all faults have ended" in page.text


def test_problems_come_first_and_lead_to_their_rounds(copied: Callable[[], Path]) -> None:
    folder = copied()
    do.edit_last("transfer-1.1", "return", instant=do.LATE)(folder)
    check_round(folder)
    page = report_on(folder.parent.parent)
    assert "1 problem in 1 round." in page.text and "this commit is lost" in page.text
    assert page.text.index("this commit is lost") < page.text.index("acknowledged commits")
    assert page.links == [f"#{folder.name}"] and folder.name in page.ids
    assert "Nothing lost" not in page.text


def test_nothing_in_a_text_becomes_part_of_the_page(copied: Callable[[], Path]) -> None:
    folder = copied()
    evil = "<script>alert('x')</script>\"><b onclick=x>&amp;\x00"
    do.edit_round(provider=evil, problems=[evil])(folder)
    for process, event, name in (("transfer-1.1", "return", "error"), ("nemesis", "fault", "detail")):
        do.edit_last(process, event, **{name: evil})(folder)
    do.edit_last("nemesis", "fault", fault=evil)(folder)
    do.edit_last("append-1.1", "hit", failpoint=evil, action=evil)(folder)
    check_round(folder)
    page = report_on(folder.parent.parent)
    assert "<script" not in page.source and "<b onclick" not in page.source
    assert page.tags["script"] == 0 and "<script>alert('x')</script>" in page.text


def test_a_page_needs_nothing_else(copied: Callable[[], Path]) -> None:
    folder = copied()
    check_round(folder)
    page = report_on(folder.parent.parent)
    assert not re.search(r"https?:|//|@import|url\(", page.source)
    assert "prefers-color-scheme: dark" in page.source and page.tags["link"] == page.tags["img"] == 0


def test_a_long_run_stays_small_and_shows_what_was_worst(tmp_path: Path) -> None:
    tell_run(tmp_path)
    for number in range(1, 23):
        calls = 5000 if number <= 3 else 70
        tell_round(
            tmp_path, number, "redis" if number % 2 else "zookeeper", calls, ["it broke"] if number == 22 else None
        )
    page = report_on(tmp_path)
    assert page.tags["svg"] == 20 and len(page.source) < 4_000_000
    assert page.ids[0] == "0022-zookeeper" and "the 20 of 22" in page.text and "All 22 rounds" in page.text
    assert f"{3 * 3500 + 19 * 49:,} acknowledged commits" in page.text
    assert "calls committed; the first: " in page.text
    assert 600 < len(re.findall(r'<rect class="committed"', page.source)) < 20 * 1200


def test_nothing_rare_disappears_among_many_calls(tmp_path: Path) -> None:
    tell_run(tmp_path)
    folder = tell_round(tmp_path, 1, "redis", 5000)
    path = folder / "history/transfer-1.1.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["event"] == "return":
            line["outcome"] = "unknown" if line["work"] == "transfer-1.1.0123" else "committed"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "transfer-1.1.0123 unknown" in report_on(tmp_path).text


def test_a_run_that_has_only_begun_and_none_at_all(tmp_path: Path) -> None:
    tell_run(tmp_path / "begun")
    assert "No round has ended yet." in report_on(tmp_path / "begun").text
    with pytest.raises(InvalidRequest, match="holds no run to report on"):
        write_report(tmp_path / "none", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_without_jinja2_a_report_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    tell_run(tmp_path)
    with pytest.raises(InvalidRequest, match=r"pip install 'lakelatch\[torture\]'"):
        write_report(tmp_path, tmp_path / "report.html")
