"""What a frame says of the moment at which it was read: a condition that always holds, and that Spark drops.

A frame does not know itself of which moment its rows are, and neither do the files that it reads, since log files of
others may be above them. The condition stays in its analysed plan, through joins, views and caches, until the rows go
through Python or are stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from lakelatch.engine.several.cut import identity_of
from lakelatch.errors import InvalidRequest
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOMENT = "lakelatch rows of {place} at {time}"
_FOUND = re.compile(_MOMENT.format(place="([0-9a-f]{32})", time="([0-9]*)"))
_LENGTH, _LENGTH_MAX = "spark.sql.maxPlanStringLength", "2147483632"  # Spark's own default
_raising = REAL_SYSTEM.new_lock()
_CUT = re.compile(r"(\.\.\. \d+ more characters|^Truncated plan of \d+ characters)\s*$")  # Spark's own words


def with_moment(frame: DataFrame, storage: Storage, timeline: Snapshot, as_of: str | None) -> DataFrame:
    """The frame, which says that it has the rows of a table as this timeline shows them at a moment, or now."""
    return with_last_write(frame, storage, last_write(timeline, as_of))


def with_last_write(frame: DataFrame, storage: Storage, time: str) -> DataFrame:
    """The frame, which says that it has the rows of a table up to the write of this time."""
    from pyspark.sql import functions

    text = _MOMENT.format(place=place_id(storage), time=time)
    return frame.where(functions.lit(text).isNotNull())


def moments_of(frame: Any) -> Iterator[tuple[str, str]]:
    """Of which tables a frame has rows, by `place_id`, and up to which write; none if that cannot be told.

    Errors: `InvalidRequest` where Spark cuts the text of the plan short, whatever its session is told.
    """
    text = _plan_text(frame)
    if _CUT.search(text):
        text = _whole_plan_text(frame)
    if _CUT.search(text):
        raise InvalidRequest(
            "Spark cuts the plan of the frame short, so that nobody can tell at which moment its rows were read: raise "
            f"{_LENGTH}, or remove it from the session's configuration",
            option=_LENGTH,
        )
    yield from dict.fromkeys((place, time) for place, time in _FOUND.findall(text))


def _plan_text(frame: Any) -> str:
    explained = getattr(frame, "_explain_string", None)  # Spark Connect
    java = getattr(frame, "_jdf", None)
    if explained is not None:
        return str(explained(mode="extended"))
    return "" if java is None else str(java.queryExecution().analyzed().toString())


def _whole_plan_text(frame: Any) -> str:
    """As `_plan_text`, while the frame's session cuts no plan short. Others see longer texts meanwhile."""
    conf = frame.sparkSession.conf
    with _raising:  # or one would take what another has set for what was said
        said = conf.get(_LENGTH)
        conf.set(_LENGTH, _LENGTH_MAX)
        try:
            return _plan_text(frame)
        finally:
            conf.set(_LENGTH, said)


def place_id(storage: Storage) -> str:
    """Names a table in the plans of frames, whichever of its names it was opened by, and without its secrets."""
    return blake2b(identity_of(storage).encode(), digest_size=16).hexdigest()


def last_write(timeline: Snapshot, as_of: str | None = None) -> str:
    """The completion time of the last write that a timeline shows at a moment, "" for none."""
    times = (one.completion or "" for one in timeline.writes)
    return max((time for time in times if as_of is None or time <= as_of), default="")
