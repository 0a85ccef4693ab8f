"""Pictures of timelines: what they show, that nothing is cut off, and that idle times do not fill them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bare_table import add_log, manager_of

from lakelatch.console.main import main
from lakelatch.console.timelines.entries import timeline_entries
from lakelatch.console.timelines.picture import draw_picture, figure_of
from lakelatch.console.timelines.text import lane_of
from lakelatch.console.timelines.time_axis import TimeAxis
from lakelatch.console.timelines.undone import Undone, undone_writes
from lakelatch.errors import WriteConflict
from lakelatch.storage.local import LocalStorage
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.transactions.transaction import Transaction
from lakelatch.ui.entries import Entry

START_MS, DAY_MS = 1_795_500_000_000, 86_400_000
LONG = "ingest-worker-7f9c8d6b5d-x2x9k.prod.svc.cluster.local"
FILE_ID = "00000000-0000-0000-0000-000000000000-0"


def at(ms: int) -> str:
    return to_instant(START_MS + ms)


def entry(writer: str, begun_ms: int, completed_ms: int | None, **more: Any) -> Entry:
    completion = None if completed_ms is None else at(completed_ms)
    state = "inflight" if completion is None else "completed"
    return Entry(at(begun_ms), completion, "deltacommit", state, operation="upsert", writer=writer, **more)


def lost(writer: str, begun_ms: int, ended_ms: int, winner_ms: int | None, other: str) -> Undone:
    if winner_ms is None:
        return Undone(at(begun_ms), at(ended_ms), at(ended_ms), writer, other)
    return Undone(at(begun_ms), at(ended_ms), at(ended_ms), writer, writer, at(winner_ms), other)


CASES: dict[str, tuple[list[Entry], list[Undone]]] = {
    "one instant": ([entry("a", 0, 7)], []),
    "nothing completed": ([entry("a", 0, None)], []),
    "long names": (
        [entry(f"{LONG}:{number}", 100 * number, 100 * number + 500) for number in range(5)],
        [lost(f"{LONG}:9", 50, 600, 0, f"{LONG}:0")],
    ),
    "a day between": (
        [entry("a", 0, 4000), entry("b", 1000, 5000, replaced=2), entry("a", DAY_MS, DAY_MS + 3000, cancelled="whole")],
        [lost("c", 2000, 5500, 1000, "b"), lost("", DAY_MS, DAY_MS + 2000, None, "a")],
    ),
    "many": (
        [entry(f"host-{number % 25}", 900 * number, 900 * number + 2500) for number in range(150)],
        [lost(f"host-{number}", 2000 * number + 100, 2000 * number + 3000, None, "x") for number in range(30)],
    ),
}


@pytest.fixture(params=list(CASES), scope="module")
def figure(request: pytest.FixtureRequest) -> Iterator[Any]:
    from matplotlib import pyplot

    entries, undone = CASES[request.param]
    made = figure_of(entries, f"Timeline of s3://bucket/{'a/long/path/' * 15}table", undone)
    made.canvas.draw()
    yield made
    pyplot.close(made)


def test_nothing_is_cut_off(figure: Any) -> None:
    found = figure.get_tightbbox(figure.canvas.get_renderer())
    width, height = figure.get_size_inches()
    assert found.x0 > -0.01 and found.y0 > -0.01 and found.x1 < width + 0.01 and found.y1 < height + 0.01
    (axes,) = figure.axes
    assert axes.get_window_extent().width > figure.bbox.width / 2  # and there is space for bars


def test_no_two_labels_of_the_axis_are_written_over_each_other(figure: Any) -> None:
    (axes,) = figure.axes
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_an_idle_day_is_a_break_in_the_axis() -> None:
    axis = TimeAxis([(0, 5500), (DAY_MS, DAY_MS + 3000)])
    (gap,) = axis.gaps
    assert axis.width < 10_000 and gap.text == "24 h" and gap.right - gap.left < 0.1 * axis.width
    assert axis.place(5500) == gap.left and axis.place(DAY_MS) == gap.right
    assert axis.place(DAY_MS + 1000) == gap.right + 1000 and axis.place(1000) == 1000
    labels = [label for _, label in axis.ticks()]
    assert labels[0] == "00:00:00\n1970-01-01" and "00:00:00\n1970-01-02" in labels


@pytest.mark.parametrize("pause_ms", [60_000, 500, 10])
def test_idle_times_never_fill_more_than_half(pause_ms: int) -> None:
    spans = [((100 + pause_ms) * number, (100 + pause_ms) * number + 100) for number in range(60)]
    axis = TimeAxis(spans)
    places = [axis.place(time_ms) for span in spans for time_ms in span]
    assert places == sorted(places) and axis.width <= 2.01 * 60 * 100
    assert bool(axis.gaps) == (pause_ms > 100)


def test_short_pauses_stay_as_long_as_they_are() -> None:
    axis = TimeAxis([(0, 5200), (8000, 9000), (3000, 4000)])
    assert axis.gaps == [] and axis.width == 9000 and axis.unit.startswith("seconds")


def written(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_picture_says_who_lost_to_whom(tmp_path: Path) -> None:
    entries, undone = CASES["a day between"]
    rollback = Entry(at(5500), at(5501), "rollback", "completed")
    draw_picture([*entries, rollback], tmp_path / "t.svg", "Timeline", undone)
    text = written(tmp_path / "t.svg")  # matplotlib writes each text into a comment, beside its outlines
    assert f"1: c ({at(2000)}) lost to b ({at(1000)})" in text
    assert f"2: a writer ({at(DAY_MS)}) was rolled back by a" in text
    assert "24 h idle" in text and "<!-- rolled back -->" in text
    assert "<!-- rollback -->" not in text  # it has no lane: what it has undone is drawn


def test_of_many_that_lost_the_first_are_told(tmp_path: Path) -> None:
    entries, undone = CASES["many"]
    draw_picture(entries, tmp_path / "t.svg", "Timeline", undone)
    assert "12: host-11" in written(tmp_path / "t.svg") and "and 18 more" in written(tmp_path / "t.svg")


def begun(storage: LocalStorage, writer: str) -> tuple[Transaction, CommitMetadata]:
    """A write of the one file group."""
    transaction = manager_of(storage, writer=writer).begin()
    stat = add_log(transaction, FILE_ID, rows=7)
    return transaction, CommitMetadata((stat,), "UPSERT", {"schema": "{}", WRITER_KEY: writer})


def test_writes_that_lost_are_found_with_their_winners(storage: LocalStorage, tmp_path: Path) -> None:
    (winner, first), (loser, second), (gave_up, _) = (begun(storage, name) for name in ("winner", "loser", "gave up"))
    winner.commit(first)
    with pytest.raises(WriteConflict):
        loser.commit(second)
    gave_up.abort()
    found = undone_writes(storage)
    assert [(one.instant, one.writer, one.by, one.winner, one.winner_writer) for one in found] == [
        (loser.instant, "loser", "loser", winner.instant, "winner"),
        (gave_up.instant, "", "gave up", "", ""),
    ]
    rollbacks = [one.requested for one in timeline_entries(storage) if lane_of(one) == "rollback"]
    assert [one.rollback for one in found] == rollbacks
    assert main(["timeline", storage.root, "--draw", str(tmp_path / "t.svg")]) == 0
    text = written(tmp_path / "t.svg")
    assert f"1: loser ({loser.instant}) lost to winner ({winner.instant})" in text
    assert f"2: a writer ({gave_up.instant}) was rolled back by gave up" in text


def test_a_table_in_which_nothing_was_undone(storage: LocalStorage) -> None:
    transaction, metadata = begun(storage, "a")
    transaction.commit(metadata)
    assert undone_writes(storage) == []
