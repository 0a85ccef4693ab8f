"""What the tasks of a write leave for each other and for its driver, and that it goes with the write."""

from __future__ import annotations

import pytest
from bare_table import add_file, commit
from early_writes import GROUP, Writer
from one_table import Table

from lakelatch.errors import WriteConflict
from lakelatch.testing.faults.storage import LOST_AFTER, LOST_BEFORE, Fault, FaultyStorage
from lakelatch.transactions.early.notes import NOTES_FOLDER, aborted_path, noted_instants, work_folder
from lakelatch.transactions.markers.files import MARKERS_FOLDER


def test_nothing_but_markers_lies_among_the_markers(table: Table) -> None:
    """Hudi's rollback reads CREATE, MERGE or APPEND from the end of every name in the folder, or fails."""
    early, late = Writer.begin(table), Writer.begin(table)
    stat = early.write()
    with pytest.raises(WriteConflict):
        late.write()
    assert late.told and noted_instants(table.storage) == {early.instant, late.instant}
    names = list(table.storage.walk(MARKERS_FOLDER))
    assert len(names) == 2 and all(name.endswith(".marker.CREATE") for name in names)
    early.commit(stat)
    late.transaction.abort(late.transaction.found_early())
    assert noted_instants(table.storage) == set()


def test_what_was_told_to_a_writer_that_does_not_listen_is_cleaned_up(table: Table) -> None:
    early, deaf = Writer.begin(table), table.manager().begin()
    stat = add_file(deaf, GROUP, partition="p")
    kept = early.write()
    commit(deaf, stat)
    assert noted_instants(table.storage) == {early.instant, deaf.instant}
    table.manager().recover()
    assert noted_instants(table.storage) == {early.instant}
    with pytest.raises(WriteConflict):  # it did not listen, and was first
        early.commit(kept)
    assert table.leftovers() == []


@pytest.mark.parametrize("ended", ["committed", "died"])
def test_bloom_files_of_an_older_writer_go_with_its_notes(table: Table, ended: str) -> None:
    writer = Writer.begin(table)
    stat = writer.write()
    table.storage.put(f"{NOTES_FOLDER}/{writer.instant}/bloom/server-0", b"LLB1")
    if ended == "committed":
        writer.commit(stat)
    else:
        table.expire(writer.instant)
        table.manager().recover()
        table.manager().recover()
    assert noted_instants(table.storage) == set() and table.leftovers() == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"winner": 3}', b"[]"])
def test_files_that_cannot_be_read_count_as_empty(table: Table, content: bytes) -> None:
    writer = Writer.begin(table)
    table.storage.put(aborted_path(writer.instant), content)
    table.storage.put(f"{work_folder(writer.instant)}/0-0-0", content)
    stat = writer.write()
    assert not writer.told
    assert writer.commit(stat).instant == writer.instant


@pytest.mark.parametrize("kind", [LOST_AFTER, LOST_BEFORE])
def test_a_lost_answer_about_the_note_of_an_abort_changes_nothing(table: Table, kind: str) -> None:
    early, late = Writer.begin(table), Writer.begin(table)
    early.write()
    storage = FaultyStorage(table.storage, [Fault(kind, "put_if_absent", aborted_path(late.instant))])
    for _ in range(2):
        with pytest.raises(WriteConflict, match=early.instant):
            late.write(storage=storage)
    assert storage.failed == {LOST_AFTER: 1, LOST_BEFORE: 2}[kind]
