"""The figure of wasted work: a bar for each way to control conflicts, drawn for light and dark pages alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TEXT = "#7d8590"  # between black and white, so that it can be read on both
_BEFORE, _AFTER = "#8fa8c8", "#d1742a"


@dataclass(frozen=True)
class Bar:
    """Task seconds that the loser of a conflict spent: until the winner's marker was there, and after it."""

    label: str
    before_s: float
    after_s: float
    note: str


def draw(file: Path, bars: Sequence[Bar]) -> None:
    """Writes an SVG; the same bars give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {
        "svg.hashsalt": "lakelatch",  # ids are random numbers otherwise
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": _TEXT,
        "axes.labelcolor": _TEXT,
        "axes.edgecolor": _TEXT,
        "xtick.color": _TEXT,
        "ytick.color": _TEXT,
        "savefig.transparent": True,
    }
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.42 * len(bars)), layout="constrained")
        places = range(len(bars) - 1, -1, -1)
        before = [bar.before_s for bar in bars]
        after = [bar.after_s for bar in bars]
        axes.barh(places, before, height=0.6, color=_BEFORE, label="before the winner's marker")
        axes.barh(places, after, height=0.6, left=before, color=_AFTER, label="after it")
        widest = max((bar.before_s + bar.after_s for bar in bars), default=1.0) or 1.0
        for place, bar in zip(places, bars, strict=True):
            total_s = bar.before_s + bar.after_s
            text = f"{total_s:.1f} s, {bar.note}" if total_s else bar.note
            axes.text(total_s + 0.01 * widest, place, text, va="center", fontsize=9)
        axes.set_yticks(list(places), [bar.label for bar in bars])
        axes.set_xlim(0, 1.45 * widest)
        axes.set_xlabel("task seconds that the losing job has worked for nothing")
        axes.legend(loc="lower right", frameon=False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.savefig(file, format="svg", metadata={"Date": None})
        pyplot.close(figure)
