"""Timelines drawn in the terminal (rich), and what pictures of them share (`console.timelines.picture`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.instant import ABORTED
from lakelatch.ui.entries import Entry

_TERMINAL = ("blue", "dark_orange", "green", "magenta", "red", "white")
_SUFFIXES = (".svg", ".png", ".pdf")
_COMPACTION_LANE = "compactor"


def is_compaction(entry: Entry) -> bool:
    """Whether this is a compaction, a log compaction or a clustering, planned or completed."""
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
    """Checks that a picture can be drawn into this file, for callers that draw it after long work.

    Errors: those of `check_picture`, and `InvalidRequest` where matplotlib is not installed.
    """
    check_picture(file)
    try:
        import matplotlib  # noqa: F401  (an extra: only pictures need it)
    except ImportError:
        raise InvalidRequest("drawing needs matplotlib: pip install 'lakelatch[draw]'") from None


def open_end_ms(entry: Entry, end_ms: int) -> int:
    """The end of the bar of an instant that has not completed; an aborted one ends where it begins."""
    return to_ms(entry.requested) if entry.state == ABORTED else end_ms


def draw_terminal(entries: Sequence[Entry], width: int) -> Text:
    """One line for each instant, from requested to completed, so that overlap is seen."""
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
        last_ms = to_ms(entry.completion) if entry.completion else open_end_ms(entry, end_ms)
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
