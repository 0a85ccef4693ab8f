"""A moment of several tables that is kept: it shows the same rows later, or says why it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from several_tables import OPTIMISTIC, Tables, rows, values

import lakelatch
from lakelatch import ArrowTable
from lakelatch.errors import InvalidRequest

ARCHIVING = {
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "lakelatch.archive.minimum.age.seconds": "0",
    "hoodie.clean.automatic": "false",
    "lakelatch.rewrite.automatic": "false",
}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def cuts(tables: Tables) -> list[lakelatch.snapshot]:
    """The moment behind a transaction over both tables, as it was taken, and as it was saved."""
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))
    cut, file = lakelatch.snapshot(tables.paths), tables.folder / "cut.json"
    cut.save(file)
    return [cut, lakelatch.snapshot.load(file)]


def test_what_others_take_back_is_not_left_out_unseen(tables: Tables) -> None:
    """A table as of a time is shown without what was taken back: half of a transaction, beside the other table."""
    first, second = tables.paths
    found = cuts(tables)
    table = lakelatch.open(first, OPTIMISTIC)
    table.restore(table.history()[-1]["completion"])
    assert values(table.to_arrow()) == {1: 10, 2: 20}
    for cut in found:
        assert values(cut.to_arrow(second)) == {1: 11, 2: 20}
        with pytest.raises(InvalidRequest, match=r"table0 as of .* was taken back"):
            cut.to_arrow(first)


def test_what_a_clean_has_removed_is_missed_in_a_table_that_is_named(tables: Tables) -> None:
    first = tables.paths[0]
    found, table = cuts(tables), lakelatch.open(first, OPTIMISTIC)
    for value in range(12, 15):
        table.upsert(rows({1: value}, 2))
        table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    table.clean({"hoodie.clean.commits.retained": "1"})
    for cut in found:
        with pytest.raises(InvalidRequest, match=r"table \S*table0 as of .* which the clean .* has removed"):
            cut.to_arrow(first)


def test_a_moment_is_saved_in_a_folder_that_is_there(tables: Tables) -> None:
    missing = tables.folder / "missing" / "cut.json"
    with pytest.raises(InvalidRequest, match=r"saved as \S*cut.json: No such file or directory; name a file in a"):
        lakelatch.snapshot(tables.paths).save(missing)
    assert not missing.parent.exists()


def test_another_table_in_the_place_of_one_is_not_read(tables: Tables, tmp_path: Path) -> None:
    found = cuts(tables)
    Path(tables.paths[1]).rename(tmp_path / "elsewhere")
    Tables(tmp_path)
    for cut in found:
        with pytest.raises(InvalidRequest, match=r"table1 as of .* another table is in its place"):
            cut.to_arrow(tables.paths[1])


def test_what_was_archived_since_is_shown_as_before(tables: Tables) -> None:
    found = cuts(tables)
    table = ArrowTable(tables.paths[0], {**OPTIMISTIC, **ARCHIVING})
    for turn in range(5):
        table.upsert(rows({1: turn}, at=9 + turn))
        table.compact()
    assert lakelatch.archive(tables.paths[0], ARCHIVING).instants
    assert [values(cut.to_arrow(tables.paths[0])) for cut in found] == [{1: 11, 2: 20}] * 2


def test_a_moment_that_an_older_version_has_saved_is_read(tables: Tables) -> None:
    """It has times alone."""
    _, loaded = cuts(tables)
    path = tables.folder / "older.json"
    stored = [{"path": place, "time": time} for place, time in loaded.times.items()]
    path.write_text(json.dumps({"format": 1, "tables": stored}), encoding="utf-8")
    older = lakelatch.snapshot.load(path)
    assert older.times == loaded.times and values(older.to_arrow(tables.paths[0])) == {1: 11, 2: 20}
