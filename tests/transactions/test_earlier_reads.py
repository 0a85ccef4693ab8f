"""What has completed between a read and a beginning, where neither the log nor the timeline has it any more."""

from __future__ import annotations

from archiver import Archiver
from bare_table import add_file, commit, write
from one_table import Table

from lakelatch.timeline.snapshot import Mark
from lakelatch.transactions.attempts.earlier_reads import earlier_read
from lakelatch.transactions.base.context import EarlierRead


def now(table: Table) -> Mark:
    """The table as who begins a write finds it."""
    transaction = table.manager().begin()
    transaction.abort()
    return transaction.state.mark


def read_at(table: Table, mark: Mark) -> EarlierRead:
    manager = table.manager()
    transaction = manager.begin()
    found = earlier_read(manager.context, mark, transaction.state.mark)
    transaction.abort()
    return found


def test_a_write_that_was_archived_is_found_though_all_that_was_read_is_there(table: Table) -> None:
    """It began before those that were read, so it was archived before them; slots of that time are gone."""
    before = write(table.manager(), "before")
    late = table.manager().begin()
    stat = add_file(late, "late")
    write(table.manager(), "read")
    Archiver(table.storage).archive([before.instant])
    mark = now(table)
    commit(late, stat)
    few = table.manager(slots_kept=2)
    others = [write(few, "z").instant for _ in range(6)]
    assert few.context.log.tail().watermark > mark.slot + 2
    Archiver(table.storage).archive([late.instant])
    found = read_at(table, mark)
    assert {one.instant for one in found.writes} == {late.instant, *others}
    assert [one.file_groups for one in found.writes if one.instant == late.instant] == [{("", "late")}]
