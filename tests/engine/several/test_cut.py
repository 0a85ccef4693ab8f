"""A moment of tables that are written all the time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from several_tables import FIRST, OPTIMISTIC, Tables, killed_at, rows, values

import lakelatch
from lakelatch.engine.several.cut import TableMoment, take_cut
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.events import LOG_FOLDER, slot_path
from lakelatch.timeline.staged import StagedStorage

_WRITES_MOST = 8  # then nobody writes any more, and every cut comes to its end


class WatchedStorage(LocalStorage):
    """Calls a function before each read, and behind each listing, with its path or folder; with `?` before that."""

    told: Callable[[str], None]

    @classmethod
    def at(cls, root: str, told: Callable[[str], None]) -> WatchedStorage:
        found = cls(root)
        object.__setattr__(found, "told", told)
        return found

    def read(self, path: str) -> bytes:
        self.told(path)
        return super().read(path)

    def names(self, folder: str) -> Sequence[str]:
        self.told(f"{folder}?")
        found = super().names(folder)
        self.told(folder)
        return found


def cut_of(tables: Tables, told: Callable[[int, str], None]) -> tuple[TableMoment, ...]:
    storages = {path: WatchedStorage.at(path, partial(told, number)) for number, path in enumerate(tables.paths)}
    return take_cut(storages, None, REAL_SYSTEM, lambda uri: LocalStorage(uri.removeprefix("file://")))


def as_seen(tables: Tables, moments: Sequence[TableMoment]) -> list[dict[int, int]]:
    return [values(lakelatch.open(one.path).to_arrow(one.time)) for one in moments]


def test_commits_that_come_while_a_cut_reads_do_not_make_it_begin_anew(tmp_path: Path) -> None:
    """It knows after two listings of the logs which moment it is; what it then reads of others is left out."""
    tables = Tables(tmp_path)
    wrote: list[str] = []

    def told(number: int, path: str) -> None:
        if path in (slot_path(1), TIMELINE_FOLDER) and len(wrote) < _WRITES_MOST:
            wrote.append(path)
            for each in range(2):
                tables.write(each, {1: 100 + len(wrote)}, at=len(wrote) + 1)

    moments = cut_of(tables, told)
    assert as_seen(tables, moments) == [FIRST, FIRST]
    assert 0 < len(wrote) < _WRITES_MOST, "it has begun anew until nobody wrote any more"
    shown = [one.mark.snapshot().latest_completion for one in moments if one.mark is not None]
    assert shown == [one.time for one in moments], "a transaction would take for seen what it has not seen"


def test_a_commit_between_the_listings_makes_it_begin_anew(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    listed: list[int] = []

    def told(number: int, path: str) -> None:
        if path == LOG_FOLDER:
            listed.append(number)
            if len(listed) == 2:  # both have been listed once
                tables.write(0, {1: 100})

    assert as_seen(tables, cut_of(tables, told)) == [{1: 100, 2: 20}, FIRST]
    assert listed[:2] == [0, 1] and len(listed) > 4


def test_a_cut_that_sleeps_until_slots_behind_its_own_are_gone_begins_anew(tmp_path: Path) -> None:
    """Nobody can say any more which of the files on the timeline are of slots behind it."""
    tables = Tables(tmp_path)
    wrote: list[int] = []

    def told(number: int, path: str) -> None:
        if (number, path) == (0, f"{TIMELINE_FOLDER}?") and not wrote:
            while tables.log(0).tail().watermark < 4:
                wrote.append(100 + len(wrote))
                tables.write(0, {1: wrote[-1]}, at=len(wrote) + 1)

    assert as_seen(tables, cut_of(tables, told)) == [{1: wrote[-1], 2: 20}, FIRST]


def test_a_decision_is_taken_for_one_of_the_moment_only_if_no_log_has_gone_on_since(tmp_path: Path) -> None:
    """A transaction over the first two tables is decided behind the listings, and the third one is written before."""
    tables = Tables(tmp_path, 3)
    with lakelatch.transaction(tables.paths[:2], OPTIMISTIC) as tx:
        for path in tables.paths[:2]:
            tx.upsert(path, rows({1: 11}, 2))
    listed: list[int] = []

    def told(number: int, path: str) -> None:
        listed.extend([number] if path == LOG_FOLDER else [])
        if path.startswith(f"{LOG_FOLDER}/") and number == 2 and listed.count(2) == 2:
            tables.write(2, {1: 12}, at=3)  # perhaps before the decision

    assert as_seen(tables, cut_of(tables, told)) == [{1: 11, 2: 20}, {1: 11, 2: 20}, {1: 12, 2: 20}]
    assert listed.count(2) > 3


@pytest.mark.parametrize("was_there", [True, False])
def test_a_part_whose_file_was_there_beside_the_first_listing_was_decided_before_the_moment(
    tmp_path: Path, was_there: bool
) -> None:
    """So tables that are far away are listed twice, and else three times."""
    tables = Tables(tmp_path)
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))
    file = Path(tables.paths[0], tables.log(0).tail().events[0].path)
    hidden = file.with_name("hidden")
    asked: list[tuple[int, str]] = []

    def told(number: int, path: str) -> None:
        asked.append((number, path))
        if (number, path) == (0, TIMELINE_FOLDER) and hidden.exists():
            hidden.rename(file)

    if not was_there:
        file.rename(hidden)
    storages: dict[str, Storage] = {
        path: StagedStorage(WatchedStorage.at(path, partial(told, number)), None)
        for number, path in enumerate(tables.paths)
    }
    moments = take_cut(storages, None, REAL_SYSTEM, lambda uri: LocalStorage(uri.removeprefix("file://")))
    assert as_seen(tables, moments) == [{1: 11, 2: 20}, {1: 11, 2: 20}]
    assert [asked.count((number, LOG_FOLDER)) for number in range(2)] == ([2, 2] if was_there else [3, 3])


def test_a_plain_tail_needs_two_listings_and_one_read(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    asked: list[tuple[int, str]] = []
    cut_of(tables, lambda number, path: asked.append((number, path)))
    assert [path.rpartition("/")[0] or path for number, path in asked if number == 0].count(LOG_FOLDER) == 1
    paths = [path for _, path in asked if not path.endswith("?")]
    assert asked.count((0, LOG_FOLDER)) == 2 and len(paths) == 8, asked


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    with pytest.raises(InvalidRequest, match="nowhere"):
        lakelatch.snapshot([*tables.paths, str(tmp_path / "nowhere")])
    assert not (tmp_path / "nowhere").exists()


def test_a_part_whose_first_table_is_gone_is_not_taken_for_undecided(tmp_path: Path) -> None:
    """The other tables' parts may be seen already: a moment without this one would have half of the transaction."""
    tables = Tables(tmp_path, 3)
    killed_at(tables, "several.after_decision@1")
    home, shown, other = tables.paths
    assert lakelatch.resolve(shown)
    assert tables.now() == [FIRST, {1: 11, 2: 20}, FIRST]
    shutil.rmtree(home)
    with pytest.raises(Unavailable, match=f"table at file://{home} is gone.*give_up=True"):
        lakelatch.snapshot([shown, other])
