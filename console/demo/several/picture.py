"""The picture of transactions over several tables: a lane for each table, and the sums that were read meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lakelatch.console.demo.several.plan import SeveralPlan
from lakelatch.console.demo.several.told import Death, Move, Told
from lakelatch.console.timelines.picture import COLOURS
from lakelatch.console.timelines.text import ensure_can_draw
from lakelatch.timegen.instant_time import to_ms

_SIZE_IN = (11.0, 4.6)
_AROUND_S = 2.0  # before the first death, and after others went on
_DRAWN_MOST_S = 12.0
_RIGHT, _WRONG, _GREY = "#3c8f4e", "#c0392b", "#6b6b6b"


def draw_tables(plan: SeveralPlan, told: Told, file: Path) -> None:
    """Writes an SVG, PNG or PDF, by the file's suffix. Errors: as `ensure_can_draw` says."""
    ensure_can_draw(file)
    from matplotlib import pyplot

    figure = tables_figure(plan, told)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def tables_figure(plan: SeveralPlan, told: Told) -> Any:
    """The picture as a matplotlib figure, which the caller closes: some seconds around the first death."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, figsize=_SIZE_IN, height_ratios=(len(plan.paths), 1.2), sharex=True, layout="constrained"
    )
    begin_ms, end_ms = _drawn(told)
    lanes = {name: len(plan.paths) - 1 - number for number, name in enumerate(plan.paths)}
    for move in told.committed:
        if move.ended_ms > begin_ms and move.begun_ms < end_ms:
            colour = COLOURS[plan.names.index(move.writer) % (len(COLOURS) - 1)]
            _draw_move(above, lanes, move, colour, begin_ms)
    for death in told.deaths:
        if begin_ms <= death.at_ms <= end_ms:
            _draw_death(above, lanes, death, told, begin_ms)
    above.set_yticks(list(lanes.values()), list(lanes), fontsize="small")
    above.set_ylim(-0.6, len(lanes) - 0.1)
    above.set_title(f"{plan.writers} writers, {plan.tables} tables, one transaction each time", fontsize="medium")
    for level, sums in ((1, told.cuts), (0, told.one_by_one)):
        _draw_sums(below, level, sums, begin_ms, end_ms)
    below.set_yticks([1, 0], ["cuts", "one by one"], fontsize="small")
    below.set_ylim(-0.6, 1.6)
    below.set_xlim(0, (end_ms - begin_ms) / 1000)
    below.set_xlabel("seconds (around the first death)")
    for axes in (above, below):
        axes.grid(axis="x", alpha=0.3)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=6, fontsize="small", frameon=False)
    return figure


def _drawn(told: Told) -> tuple[int, int]:
    """From when to when."""
    first_ms = min((move.begun_ms for move in told.moves), default=0)
    death = min(told.deaths, key=lambda death: death.at_ms, default=None)
    at_ms = death.at_ms if death is not None else first_ms
    waited_s = (told.waited_s(death) if death is not None else None) or 0.0
    begin_ms = max(first_ms, at_ms - round(_AROUND_S * 1000))
    return begin_ms, begin_ms + round(min(2 * _AROUND_S + waited_s, _DRAWN_MOST_S) * 1000)


def _draw_move(axes: Any, lanes: dict[str, int], move: Move, colour: str, begin_ms: int) -> None:
    """In each lane from the table's completion time to the answer, and a line where all of them were decided."""
    shown = (move.ended_ms - begin_ms) / 1000
    for name, level in lanes.items():
        prepared = (to_ms(move.times[name]) - begin_ms) / 1000
        axes.barh(level, shown - prepared, left=prepared, height=0.5, color=colour, alpha=0.45, zorder=2)
        axes.plot(prepared, level, marker="o", markersize=3.5, color=colour, zorder=4)
    decided = (move.decided_ms - begin_ms) / 1000
    axes.plot([decided, decided], [-0.25, len(lanes) - 0.75], color=colour, linewidth=1.6, zorder=3)


def _draw_death(axes: Any, lanes: dict[str, int], death: Death, told: Told, begin_ms: int) -> None:
    """When it was, and what others waited for meanwhile."""
    here = (death.at_ms - begin_ms) / 1000
    axes.plot([here, here], [-0.4, len(lanes) - 0.6], color="black", linewidth=1.2, linestyle=":", zorder=5)
    axes.text(here, len(lanes) - 0.55, f"† {death.writer}", ha="center", va="bottom", fontsize="small")
    waited = told.waited_s(death)
    if waited is not None:
        look = {"color": "none", "edgecolor": _GREY, "hatch": "///", "alpha": 0.5}
        axes.barh(list(lanes.values()), waited, left=here, height=0.3, zorder=1, **look)


def _draw_sums(axes: Any, level: int, sums: Sequence[tuple[int, bool]], begin_ms: int, end_ms: int) -> None:
    for same, marker, colour in ((True, "o", _RIGHT), (False, "x", _WRONG)):
        times = [(at_ms - begin_ms) / 1000 for at_ms, found in sums if found is same and begin_ms <= at_ms <= end_ms]
        axes.plot(times, [level] * len(times), marker=marker, color=colour, linestyle="", markersize=6, zorder=3)


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Line2D([], [], color=_GREY, marker="o", markersize=4, linestyle="", label="prepared in this table"),
        Line2D([], [], color=_GREY, linewidth=1.6, label="decided for all tables"),
        Line2D([], [], color="black", linestyle=":", label="a writer is killed"),
        Patch(facecolor="none", edgecolor=_GREY, hatch="///", alpha=0.5, label="until others went on"),
        Line2D([], [], color=_RIGHT, marker="o", linestyle="", label="sums of all tables are the same"),
        Line2D([], [], color=_WRONG, marker="x", linestyle="", label="they are not"),
    ]
