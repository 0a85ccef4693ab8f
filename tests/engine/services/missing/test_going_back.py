"""What was replaced is needed until a clean takes it: by readers of the past, and by whoever takes the replace back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from live_table import LiveTable
from taken_back_table import new_table, rows

import lakelatch
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.engine.services.verifying import MISSING
from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.timeline.history import named_files

REPLACES: dict[str, Callable[[LiveTable], CommitResult]] = {
    "overwrite": lambda table: table.write(rows(2, 5, "new"), operation="insert_overwrite"),
    "overwrite of all": lambda table: table.write(rows(2, 5, "new"), operation="insert_overwrite_table"),
    "dropped partition": lambda table: table.drop("p"),
}
BACK: dict[str, Callable[[LiveTable, CommitResult, CommitResult], object]] = {
    "restore": lambda table, before, replace: table.restore(before.instant),
    "rollback": lambda table, before, replace: table.roll_back(replace.instant),
}


def found(table: LiveTable) -> list[tuple[str, str]]:
    named_files.forget_all()
    return [(one.kind, one.path) for one in lakelatch.verify(str(table.root)).findings]


def data_of(table: LiveTable, written: CommitResult) -> Path:
    (path,) = [table.root / one for one in table.data_files(written.instant)]
    return path


def replaced(tmp_path: Path, replace: str) -> tuple[LiveTable, CommitResult, CommitResult]:
    """A table of which a partition was replaced: the last write before that, and the replace."""
    table = new_table(tmp_path)
    table.write(rows(2, 1, "a"), "q")
    table.write(rows(2, 1, "a"))
    before = table.write([(3, 2, "c")])
    return table, before, REPLACES[replace](table)


@pytest.mark.parametrize("back", BACK)
@pytest.mark.parametrize("replace", REPLACES)
def test_a_replaced_file_that_no_clean_took_is_missed(tmp_path: Path, replace: str, back: str) -> None:
    table, before, taken = replaced(tmp_path, replace)
    assert found(table) == []
    path = data_of(table, before)
    content = path.read_bytes()
    path.unlink()
    assert found(table) == [(MISSING, f"p/{path.name}")]
    timeline, now = table.timeline(), table.agreed()
    named_files.forget_all()
    with pytest.raises(CorruptTable, match=path.name.replace(".", r"\.")):
        BACK[back](table, before, taken)
    assert table.timeline() == timeline and table.agreed() == now
    path.write_bytes(content)
    assert found(table) == []
    BACK[back](table, before, taken)
    assert found(table) == [] and [row[-1] for row in table.agreed()] == [
        row[-1] for row in table.as_of(before.completion)
    ]


@pytest.mark.parametrize("replace", REPLACES)
def test_what_a_clean_took_is_not_missing(tmp_path: Path, replace: str) -> None:
    """Nor what it is about to take; before and after its archiving."""
    table, before, _ = replaced(tmp_path, replace)
    for number in range(3):
        table.write(rows(2, 6 + number, "later"), "q")
        table.compact()
    options = CleaningOptions(commits=1)
    path = data_of(table, before)
    assert Clean(options).schedule(table.context()) is not None
    path.unlink()
    assert found(table) == []
    table.clean(options)
    assert found(table) == []
    named_files.forget_all()
    with pytest.raises(InvalidRequest, match="has removed"):
        table.restore(before.instant)
    assert table.archive(ArchivingOptions(min_commits=1, max_commits=2, minimum_age_s=0)).instants
    assert found(table) == []


def test_a_rollback_asks_for_what_it_uncovers_only(tmp_path: Path) -> None:
    """A file that is missing elsewhere stops it no more than it stops a restore to what came before that file."""
    table = new_table(tmp_path)
    first = table.write(rows(2, 1, "a"), "q")
    lost = table.write([(3, 2, "c")])
    taken = table.write(rows(2, 3, "b"), "q", operation="insert_overwrite")
    data_of(table, lost).unlink()
    named_files.forget_all()
    table.roll_back(taken.instant)
    named_files.forget_all()
    table.restore(first.instant)
    assert found(table) == []
