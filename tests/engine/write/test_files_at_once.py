"""Commits of one slot whose completed files are made at once, and who sees them while one is still to come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from live_table import LiveTable
from table import BuiltTable
from waiting_writes import Waiting, crowded, records, slots

from lakelatch.format.index.file_index import FileIndex
from lakelatch.format.slices import index_making
from lakelatch.format.slices.index_making import make_index
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.log.half_shown import half_shown_now
from lakelatch.timeline.metadata import BEFORE_KEY, CommitMetadata
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import SIDE_BY_SIDE_LOG_VERSION, log_property
from lakelatch.timeline.snapshot import Snapshot


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    made = LiveTable(tmp_path / "t")
    made.write([(1, 1, "old"), (2, 1, "old"), (3, 1, "old")])
    update_properties(made.storage, log_property(SIDE_BY_SIDE_LOG_VERSION))
    made.opened = BuiltTable.at(made.storage, made.options).opened
    return made


class Group:
    """Three writers that wait, and one that leads, with what is done once all four are in a slot."""

    def __init__(self, table: LiveTable) -> None:
        self.table = table
        waiting = [Waiting(table).put((key, 2, name)) for key, name in ((1, "first"), (2, "second"), (4, "third"))]
        self.first, self.second, self.third = waiting
        self.leader = crowded(table.begin(manager=table.manager(side_by_side=True))).put("p", [(3, 2, "leader")])
        self.instants = [self.leader.instant, *(one.writing.instant for one in waiting)]
        self.meanwhile: Callable[[], object] = lambda: None  # while the file of the first is still to come

    def commit(self) -> list[list[str]]:
        """All of them; what readers see while the file of the first is still to come, and once the third was told."""
        seen: list[list[str]] = []

        def lead() -> None:
            self.leader.commit()
            self.table.storage.delete(self.event(self.first.writing.instant).path)  # as if it had not been made yet
            timeline = Snapshot.look(self.table.storage)
            assert half_shown_now(self.table.storage, timeline) == tuple(self.instants[2:])
            seen.append(self.values())
            seen.append([value for _, _, _, value in self.table.since("0")])
            seen.append([value for _, _, _, value in self.table.as_of(self.event(self.instants[2]).time)])
            self.meanwhile()

        def third() -> None:
            self.third.commit(lead)
            seen.append(self.values())

        self.first.commit(lambda: self.second.commit(third))
        return seen

    def values(self) -> list[str]:
        return [value for _, _, _, value in self.table.read()]

    def event(self, instant: str) -> Event:
        log = CommitLog(self.table.storage)
        return next(one for one in log.events_after(0, log.tail()) if one.instant == instant)


def test_a_reader_leaves_out_what_is_behind_a_commit_that_is_still_to_be_shown(table: LiveTable) -> None:
    group = Group(table)
    assert group.commit()[:3] == [["old", "old", "leader"]] * 3
    assert slots(table)[1:] == [[(COMPLETE, instant) for instant in group.instants]]
    rows = [(1, "first"), (2, "second"), (3, "leader"), (4, "third")]
    assert table.agreed() == [("p", key, 2, value) for key, value in rows] and records(table) == []


def test_who_is_told_that_it_is_committed_sees_to_the_files_before_its_own(table: LiveTable) -> None:
    assert Group(table).commit()[3] == ["first", "second", "leader", "third"]


def test_each_commit_of_a_slot_names_those_before_it(table: LiveTable) -> None:
    group = Group(table)
    group.commit()
    for place, instant in enumerate(group.instants):
        event = group.event(instant)
        before = CommitMetadata.from_avro(table.storage.read(event.path)).extra.get(BEFORE_KEY, "")
        assert event.at_once and before == ",".join(group.instants[:place])


def test_no_file_index_is_made_while_a_commit_is_still_to_be_shown(
    table: LiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index would be newer than that commit, and readers add only those that are newer than the index."""
    monkeypatch.setattr(index_making, "FEW_FOLDERS", 1)
    group, made = Group(table), list[FileIndex | None]()
    group.meanwhile = lambda: made.append(make_index(table.storage, table.opened.config))
    group.commit()
    assert made == [None]
    index = make_index(table.storage, table.opened.config)
    assert index is not None and index.moment == group.event(group.instants[-1]).time
