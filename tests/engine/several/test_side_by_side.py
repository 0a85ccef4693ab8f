"""Changes of different tables in one transaction are staged side by side, and raise where users expect them to."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, current_thread

import pyarrow as pa
import pytest
from several_tables import FIRST, OPTIMISTIC, Tables, rows

import lakelatch
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.failpoints import calling
from lakelatch.timeline.log.events import COMPLETE, ROLLBACK

SECOND = {1: 11, 2: 20}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def write_both(tables: Tables) -> None:
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))


def test_each_goes_on_while_the_other_one_is_staged(tables: Tables) -> None:
    """Both wait at their claims until the other one has come as far."""
    both = Barrier(2, timeout=30)
    with calling(lambda _: both.wait(), ["begin.after_claim"]):
        write_both(tables)
    assert tables.cut() == [SECOND, SECOND]


def test_what_is_wrong_with_rows_is_raised_where_they_are_given(tables: Tables) -> None:
    right, (first, second) = rows({1: 11}, 2), tables.paths
    no_key = right.set_column(0, "id", pa.array([None], pa.int64()))
    text = right.set_column(1, "v", pa.array(["eleven"]))
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        for wrong in (no_key, text, right.drop_columns(["v"])):
            with pytest.raises(InvalidRequest):
                tx.upsert(first, wrong)
        tx.upsert(first, right)
        tx.upsert(second, right)
    assert tables.cut() == [SECOND, SECOND]


class Failing:
    """Once, the store of the first table does not answer."""

    def __init__(self) -> None:
        self._failed = False

    def __call__(self, _: str) -> None:
        if current_thread().name.endswith("table0") and not self._failed:
            self._failed = True
            raise Unavailable("the store of table0 does not answer")


def test_what_befalls_a_change_is_raised_by_the_next_call_for_its_table(tables: Tables) -> None:
    """And by all others: a caller who tries that call again is not to commit the block without the change."""
    first, second = tables.paths
    with (
        calling(Failing(), ["begin.after_claim"]),
        pytest.raises(Unavailable, match="does not answer"),
        lakelatch.transaction(tables.paths, OPTIMISTIC) as tx,
    ):
        tx.upsert(first, rows({1: 11}, 2))
        tx.upsert(second, rows({1: 11}, 2))
        for _ in range(2):
            with pytest.raises(Unavailable, match="does not answer"):
                tx.to_arrow(first)
        with pytest.raises(Unavailable, match="does not answer"):
            tx.upsert(first, rows({1: 12}, 2))
    assert tables.cut() == [FIRST, FIRST]


def test_or_at_the_end_of_the_block_with_all_tables_as_they_were(tables: Tables) -> None:
    with calling(Failing(), ["begin.after_claim"]), pytest.raises(Unavailable, match="does not answer"):
        write_both(tables)
    assert tables.cut() == [FIRST, FIRST]
    log = tables.log(1)
    assert [event.kind for event in log.events_after(1, log.tail())] == [ROLLBACK, COMPLETE]
