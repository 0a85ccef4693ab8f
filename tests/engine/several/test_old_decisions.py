"""Which decisions of transactions over several tables go, and which have to stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from several_tables import FIRST, OPTIMISTIC, Tables, killed_at, rows, values

import lakelatch
from lakelatch.errors import WriteConflict
from lakelatch.failpoints import calling
from lakelatch.timeline.log.commit_log import SLOTS_KEPT
from lakelatch.timeline.log.decisions import DECISIONS_FOLDER

TRANSACTIONS = 34  # of which one at least removes what is old


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def decisions(tables: Tables) -> set[str]:
    """The names of the decisions, and of what says that nobody needs them, in the first table."""
    return {one.name for one in Path(tables.paths[0], DECISIONS_FOLDER).iterdir()}


def go_on(tables: Tables) -> None:
    """The log of the first table goes on, until a transaction of it removes what is old."""
    for turn in range(2 * SLOTS_KEPT + 6):
        tables.write(0, {3: turn}, at=turn)
    for turn in range(TRANSACTIONS):
        with lakelatch.transaction(tables.paths[:1], OPTIMISTIC) as tx:
            tx.upsert(tables.paths[0], rows({3: turn}, at=100 + turn))


def decided_in_vain(tables: Tables) -> set[str]:
    """What is left of a transaction whose part in the second table meets a conflict, when its first one is prepared."""
    block = lakelatch.transaction(tables.paths, OPTIMISTIC)
    with pytest.raises(WriteConflict), block as tx:
        tx.to_arrow(tables.paths[1])
        tables.write(1, {1: 7})
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))
    return decisions(tables)


def test_an_abort_goes_that_its_owner_has_decided(tables: Tables) -> None:
    left = decided_in_vain(tables)
    assert len(left) == 2, "an abort, and that nobody needs it"
    go_on(tables)
    assert not left & decisions(tables) and tables.now()[1] == {1: 7, 2: 20}


def test_an_abort_goes_whose_transaction_has_tried_again(tables: Tables) -> None:
    """Others have taken its owner for dead, who was asleep, and has read what they have decided."""
    resolved = list[bool | None]()

    def abort(_: str) -> None:
        if not resolved:
            resolved.append(lakelatch.resolve(tables.paths[1]))

    with calling(abort, ["several.before_decision"]), lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))
    left = decisions(tables)
    assert resolved == [False] and len(left) == 4, "an abort and a commit"
    go_on(tables)
    assert not left & decisions(tables) and tables.now() == [{1: 11, 2: 20, 3: TRANSACTIONS - 1}, {1: 11, 2: 20}]


def test_an_abort_stays_whose_owner_may_be_asleep(tables: Tables) -> None:
    killed_at(tables, "several.before_decision@1")
    for number in range(2):
        tables.write(number, {2: 7}, at=3)
    (abort,) = decisions(tables)
    go_on(tables)
    assert abort in decisions(tables)


def test_the_decision_on_a_table_that_was_only_read_goes_with_the_slot_behind_it(tables: Tables) -> None:
    """Until then nothing but that decision says what has become of the read."""
    home, read = tables.paths
    with lakelatch.transaction(tables.paths, OPTIMISTIC, isolation="serializable") as tx:
        assert values(tx.to_arrow(read)) == FIRST
        tx.upsert(home, rows({1: 11}, 2))
    left = decisions(tables)
    assert len(left) == 2, "a commit, and for which slots it is needed"
    go_on(tables)
    assert left <= decisions(tables)
    tables.write(1, {1: 7})
    go_on(tables)
    assert not left & decisions(tables)


def test_decisions_go_whatever_rhythm_the_slots_of_transactions_have(tables: Tables) -> None:
    """Others commit to that table between any two transactions, so that these have each second slot: the odd ones."""
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        for path in tables.paths:
            tx.upsert(path, rows({1: 11}, 2))
    left = decisions(tables)
    assert len(left) == 2, "a commit, and that nobody needs it"
    while tables.log(0).tail().number < 2 * SLOTS_KEPT + 8:
        tables.write(0, {3: 0})
    for turn in range(TRANSACTIONS // 2):
        with lakelatch.transaction(tables.paths[:1], OPTIMISTIC) as tx:
            tx.upsert(tables.paths[0], rows({3: turn}, at=100 + turn))
        assert tables.log(0).tail().number % 2 == 1
        tables.write(0, {3: turn}, at=100 + turn)
    assert not left & decisions(tables)
