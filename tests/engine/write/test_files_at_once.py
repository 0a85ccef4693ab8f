"""Commits of one slot whose completed files are made at once, and who sees them while one is still to come."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_table import LiveTable
from table import BuiltTable
from waiting_writes import Waiting, crowded, records, slots

from lakelatch.timeline.half_shown import half_shown_now
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, Event
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
    """Two writers that wait, and one that leads, with what is done once all three are in a slot."""

    def __init__(self, table: LiveTable) -> None:
        self.table = table
        self.first, self.second = Waiting(table).put((1, 2, "first")), Waiting(table).put((2, 2, "second"))
        manager = table.manager(side_by_side=True)
        self.leader = crowded(table.begin(manager=manager)).put("p", [(3, 2, "leader")])
        self.instants = [self.leader.instant, self.first.writing.instant, self.second.writing.instant]

    def commit(self, then: list[str]) -> None:
        """All of them; `then` gets what a reader saw once the file of the first was gone again, as if still to come."""

        def lead() -> None:
            self.leader.commit()
            path = self.event(self.first.writing.instant).path
            self.table.storage.delete(path)
            then.extend(value for _, _, _, value in self.table.read())
            assert self.table.since("0") == self.table.read()
            assert half_shown_now(self.table.storage, Snapshot.look(self.table.storage)) == (self.instants[2],)
            last = self.event(self.second.writing.instant).time
            assert [value for _, _, _, value in self.table.as_of(last)] == then

        self.first.commit(lambda: self.second.commit(lead))

    def event(self, instant: str) -> Event:
        log = CommitLog(self.table.storage)
        return next(one for one in log.events_after(0, log.tail()) if one.instant == instant)


def test_a_reader_leaves_out_what_is_behind_a_commit_that_is_still_to_be_shown(table: LiveTable) -> None:
    group, seen = Group(table), list[str]()
    group.commit(seen)
    assert seen == ["old", "old", "leader"]
    assert slots(table)[1:] == [[(COMPLETE, instant) for instant in group.instants]]
    assert table.agreed() == [("p", 1, 2, "first"), ("p", 2, 2, "second"), ("p", 3, 2, "leader")]
    assert records(table) == []


def test_each_commit_of_a_slot_names_those_before_it(table: LiveTable) -> None:
    group = Group(table)
    group.commit([])
    for place, instant in enumerate(group.instants):
        event = group.event(instant)
        before = CommitMetadata.from_avro(table.storage.read(event.path)).extra.get(BEFORE_KEY, "")
        assert event.at_once and before == ",".join(group.instants[:place])
