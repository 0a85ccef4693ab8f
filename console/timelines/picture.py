"""Timelines as pictures, by matplotlib: bars for instants, and which write lost to which."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lakelatch.console.timelines.text import ensure_can_draw, is_compaction, lane_of, open_end_ms
from lakelatch.console.timelines.time_axis import TimeAxis
from lakelatch.console.timelines.undone import Undone
from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import RESTORE, ROLLBACK
from lakelatch.ui.entries import Entry

COLOURS = ("#2a6fbb", "#d1742a", "#3c8f4e", "#8e5bb5", "#b5455b", "#6b6b6b")
_LOST = "#b00020"
_WIDTH_IN, _AROUND_IN, _TEXT_IN = 11.0, 1.6, 0.19
_LANE_IN, _LANES_IN, _LANE_LEAST_IN = 0.85, 6.0, 0.35  # of many lanes each is lower
_UNKNOWN_LANE = "rolled back"
_NAME_MOST, _TITLE_MOST, _STORY_MOST, _STORIES_MOST = 32, 110, 150, 12
_THINNEST = 0.003  # of the width


def draw_picture(entries: Sequence[Entry], file: Path, title: str, undone: Sequence[Undone] = ()) -> None:
    """Writes an SVG, PNG or PDF, by the file's suffix; `undone` are writes that were rolled back.

    Errors: as `ensure_can_draw` says, and `InvalidRequest` for a file that cannot be written.
    """
    ensure_can_draw(file)
    from matplotlib import pyplot

    figure = figure_of(entries, title, undone)
    try:
        figure.savefig(file, dpi=130)
    except OSError as error:
        raise InvalidRequest(f"a picture cannot be drawn as {str(file)!r}: {error.strerror or error}") from error
    finally:
        pyplot.close(figure)


def figure_of(entries: Sequence[Entry], title: str, undone: Sequence[Undone] = ()) -> Any:
    """The picture as a matplotlib figure, which the caller closes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture = _Picture(entries, undone)
    lanes_in = min(_LANE_IN * len(picture.lanes), _LANES_IN + _LANE_LEAST_IN * len(picture.lanes))
    height_in = lanes_in + _AROUND_IN + _TEXT_IN * len(picture.stories)
    figure, axes = pyplot.subplots(figsize=(_WIDTH_IN, height_in), layout="constrained")
    picture.draw(axes)
    axes.set_title("\n".join(textwrap.wrap(title, _TITLE_MOST)), fontsize="medium")
    handles = picture.legend()
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 4),
        fontsize="small",
        frameon=False,
        title="\n".join(picture.stories) or None,
        title_fontproperties={"size": "small"},
        alignment="left",
    )
    return figure


class _Picture:
    """The elements of the picture, and their places."""

    def __init__(self, entries: Sequence[Entry], undone: Sequence[Undone]) -> None:
        first = min(entry.requested for entry in entries)
        self.undone = [one for one in undone if one.instant >= first]
        shown = {one.rollback for one in self.undone}
        self.entries = [
            entry for entry in entries if entry.action not in (ROLLBACK, RESTORE) or entry.requested not in shown
        ]
        lanes = dict.fromkeys(lane for _, lane in self._placed())
        services = {lane_of(entry) for entry in self.entries if is_compaction(entry)}
        self.lanes = sorted(lanes, key=lambda lane: lane in services)
        end_ms = max(to_ms(entry.completion or entry.requested) for entry in entries)
        self._ends = {
            entry.requested: to_ms(entry.completion) if entry.completion else open_end_ms(entry, end_ms)
            for entry in self.entries
        }
        spans = [(to_ms(entry.requested), self._ends[entry.requested]) for entry in self.entries]
        self.axis = TimeAxis([*spans, *((to_ms(one.instant), to_ms(one.ended)) for one in self.undone)])
        self._thinnest = _THINNEST * self.axis.width
        self._levels: dict[str, float] = {}  # of each instant that is drawn

    @property
    def stories(self) -> list[str]:
        """Which write lost to which, by the numbers in the picture."""
        shown = [
            textwrap.shorten(f"{number}: {one.story}", _STORY_MOST, placeholder=" …")
            for number, one in enumerate(self.undone[:_STORIES_MOST], 1)
        ]
        more = len(self.undone) - len(shown)
        return [*shown, *([f"and {more} more (lakelatch timeline, lakelatch conflicts)"] if more else [])]

    def draw(self, axes: Any) -> None:
        """Everything but the title and the legend."""
        drawn = self._placed()
        for index, lane in enumerate(self.lanes):
            for turn, instant in enumerate(instant for instant, its_lane in drawn if its_lane == lane):
                self._levels[instant] = len(self.lanes) - 1 - index + (0.16 if turn % 2 else -0.16)
        for entry in self.entries:
            self._draw_entry(axes, entry)
        for number, one in enumerate(self.undone, 1):
            self._draw_undone(axes, number, one)
        for gap in self.axis.gaps:
            for edge in (gap.left, gap.right):
                axes.axvline(edge, color="#999999", linestyle=(0, (4, 3)), linewidth=0.8, zorder=4)
            middle = (gap.left + gap.right) / 2
            style: dict[str, Any] = {"ha": "center", "color": "#666666", "transform": axes.get_xaxis_transform()}
            axes.text(middle, 0.99, f"{gap.text} idle", rotation=90, fontsize="x-small", va="top", **style)
            axes.text(middle, 0, "//", clip_on=False, va="center", **style)
        axes.set_yticks(range(len(self.lanes)), [_short(lane) for lane in reversed(self.lanes)])
        axes.set_ylim(-0.6, len(self.lanes) - 0.4)
        axes.set_xlim(-0.01 * self.axis.width, 1.015 * self.axis.width)
        ticks = self.axis.ticks()
        axes.set_xticks([place for place, _ in ticks], [label for _, label in ticks])
        axes.set_xlabel(self.axis.unit)
        axes.grid(axis="x", alpha=0.3)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)

    def legend(self) -> list[Any]:
        """The legend's entries for the elements drawn."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        def mark(marker: str, colour: str, label: str) -> Any:
            return Line2D([], [], color=colour, marker=marker, linestyle="", label=label)

        found: list[Any] = [Patch(color=COLOURS[0], alpha=0.75, label="from requested to completed")]
        if any(entry.completion for entry in self.entries):
            found.append(mark("|", COLOURS[0], "completed: all readers see it"))
        if any(not entry.completion for entry in self.entries):
            found.append(Patch(color=COLOURS[0], alpha=0.3, label="not completed"))
        if any(entry.replaced for entry in self.entries):
            found.append(mark("D", COLOURS[0], "file groups replaced"))
        if any(entry.cancelled for entry in self.entries):
            found.append(mark("x", "black", "cancelled"))
        if self.undone:
            found.append(Patch(facecolor="none", edgecolor=_LOST, hatch="////", label="rolled back, by number"))
        if any(one.winner in self._levels for one in self.undone):
            found.append(Line2D([], [], color=_LOST, linestyle=":", label="to whom it lost"))
        return found

    def _placed(self) -> list[tuple[str, str]]:
        """The requested time and lane of everything drawn, in order."""
        there = [(entry.requested, lane_of(entry)) for entry in self.entries]
        return sorted([*there, *((one.instant, one.writer or _UNKNOWN_LANE) for one in self.undone)])

    def _draw_entry(self, axes: Any, entry: Entry) -> None:
        colour = COLOURS[self.lanes.index(lane_of(entry)) % len(COLOURS)]
        level, left = self._levels[entry.requested], self.axis.place(to_ms(entry.requested))
        right = self.axis.place(self._ends[entry.requested])
        faded = 0.3 if entry.completion is None else 0.75
        axes.barh(level, max(right - left, self._thinnest), left=left, height=0.28, color=colour, alpha=faded)
        if entry.completion:
            axes.plot([right, right], [level - 0.22, level + 0.22], color=colour, linewidth=2)
        if entry.replaced:
            axes.plot([right], [level], marker="D", color=colour, markersize=5)
        if entry.cancelled:
            axes.plot([right], [level], marker="x", color="black", markersize=7)

    def _draw_undone(self, axes: Any, number: int, one: Undone) -> None:
        level, left = self._levels[one.instant], self.axis.place(to_ms(one.instant))
        right = max(self.axis.place(to_ms(one.ended)), left + self._thinnest)
        look = {"facecolor": "none", "edgecolor": _LOST, "hatch": "////", "linewidth": 0.8}
        axes.barh(level, right - left, left=left, height=0.28, **look)
        if number <= _STORIES_MOST:
            axes.annotate(
                str(number),
                (right, level),
                xytext=(4, 0),
                textcoords="offset points",
                color=_LOST,
                fontsize="small",
                fontweight="bold",
                va="center",
                zorder=6,
            )
        if one.winner in self._levels:
            to = self.axis.place(self._ends[one.winner]) if one.winner in self._ends else left
            axes.plot([right, to], [level, self._levels[one.winner]], color=_LOST, linestyle=":", linewidth=1.2)


def _short(name: str) -> str:
    """The beginning and the end of a name, where names of processes differ."""
    half = (_NAME_MOST - 1) // 2
    return name if len(name) <= _NAME_MOST else f"{name[:half]}…{name[-half:]}"
