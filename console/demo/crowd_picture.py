"""The picture of many small writers: a lane for each, and the slots of the log with the commits that they hold."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from lakelatch.console.demo.crowd_slots import Slot, SmallCommit
from lakelatch.console.timelines.picture import COLOURS
from lakelatch.console.timelines.text import ensure_can_draw

_SLOTS_DRAWN = 16  # more could not be told apart
_WIDTH_IN, _AROUND_IN, _COUNTS_IN = 11.0, 1.9, 1.9
_LANES_LEAST_IN, _LANE_IN = 1.5, 0.18
_APART = 0.025  # of the width: numbers that are nearer are written above each other
_GREY, _ELSEWHERE = "#6b6b6b", "#e6e6e6"


def draw_slots(commits: Sequence[SmallCommit], slots: Sequence[Slot], file: Path, title: str) -> None:
    """Writes an SVG, PNG or PDF, by the file's suffix. Errors: as `ensure_can_draw` says."""
    ensure_can_draw(file)
    from matplotlib import pyplot

    figure = slots_figure(commits, slots, title)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def slots_figure(commits: Sequence[SmallCommit], slots: Sequence[Slot], title: str) -> Any:
    """The picture as a matplotlib figure, which the caller closes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lanes = list(dict.fromkeys(commit.writer for commit in commits))
    lanes_in = max(_LANE_IN * len(lanes), _LANES_LEAST_IN)
    figure, (above, below) = pyplot.subplots(
        2,
        figsize=(_WIDTH_IN, lanes_in + _COUNTS_IN + _AROUND_IN),
        height_ratios=(lanes_in + _AROUND_IN / 2, _COUNTS_IN),
        layout="constrained",
    )
    _draw_lanes(above, {lane: len(lanes) - 1 - place for place, lane in enumerate(lanes)}, commits, slots)
    above.set_title(title, fontsize="medium")
    _draw_sizes(below, slots)
    for axes in (above, below):
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    return figure


def _draw_lanes(axes: Any, levels: Mapping[str, int], commits: Sequence[SmallCommit], slots: Sequence[Slot]) -> None:
    """The slots around the middle one of all commits, and everything that writers did meanwhile."""
    first_ms = min((commit.begun_ms for commit in commits), default=0)
    held = _held(commits, slots)
    begin, end = _middle([len(found) for _, found in held])
    times = [(slot.time_ms - first_ms) / 1000 for slot, _ in held]
    last_s = max((commit.ended_ms - first_ms for commit in commits), default=1000) / 1000
    left = times[begin - 1] if begin else 0.0
    right = times[end] if end < len(times) else last_s
    colours = _colours([len(found) for _, found in held[begin:end]])
    turns = {commit.instant: turn for turn, (_, found) in enumerate(held[begin:end]) for commit in found}
    for commit in commits:
        begun, ended = (commit.begun_ms - first_ms) / 1000, (commit.ended_ms - first_ms) / 1000
        if begun < right and ended > left:
            turn = turns.get(commit.instant)
            look = {"color": _ELSEWHERE} if turn is None else {"color": colours[turn], "alpha": 0.4}
            axes.barh(
                levels[commit.writer], ended - begun, left=begun, height=0.62, zorder=2, edgecolor="white", **look
            )
    top, apart = len(levels) - 0.2, _APART * (right - left)
    before, raised = left - 2 * apart, False
    for turn, ((_, found), here) in enumerate(zip(held[begin:end], times[begin:end], strict=True)):
        raised = here - before < apart and not raised
        before = here
        at, colour = [levels[commit.writer] for commit in found], colours[turn]
        axes.plot([here, here], [min(at), top], color=colour, linewidth=1.4, zorder=3)
        axes.plot([here] * len(at), at, marker="o", markersize=3.5, color=colour, linestyle="", zorder=4)
        axes.plot(here, at[0], marker="D", markersize=5, color=colour, markeredgecolor="black", zorder=5)
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "color": colour, "fontweight": "bold"}
        axes.text(here, top + (0.05 + 0.035 * len(levels) if raised else 0.05), str(len(at)), **style)
    axes.set_yticks(list(levels.values()), list(levels), fontsize="x-small")
    axes.set_ylim(-0.6, top + 0.8 + 0.07 * len(levels))
    axes.set_xlim(left, max(right, left + 0.001))
    axes.set_xlabel(f"seconds since the writers began ({end - begin} of {len(held):,} slots, around the middle commit)")
    axes.grid(axis="x", alpha=0.3)


def _held(commits: Sequence[SmallCommit], slots: Sequence[Slot]) -> list[tuple[Slot, list[SmallCommit]]]:
    """The slots that hold some of these commits, and those."""
    of = {commit.instant: commit for commit in commits}
    held = [(slot, [of[instant] for instant in slot.instants if instant in of]) for slot in slots]
    return [(slot, found) for slot, found in held if found]


def _middle(sizes: Sequence[int]) -> tuple[int, int]:
    """From which slot to which one is drawn: the one that holds the middle one of all commits, and its neighbours."""
    before = list(accumulate(sizes))
    middle = bisect_left(before, sum(sizes) / 2)
    begin = max(min(middle - _SLOTS_DRAWN // 2, len(sizes) - _SLOTS_DRAWN), 0)
    return begin, min(begin + _SLOTS_DRAWN, len(sizes))


def _colours(sizes: Sequence[int]) -> list[str]:
    """A colour for each slot; the largest ones have different ones."""
    found, colours = [""] * len(sizes), COLOURS[:-1]  # the last one is grey
    for rank, turn in enumerate(sorted(range(len(sizes)), key=lambda turn: -sizes[turn])):
        found[turn] = colours[rank % len(colours)]
    return found


def _draw_sizes(axes: Any, slots: Sequence[Slot]) -> None:
    """How many slots hold how many commits, in the whole run."""
    sizes = Counter(len(slot.instants) for slot in slots)
    bars = axes.bar(list(sizes), list(sizes.values()), width=0.8, color=COLOURS[0], alpha=0.75)
    axes.bar_label(bars, fontsize="small", color=_GREY)
    most = max(sizes, default=1)
    axes.set_xticks(range(1, most + 1, max(most // 20, 1)))
    axes.set_xlabel("commits in a slot")
    axes.set_ylabel("slots, whole run")
    axes.margins(y=0.2)


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(color=COLOURS[0], alpha=0.4, label="a commit, from its beginning to its answer"),
        Patch(color=_ELSEWHERE, label="a commit in an earlier or later slot"),
        Line2D([], [], color=_GREY, marker="o", markersize=4, label="a slot and the commits that it holds"),
        Line2D([], [], color=_GREY, marker="D", markeredgecolor="black", linestyle="", label="its writer put the slot"),
    ]
