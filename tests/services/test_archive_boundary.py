"""Logs of older slices where the boundary of an archive meets them: whatever is taken back, all readers agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_table import LiveTable

from lakelatch.errors import InvalidRequest
from lakelatch.services.archiving import Archived, archive
from lakelatch.services.options.archiving import ArchivingOptions
from lakelatch.services.restoring import restore, roll_back
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.timeline import Timeline


def late_log(table: LiveTable) -> list[str]:
    """A log that was requested before its base file and completed after it, in a slice that is the last but one; the
    requested times of all writes."""
    table.write([(1, 1, "one")])
    late = table.begin().put("p", [(9, 9, "late")])
    table.compact()
    late.commit()
    table.compact()
    for number in (2, 3, 4):
        table.write([(number, number, "other")], "q")
    return sorted(one.requested for one in Timeline.load(table.storage).completed if one.action in WRITE_ACTIONS)


def keep(table: LiveTable, count: int) -> Archived:
    options = ArchivingOptions(min_commits=count, max_commits=count + 1, minimum_age_s=0)
    return archive(table.manager(), table.opened.config, options)


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("how", ["roll back", "restore"])
def test_a_late_log_stays_for_as_long_as_its_slice_can_come_back(tmp_path: Path, count: int, how: str) -> None:
    """With four that stay, the compaction that came instead is the first of these."""
    table = LiveTable(tmp_path, buckets=1)
    _, late, _, again, *_ = late_log(table)
    rows = table.agreed()
    assert ("p", 9, 9, "late") in rows and len(rows) == 5
    done = keep(table, count)
    assert table.agreed() == rows
    there = {one.requested for one in Timeline.load(table.storage).completed}
    if again in there:
        assert late in there, done
    try:
        if how == "roll back":
            roll_back(table.manager(), again)
        else:
            restore(table.opened.config, table.manager(), late)
    except InvalidRequest as error:
        assert again not in there, error
    else:
        assert again in there
        assert table.agreed() == [row for row in rows if how == "roll back" or row[0] == "p"]
