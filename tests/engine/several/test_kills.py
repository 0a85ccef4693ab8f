"""A writer of several tables that is killed, at each step: what it wrote is in all of them or in none."""

from __future__ import annotations

from pathlib import Path

import pytest
from several_tables import FIRST, OPTIMISTIC, QUICK, Tables, killed_at, rows

import lakelatch
from lakelatch.errors import Unavailable
from lakelatch.failpoints import calling
from lakelatch.timeline.log.events import COMPLETE

WRITTEN = {1: 11, 2: 20}
#: Where it is killed, and whether it is committed then; visits are those of two parts.
POINTS = {
    "begin.after_claim@1": False,
    "begin.after_claim@2": False,
    "mark.after@1": False,
    "data.after@2": False,
    "commit.after_check@1": False,
    "commit.before_slot@1": False,
    "commit.after_slot@1": False,
    "commit.before_slot@2": False,
    "commit.after_slot@2": False,
    "several.before_decision@1": False,
    "several.after_decision@1": True,
    "commit.after_projection@1": True,
    "commit.after_projection@2": True,
    "cleanup.after_markers@1": True,
}


@pytest.mark.parametrize("point", POINTS)
def test_it_is_in_all_tables_or_in_none(tmp_path: Path, point: str) -> None:
    tables, wanted = Tables(tmp_path), WRITTEN if POINTS[point] else FIRST
    killed_at(tables, point)
    assert tables.cut() == [wanted, wanted]
    for number in (1, 0):
        tables.write(number, {3: 30}, at=3)
    assert tables.now() == [{**wanted, 3: 30}] * 2 == tables.cut()
    with lakelatch.transaction(tables.paths, {**OPTIMISTIC, **QUICK}) as tx:
        for path in tables.paths:
            tx.upsert(path, rows({2: 22}, 3))
    assert tables.cut() == [{**wanted, 2: 22, 3: 30}] * 2
    for number, path in enumerate(tables.paths):
        log = tables.log(number)
        times = [event.time for event in log.events_after(0, log.tail())]
        assert times == sorted(set(times)) and log.tail().events[-1].kind == COMPLETE
        assert lakelatch.verify(path).findings == ()


class LostOnce:
    """Once, while it is on, the store does not answer after a slot."""

    is_on = False

    def __call__(self, _: str) -> None:
        if self.is_on:
            self.is_on = False
            raise Unavailable("the store does not answer")


def test_a_lost_answer_to_what_a_change_does_first_leaves_no_doubt_of_the_transaction(tmp_path: Path) -> None:
    """The change rolls back what a dead writer has left: whatever becomes of that, the block has committed nothing."""
    tables, lost, committed = Tables(tmp_path), LostOnce(), 0
    killed_at(tables, "data.after@2")
    with calling(lost, ["commit.after_slot"]), pytest.raises(Unavailable, match=r"nothing.*was committed.*table\d"):
        for _ in range(100):  # until the dead one is known to be dead
            with lakelatch.transaction(tables.paths, {**OPTIMISTIC, **QUICK}) as tx:
                lost.is_on = True
                for path in tables.paths:
                    tx.arrow_table(path).update("id = 1", {"v": "v + 1"})
                lost.is_on = False
            committed += 1
    assert tables.cut() == [{**FIRST, 1: FIRST[1] + committed}] * 2
