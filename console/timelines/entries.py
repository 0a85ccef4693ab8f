"""A table's whole active timeline as rows."""

from __future__ import annotations

from lakelatch.storage.contract import Storage
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.transactions.base.cancel_requests import cancel_requests
from lakelatch.ui.entries import Entry, read_entry, service_of


def timeline_entries(storage: Storage) -> list[Entry]:
    """Every instant of the active timeline that counts, in the order in which they were requested."""
    timeline = WholeTimeline.load(storage).active
    asked = {one.instant: "whole" if one.whole else "part" for one in cancel_requests(storage)}
    entries = [
        read_entry(
            storage,
            instant,
            service_of(timeline.of(instant.requested)),
            cancelled=asked.get(instant.requested, ""),
        )
        for instant in (*timeline.completed, *timeline.pending, *timeline.aborted)
    ]
    return sorted(entries, key=lambda entry: entry.requested)
