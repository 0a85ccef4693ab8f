"""Refuses reads of moments in the future."""

from __future__ import annotations

from dataclasses import replace

from lakelatch.engine.options.read import AS_OF, END_INSTANT, ReadOptions
from lakelatch.engine.table.schema import half_shown
from lakelatch.errors import InvalidRequest
from lakelatch.format.slices.table_view import TableView
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.recorded_options import SIDE_BY_SIDE_LOG_VERSION


def without_half_shown(view: TableView, moment: str | None = None) -> TableView:
    """The view without what does not count yet of the log's last slot; mostly the same.

    Costs nothing for who reads the columns of this moment as well.
    """
    in_order = view.config.log_version < SIDE_BY_SIDE_LOG_VERSION
    if in_order and moment is not None and view.timeline.latest_completion > moment:  # so all up to then is there
        return view
    names = half_shown(view.storage, view.config, view.timeline)
    if not names:
        return view
    active = view.timeline.without(view.timeline.late | names)
    return replace(view, whole=replace(view.whole, active=active))


def refuse_future(view: TableView, options: ReadOptions, now_ms: int) -> None:
    """`InvalidRequest` for a moment in the future: the same read would give other rows later.

    The table's times may be ahead of this clock; a moment that they have passed may be read.
    """
    for option, time in ((AS_OF, options.as_of), (END_INSTANT, options.end)):
        if time is None or time <= to_instant(now_ms):
            continue
        latest = max((instant.completion or instant.requested for instant in view.timeline.instants), default="")
        if time > latest:
            raise InvalidRequest(
                f"{option}={time} is in the future: by this machine's clock it is {to_instant(now_ms)}, and the "
                f"table's latest time is {latest or 'none'}. What completes until then would change the answer: take a "
                "time that has passed (one without milliseconds is the end of its second), or leave the option out",
                option=option,
            )
