"""Another engine rolls a replace commit back while we write: what it had taken away lives again."""

from __future__ import annotations

from pathlib import Path

import pytest
from archiver import Archiver
from live_table import LiveTable
from table import meanwhile
from taken_back_table import undone_by_java

from lakelatch.engine.run.result import CommitResult
from lakelatch.errors import WriteConflict
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC

MODES = pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])
OVERWRITE = "insert_overwrite"
OLD = [("p", 1, 1, "a"), ("p", 2, 1, "b")]


def undo(table: LiveTable, done: CommitResult) -> str:
    return undone_by_java(table.storage, "p", done, "replacecommit")


@MODES
@pytest.mark.parametrize("began_first", [False, True])
def test_a_write_to_the_groups_of_an_undone_replace_commit_loses(tmp_path: Path, mode: str, began_first: bool) -> None:
    """Whether it knew that one when it began, or its tasks found the groups that it had made."""
    table = LiveTable(tmp_path / "t", mode=mode)
    table.write([(1, 1, "a"), (2, 1, "b")])
    before = table.begin()
    over = table.write([(1, 2, "over"), (2, 2, "over")], operation=OVERWRITE)
    writer = (before if began_first else table.begin()).put("p", [(1, 5, "ours")])
    rollback = undo(table, over)
    with pytest.raises(WriteConflict, match=f"lost to rollback {rollback}") as caught:
        writer.commit()
    assert [partition for partition, _ in caught.value.file_groups] == ["p"]
    assert table.agreed() == OLD
    table.write([(1, 5, "again")])
    assert table.agreed() == [("p", 1, 5, "again"), OLD[1]]


@MODES
def test_an_undone_replace_commit_elsewhere_is_in_nobodys_way(tmp_path: Path, mode: str) -> None:
    table = LiveTable(tmp_path / "t", mode=mode)
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.write([(1, 1, "q")], "q")
    over = table.write([(1, 2, "over")], operation=OVERWRITE)
    writer = table.begin().put("q", [(1, 5, "ours")]).put("r", [(1, 5, "ours")])
    undo(table, over)
    writer.commit()
    assert table.agreed() == [*OLD, ("q", 1, 5, "ours"), ("r", 1, 5, "ours")]


@MODES
def test_an_archived_replace_commit_is_not_undone(tmp_path: Path, mode: str) -> None:
    table = LiveTable(tmp_path / "t", mode=mode)
    first = table.write([(1, 1, "a"), (2, 1, "b")])
    over = table.write([(1, 2, "over")], operation=OVERWRITE)
    writer = table.begin().put("p", [(1, 5, "ours")])
    again = table.begin(OVERWRITE).put("q", [(1, 1, "q")])
    Archiver(table.storage).archive([first.instant, over.instant])
    writer.commit()
    again.commit()
    assert table.read() == [("p", 1, 5, "ours"), ("q", 1, 1, "q")]


@MODES
@pytest.mark.parametrize("operation", [OVERWRITE, "insert_overwrite_table"])
def test_an_overwrite_takes_away_what_lives_again(tmp_path: Path, mode: str, operation: str) -> None:
    table = LiveTable(tmp_path / "t", mode=mode)
    table.write([(1, 1, "a"), (2, 1, "b")])
    first = table.write([(1, 2, "first")], operation=OVERWRITE)
    writing = table.begin(operation).put("p", [(1, 3, "over")])
    undone: list[object] = []
    with meanwhile(lambda: undone.append(undo(table, first)), "close.after"):  # it has looked what there is
        over = writing.commit()
    assert undone
    assert over.file_groups_replaced == 2 and table.agreed() == [("p", 1, 3, "over")]
    table.write([(2, 4, "after")])
    assert table.agreed() == [("p", 1, 3, "over"), ("p", 2, 4, "after")]
