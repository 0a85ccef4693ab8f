"""The demo of many small writers: real processes, small, and what it draws and counts of slots that are made up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakelatch.console.demo.crowd_picture import draw_slots, slots_figure
from lakelatch.console.demo.crowd_plan import PROCESSES_MOST, CrowdPlan
from lakelatch.console.demo.crowd_slots import Figures, Slot, SlotWatch, SmallCommit
from lakelatch.console.main import main
from lakelatch.storage.local import LocalStorage
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.instant import inflight, requested
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.log.log_reader import Tail

START_MS = 1_795_500_000_000


def crowd(slots: Sequence[Sequence[int]]) -> tuple[list[SmallCommit], list[Slot]]:
    """Commits of 300 ms by writers of these numbers, in slots that follow each other each 100 ms."""
    commits, made = [], []
    for number, writers in enumerate(slots, 1):
        ended_ms = START_MS + 100 * number
        times = [to_instant(ended_ms + turn) for turn in range(len(writers))]
        instants = [to_instant(ended_ms - 250 + turn) for turn in range(len(writers))]
        for writer, instant, time in zip(writers, instants, times, strict=True):
            commits.append(SmallCommit(f"writer {writer}", number, ended_ms - 260, 0.3, instant, time))
        made.append(Slot(number, tuple(instants), tuple(times)))
    return commits, made


@pytest.mark.timeout(180)
def test_every_row_of_small_writers_is_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakelatch.console.main", "demo", "--json", "--folder", str(tmp_path)]

    ended = subprocess.run([*command, "--writers", "4", "--seconds", "2"], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    report = json.loads(ended.stdout)
    named = {check["name"]: check["ok"] for check in report["checks"]}
    assert all(named.values()) and named["every row is there"] and named["hudi-rs reads the same rows"]
    figures = report["figures"]
    assert figures["commits"] >= 4 and 1 <= figures["slots"] <= figures["commits"] and figures["fairness"] > 0
    drawn, pixels = map(Path, report["pictures"])
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")
    assert "<!-- writer 4 -->" in drawn.read_text() and pixels.read_bytes().startswith(b"\x89PNG")


def test_a_slot_of_many_commits_is_one_line_to_all_of_them(tmp_path: Path) -> None:
    commits, slots = crowd([[1], [2, 3, 4, 5], [1, 2]])
    draw_slots(commits, slots, tmp_path / "slots.svg", "Five writers")
    text = (tmp_path / "slots.svg").read_text()
    ElementTree.fromstring(text)
    assert all(f"<!-- {word} -->" in text for word in ("Five writers", "writer 5", "4", "2", "commits in a slot"))

    figure = slots_figure(commits, slots, "Five writers")
    above, below = figure.axes
    dots = [line for line in above.lines if line.get_marker() == "o"]
    assert [len(line.get_ydata()) for line in dots] == [1, 4, 2]
    assert all(len(set(line.get_xdata())) == 1 for line in dots)
    assert sorted(bar.get_x() + bar.get_width() / 2 for bar in below.patches) == [1, 2, 4]


@pytest.mark.parametrize("count", [0, 1, 300])
def test_any_number_of_slots_can_be_drawn(count: int) -> None:
    from matplotlib import pyplot

    commits, slots = crowd([range(1, 2 + number % 32) for number in range(count)])
    figure = slots_figure(commits, slots, "Writers")
    figure.canvas.draw()
    found, (width, height) = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_size_inches()
    assert found.x0 > -0.01 and found.y0 > -0.01 and found.x1 < width + 0.01 and found.y1 < height + 0.01
    pyplot.close(figure)


def test_the_figures_of_a_run() -> None:
    commits, slots = crowd([[1], [2, 1, 3], [1], [2, 1]])
    figures = Figures.of(commits, slots, 3)
    assert (figures.commits, figures.slots, figures.per_slot_median, figures.per_slot_most) == (7, 4, 1.5, 3)
    assert figures.shared == 5
    assert figures.commits_per_s == pytest.approx(7 / 0.6) and figures.fairness == 1 / 4
    assert Figures.of(commits, slots, 4).fairness == 0  # one has made no commit
    assert Figures.of([], [], 4).commits == 0


def test_slots_are_seen_with_all_their_commits_although_they_are_removed(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    log, watch = CommitLog(storage, slots_kept=2), SlotWatch(storage)
    times = [0]

    def take_time(above: str) -> str:
        times[0] += 1
        return to_instant(START_MS + times[0])

    def event(number: int) -> Event:
        instant = to_instant(START_MS - 1000 + number)
        storage.put(requested(instant, "deltacommit").path, b"")
        storage.put(inflight(instant, "deltacommit").path, b"")
        return Event(COMPLETE, "deltacommit", instant, f"operation {number}", "writer")

    tail = Tail(0)
    for number in range(0, 30, 3):
        others = [event(number + 1), event(number + 2)] if number % 2 else []
        added = log.create(event(number), tail, take_time, lambda: 2**62, None, others)
        assert added is not None
        tail = log.tail()
        watch.look()
    assert [slot.number for slot in watch.slots()] == list(range(1, 11))
    assert [len(slot.instants) for slot in watch.slots()] == [1, 3] * 5 and watch.commits == 20
    assert log.tail().watermark > 1


def test_more_writers_share_the_processes(tmp_path: Path) -> None:
    for writers in (2, PROCESSES_MOST, 50):
        plan = CrowdPlan(str(tmp_path), writers=writers)
        shared = [writer for process in plan.workers for writer in plan.writers_of(process)]
        assert sorted(shared) == sorted(plan.names) and len(plan.workers) == min(writers, PROCESSES_MOST)
        assert CrowdPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--writers", "1"], "'--writers': 1 is not in the range x>=2"),
        (["--writers", "4", "--seconds", "0"], "'--seconds': '0' is out of range"),
        (["--writers", "4", "--services"], "leave out --services or --writers"),
        (["--writers", "4", "--commits", "3"], "leave out --commits or --writers"),
        (["--seconds", "3"], "name their number with --writers"),
    ],
)
def test_what_belongs_to_another_demo_is_refused(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--folder", str(tmp_path), *arguments]) == 2
    assert told in capsys.readouterr().err.replace("\n", " ") and not list(tmp_path.iterdir())
