"""Commits of one slot whose completed files are made at once: which of those that are there do not count yet.

Each but the first names the instants that its slot commits before it. The log has nothing behind its last slot, and
whoever adds to it completes that first. So only the newest commits of a timeline can have one before them that is
still to come, and the newest of them tells.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelatch.storage.contract import Storage
from lakelatch.timeline.log.whole_timeline import read_commit
from lakelatch.timeline.metadata import BEFORE_KEY
from lakelatch.timeline.snapshot import Snapshot


def instants_in(value: str) -> tuple[str, ...]:
    """The instants in the value of `BEFORE_KEY`, or of `CHANGES_KEY`."""
    return tuple(filter(None, value.split(",")))


def behind_missing(timeline: Snapshot, before: Sequence[str], newest: str) -> tuple[str, ...]:
    """The instants behind the first of these that is still to be shown, up to the newest, which has named them."""
    pending = {one.requested for one in timeline.pending}
    missing = next((place for place, instant in enumerate(before) if instant in pending), None)
    return () if missing is None else (*before[missing + 1 :], newest)


def half_shown_now(storage: Storage, timeline: Snapshot) -> tuple[str, ...]:
    """The instants that do not count yet, by the newest write of a timeline. Costs a request."""
    if not timeline.writes:
        return ()
    newest = timeline.writes[-1]
    before = instants_in(read_commit(storage, newest).extra.get(BEFORE_KEY, ""))
    return behind_missing(timeline, before, newest.requested)
