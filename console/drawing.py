"""Timelines drawn: as a picture (matplotlib), and in the terminal (rich)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from lakelatch.console.entries import Entry
from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.timeline import ABORTED

_COLOURS = ("#2a6fbb", "#d1742a", "#3c8f4e", "#8e5bb5", "#b5455b", "#6b6b6b")
_TERMINAL = ("blue", "dark_orange", "green", "magenta", "red", "white")
_SUFFIXES = (".svg", ".png", ".pdf")
_COMPACTION_LANE = "compactor"
_PLAN_NOTE = (
    "bars: from requested to completed; ticks: the completion, when all readers see it; "
    "diamonds: replaced file groups; crosses: cancelled"
)


def is_compaction(entry: Entry) -> bool:
    """Whether this is a compaction, a log compaction or a clustering, planned or carried out."""
    planned = entry.action in ("compaction", "logcompaction", "clustering")
    return planned or entry.operation in ("compact", "log_compact", "cluster")


def lane_of(entry: Entry) -> str:
    """The row of the drawing that an entry belongs to."""
    if is_compaction(entry):
        return entry.writer or _COMPACTION_LANE
    return entry.writer or entry.action


def lanes_of(entries: Sequence[Entry]) -> list[str]:
    """Lanes in order of first appearance, those of table services last."""
    lanes = list(dict.fromkeys(lane_of(entry) for entry in entries))
    services = {lane_of(entry) for entry in entries if is_compaction(entry)}
    return sorted(lanes, key=lambda lane: lane in services)


def check_picture(file: Path) -> None:
    """`InvalidRequest` for a suffix that is no picture's, and for a folder that is not there."""
    if file.suffix.lower() not in _SUFFIXES:
        raise InvalidRequest(
            f"a picture cannot be drawn as {str(file)!r}: let its name end in {' or '.join(_SUFFIXES)}"
        )
    if not file.absolute().parent.is_dir():
        raise InvalidRequest(f"a picture cannot be drawn as {str(file)!r}: there is no folder {str(file.parent)!r}")


def ensure_can_draw(file: Path) -> None:
    """Whether a picture can be drawn into this file, for those who will work for long before they draw it.

    Errors: those of `check_picture`, and `InvalidRequest` where matplotlib is not installed.
    """
    check_picture(file)
    try:
        import matplotlib  # noqa: F401  (an extra: nobody but a picture needs it)
    except ImportError:
        raise InvalidRequest("drawing needs matplotlib: pip install 'lakelatch[draw]'") from None


def draw_picture(entries: Sequence[Entry], file: Path, title: str) -> None:
    """Writes an SVG, PNG or PDF, by the file's suffix. Errors: as `ensure_can_draw` says."""
    ensure_can_draw(file)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lanes = lanes_of(entries)
    start_ms = min(to_ms(entry.requested) for entry in entries)
    end_ms = max(to_ms(entry.completion or entry.requested) for entry in entries)
    figure, axes = pyplot.subplots(figsize=(11, 1.2 + 0.85 * len(lanes)), layout="constrained")
    for index, lane in enumerate(lanes):
        colour = _COLOURS[index % len(_COLOURS)]
        own = [entry for entry in entries if lane_of(entry) == lane]
        for turn, entry in enumerate(own):
            left_s = (to_ms(entry.requested) - start_ms) / 1000
            last_ms = to_ms(entry.completion) if entry.completion else _open_end_ms(entry, end_ms)
            right_s = (last_ms - start_ms) / 1000
            level = len(lanes) - 1 - index + (0.16 if turn % 2 else -0.16)
            faded = 0.35 if entry.completion is None else 0.75
            axes.barh(level, max(right_s - left_s, 0.02), left=left_s, height=0.28, color=colour, alpha=faded)
            if entry.completion:
                axes.plot([right_s, right_s], [level - 0.22, level + 0.22], color=colour, linewidth=2)
            if entry.replaced:
                axes.plot([right_s], [level], marker="D", color=colour, markersize=5)
            if entry.cancelled:
                axes.plot([right_s], [level], marker="x", color="black", markersize=7)
    axes.set_yticks(range(len(lanes)), list(reversed(lanes)))
    axes.set_xlabel(f"seconds since the first instant ({_PLAN_NOTE})")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def _open_end_ms(entry: Entry, end_ms: int) -> int:
    """Where the bar of an instant ends that has not completed: nobody knows when one was aborted."""
    return to_ms(entry.requested) if entry.state == ABORTED else end_ms


def draw_terminal(entries: Sequence[Entry], width: int) -> Text:
    """One line for each instant: a bar from requested to completed, so that overlap is seen."""
    drawn = Text()
    if not entries:
        return drawn
    lanes = lanes_of(entries)
    label = max(len(lane) for lane in lanes) + 1
    columns = max(width - label - 14, 20)
    start_ms = min(to_ms(entry.requested) for entry in entries)
    end_ms = max(to_ms(entry.completion or entry.requested) for entry in entries) + 1
    for entry in entries:
        lane = lane_of(entry)
        left = (to_ms(entry.requested) - start_ms) * columns // (end_ms - start_ms)
        last_ms = to_ms(entry.completion) if entry.completion else _open_end_ms(entry, end_ms)
        right = max((last_ms - start_ms) * columns // (end_ms - start_ms), left + 1)
        style = _TERMINAL[lanes.index(lane) % len(_TERMINAL)]
        bar = "━" * (right - left) if entry.completion else "╌" * (right - left)
        drawn.append(f"{lane:<{label}}", style=style)
        drawn.append(" " * left)
        drawn.append(bar + ("┃" if entry.completion else "✗" if entry.cancelled else "…"), style=style)
        seconds = f"{entry.duration_ms / 1000:.1f} s" if entry.duration_ms is not None else entry.shown_state
        if entry.replaced:
            seconds += f" ◆{entry.replaced}"  # file groups that it replaced
        drawn.append(" " * (columns - right) + f" {seconds}\n", style="dim")
    return drawn
