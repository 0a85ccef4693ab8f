"""What one task attempt says of its work."""

from __future__ import annotations

from early_writes import GROUP, Writer
from one_table import Table

from lakelatch.transactions.conflicts.report import Work
from lakelatch.transactions.early.notes import noted_work


def test_the_time_of_an_attempt_is_counted_once_however_many_files_it_makes(table: Table) -> None:
    writer = Writer.begin(table)
    with writer.attempt() as files:
        spent_ms = []
        for number in range(3):
            table.system.advance(2)
            spent_ms.append(files.create("p", f"{number}-{writer.name(GROUP)}", b"rows", 5))
        table.system.advance(1)
    assert spent_ms == [2000, 2000, 2000]
    assert noted_work(table.storage, writer.instant) == Work(15, 12, 7000)


def test_a_file_is_announced_once(table: Table) -> None:
    writer = Writer.begin(table)
    with writer.attempt() as files:
        files.announce("p", writer.name())
        marker = writer.transaction.markers.path_of("p", writer.name())
        table.storage.delete(marker)
        files.announce("p", writer.name())
        assert not table.storage.exists(marker)
