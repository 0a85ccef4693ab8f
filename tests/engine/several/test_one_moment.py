"""All that a block reads is of one moment, whatever reads it and in whichever thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread, current_thread

import pytest
from several_tables import FIRST, OPTIMISTIC, Tables, rows, values

import lakelatch
from lakelatch.engine.several.transaction import TablesTransaction
from lakelatch.errors import WriteConflict
from lakelatch.failpoints import calling
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.events import LOG_FOLDER

BEGINNING = "19700101000000001"
SLOW = "slow reader"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def by_others(act: Callable[[], object]) -> None:
    """Called in a thread of its own, in which no transaction is open."""
    others = Thread(target=act)
    others.start()
    others.join()


class SlowToList(LocalStorage):
    """One thread's first listing of the log waits."""

    reached, goes_on = Event(), Event()

    def names(self, folder: str) -> Sequence[str]:
        if folder == LOG_FOLDER and current_thread().name == SLOW:
            self.reached.set()
            assert self.goes_on.wait(60)
        return super().names(folder)


def test_threads_that_read_first_at_once_read_the_same_moment(tables: Tables) -> None:
    """Else what one of them has read could be changed unseen before the moment that the other one takes."""
    first, second = tables.paths
    found: dict[str, dict[int, int]] = {}

    def write_both() -> None:
        with lakelatch.transaction(tables.paths, OPTIMISTIC) as other:
            for path in tables.paths:
                other.upsert(path, rows({1: 11}, 2))

    with TablesTransaction(tables.paths, OPTIMISTIC, open_table=SlowToList) as tx:

        def read(path: str) -> None:
            found[path] = values(tx.to_arrow(path))

        readers = [Thread(target=read, args=(second,), name=SLOW), Thread(target=read, args=(first,))]
        readers[0].start()
        assert SlowToList.reached.wait(60)
        readers[1].start()
        readers[1].join(1)  # it has read by then if it need not wait
        by_others(write_both)
        SlowToList.goes_on.set()
        for reader in readers:
            reader.join()
    assert found[first] == found[second]


class SlowToLook(LocalStorage):
    """One thread's first listing of a timeline waits, when both listings of the logs have been made."""

    reached, goes_on = Event(), Event()

    def names(self, folder: str) -> Sequence[str]:
        if folder == TIMELINE_FOLDER and current_thread().name == SLOW:
            self.reached.set()
            assert self.goes_on.wait(60)
        return super().names(folder)


@pytest.mark.parametrize("during", [False, True], ids=["after the moment is taken", "while it is"])
def test_a_change_that_begins_beside_the_first_read_is_held_against_all_since_the_moment(
    tables: Tables, during: bool
) -> None:
    """Else what others commit between the moment and its beginning would be overwritten unseen."""
    first, second = tables.paths
    SlowToLook.reached.clear()
    SlowToLook.goes_on.clear()
    found: list[dict[int, int]] = []
    is_called, begins = Event(), Event()

    def wait_before_beginning(_: str) -> None:
        if current_thread().name.startswith("lakelatch part"):
            is_called.set()
            assert begins.wait(60)

    many = rows({1: 12, **dict.fromkeys(range(100, 10200), 0)}, 20)  # which are not staged beside others
    block = TablesTransaction(tables.paths, OPTIMISTIC, open_table=SlowToLook)
    with (
        pytest.raises(WriteConflict, match="lost to deltacommit"),
        calling(wait_before_beginning, ["begin.after_claim"]),
        block as tx,
    ):
        writer = Thread(target=lambda: tx.upsert(first, many))
        writer.start()
        assert is_called.wait(60)
        reader = Thread(target=lambda: found.append(values(tx.to_arrow(second))), name=SLOW if during else "reader")
        reader.start()
        if during:
            assert SlowToLook.reached.wait(60)
        else:
            reader.join()
        by_others(lambda: tables.write(0, {1: 11}))
        begins.set()
        writer.join(1)  # it has begun by then if it need not wait
        SlowToLook.goes_on.set()
        for thread in (reader, writer):
            thread.join()
        assert values(tx.to_arrow(first))[1] == 12
    assert found == [FIRST] and tables.now() == [{1: 11, 2: 20}, FIRST]


def test_a_window_of_changes_ends_at_the_moment(tables: Tables) -> None:
    first, second = tables.paths
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        assert values(tx.to_arrow(second)) == FIRST
        by_others(lambda: tables.write(0, {3: 30}))
        table = tx.arrow_table(first)
        assert values(table.changes(BEGINNING).read_all()) == FIRST == values(tx.to_arrow(first))
        images = table.changes(BEGINNING, images=True).read_all()
        assert sorted(row["after"]["id"] for row in images.to_pylist()) == sorted(FIRST)
        assert table.changes(tx.moment_of(first)).read_all().num_rows == 0


def test_what_was_read_by_a_window_of_changes_is_held_as_any_read(tables: Tables) -> None:
    first, second = tables.paths
    block = lakelatch.transaction(tables.paths, OPTIMISTIC, isolation="serializable")
    with pytest.raises(WriteConflict, match="lost to deltacommit"), block as tx:
        seen = values(tx.arrow_table(first).changes(BEGINNING).read_all())
        by_others(lambda: tables.write(0, {1: 11}))
        tx.upsert(second, rows({1: seen[1] + 1}, 2))
    assert tables.now()[1] == FIRST
