"""What is explored of transactions over several tables: the sound protocol, and one planted mistake at a time."""

from __future__ import annotations

from dataclasses import replace

from search import Case, Planted
from tables_model import TableModel
from tables_rules import TableRules

TWO = TableRules()
ONE = replace(TWO, transactions=((0, 1),), only_read=((),))
ACROSS = replace(TWO, transactions=((0, 1), (1, 0)))
PATIENT = replace(TWO, patient=True, races_most=2)
READ = replace(TWO, only_read=((0,), (1,)), serializable=True)  # each writes the table that the other one reads
CUT = replace(ONE, cut=(0, 1), conflicts=False, passes_most=1)
CIRCLE = replace(TWO, transactions=((0, 1), (1, 2), (2, 0)), only_read=((), (), ()), conflicts=False)
AFTER = replace(ONE, begins_later=True, slots_kept=0, writers=(0, 1), races_most=1)
TWO_AFTER = replace(AFTER, transactions=TWO.transactions, only_read=TWO.only_read, writers=(0,))
LATE = replace(ONE, resolvers=(0,), late_puts=1, writers=(0, 1))
THREE = replace(TWO, transactions=((0, 1, 2), (0, 1, 2)))
WITHOUT_PART = "a transaction is committed without one of its parts"
LOST = "an update was lost"
OTHERWISE = "a log says otherwise than the decision"
UNCOMMITTED = "readers see what was not committed"
DENIED = "told 'not committed'"
NO_MOMENT = "a cut shows what was at no moment"
FOR_EVER = "participants wait for each other for ever"


def _case(name: str, rules: TableRules) -> Case:
    return Case(f"tables: {name}", TableModel(rules))


def _planted(name: str, promise: str, step: str, rules: TableRules) -> Planted:
    return Planted(f"tables: {name}", TableModel(rules), promise, step)


TABLES_SMALL = [
    _case("two transactions", replace(TWO, conflicts=False, races_most=1)),
    _case("two that cross, two tries each", replace(ACROSS, attempts=2, races_most=1)),
    _case("two, and a writer", replace(TWO, writers=(1,))),
    _case("two that each read what the other one writes", READ),
    _case("nobody is taken for dead", replace(PATIENT, writers=(0,))),
    _case("nor those that cross", replace(PATIENT, transactions=ACROSS.transactions, attempts=2, writers=(0,))),
    _case("nor those in nobody's way", replace(PATIENT, transactions=ACROSS.transactions, attempts=2, conflicts=False)),
    _case("nor three in a circle", replace(CIRCLE, patient=True, attempts=3, races_most=2)),
    _case("nor over three tables", replace(PATIENT, transactions=((0, 1, 2), (1, 2)), writers=(1,))),
    _case("rolled back by others, a late put", replace(ONE, recoveries=((0, 0),), writers=(1,), late_puts=1)),
    _case("late puts, and one who resolves", replace(ONE, resolvers=(0,), late_puts=2, writers=(0,))),
    _case("slots are removed", replace(ONE, slots_kept=0, writers=(0, 1), conflicts=False, races_most=1)),
    _case("slots since its cut are removed", AFTER),
    _case("two, slots since their cut are removed", TWO_AFTER),
    _case("three tables", replace(THREE, conflicts=False, races_most=1)),
    _case("three transactions", replace(TWO, transactions=((0, 1), (1, 2), (0, 2)), only_read=((), (), ()))),
    _case("a cut beside two writers alone", replace(CUT, transactions=(), only_read=(), writers=(0, 1), passes_most=3)),
    _case("a cut beside a writer", replace(CUT, writers=(0,), passes_most=2)),
    _case("a cut beside two that read", replace(READ, cut=(0, 1), passes_most=1)),
    _case("a cut beside two transactions", replace(CUT, transactions=TWO.transactions, only_read=TWO.only_read)),
    _case("both are rolled back", replace(TWO, recoveries=((0, 0), (1, 1)), conflicts=False)),
    _case("resolved, late puts, slots are removed", replace(LATE, slots_kept=0, conflicts=False)),
]

TABLES_LONG = (
    "tables: a cut beside two that read",
    "tables: a cut beside two transactions",
    "tables: three transactions",
    "tables: two, slots since their cut are removed",
    "tables: nor three in a circle",
    "tables: both are rolled back",
    "tables: resolved, late puts, slots are removed",
)

ALONE = {
    "beside a writer, a rollback, one who resolves": replace(ONE, writers=(0,), recoveries=((0, 1),), resolvers=(0,)),
    "two that cross": ACROSS,
    "a late put": replace(ONE, writers=(0,), late_puts=1),
    "a cut beside a writer": replace(CUT, writers=(0,)),
}

TABLES_LARGE = [
    _case("two, two tries each, a writer", replace(TWO, attempts=2, races_most=1, writers=(1,))),
    _case("three tables, two writers", replace(THREE, writers=(0, 2))),
    _case("three tables, a cut", replace(THREE, cut=(0, 1, 2), passes_most=1)),
    _case("late puts, and one who resolves", replace(LATE, races_most=1, slots_kept=1)),
    _case("a cut beside two writers", replace(CUT, writers=(0, 1))),
    _case("a cut, late puts, a rollback", replace(CUT, recoveries=((0, 0),), writers=(1,), late_puts=1)),
]

TABLES_MISTAKES = [
    _planted(
        "decided before the last intent", WITHOUT_PART, "x0 decides to commit", replace(ONE, all_intents_first=False)
    ),
    _planted(
        "an intent is not verified",
        WITHOUT_PART,
        "x0 creates slot 1 of table a, which was removed",
        replace(ONE, slots_kept=0, verifies=False, writers=(0, 0), conflicts=False),
    ),
    _planted(
        "an undecided intent is archived",
        WITHOUT_PART,
        "an intent of table a is removed",
        replace(ONE, keeps_undecided=False),
    ),
    _planted(
        "appended behind an undecided intent",
        LOST,
        "w1 creates slot 2 of table b",
        replace(ONE, waits_for_decision=False, writers=(1,)),
    ),
    _planted("an abort overtakes a commit", LOST, "w1 asks to abort x0", replace(ONE, create_only=False, writers=(0,))),
    _planted(
        "deduced from silence",
        LOST,
        "w1 finds x0 undecided, and dead",
        replace(ONE, reads_decision=False, writers=(0,)),
    ),
    _planted(
        "a file is not looked for behind the decision",
        OTHERWISE,
        "x0's decision is deleted",
        replace(ONE, looks_for_file=False, writers=(0,)),
    ),
    _planted(
        "an abort is deleted whose owner has not read it",
        UNCOMMITTED,
        "x0's decision is deleted",
        replace(ONE, deletes="of others", recoveries=((0, 0), (0, 1))),
    ),
    _planted(
        "an abort is deleted that a log does not say yet",
        UNCOMMITTED,
        "a late commit decision arrives",
        replace(ONE, deletes="unsaid", late_puts=1, writers=(0,)),
    ),
    _planted(
        "files before the decision", UNCOMMITTED, "x0 creates slot 1 of table a", replace(ONE, shows_decided=False)
    ),
    _planted(
        "told before the files",
        "and readers do not see it",
        "x0 decides to commit",
        replace(ONE, tells_shown=False),
    ),
    _planted(
        "an owner believes the object",
        DENIED,
        "x0 asks to abort it",
        replace(ONE, deletes="shown", looks_behind=False, late_puts=1, writers=(0, 1)),
    ),
    _planted(
        "resolved by the object",
        "resolved wrongly",
        "resolver 1 reads nothing",
        replace(ONE, looks_behind=False, resolvers=(0,)),
    ),
    _planted(
        "conflicts since the part began",
        LOST,
        "w1 creates slot 1 of table a",
        replace(ONE, checks_from_cut=False, writers=(0,)),
    ),
    _planted(
        "conflicts since the cut, as far as there are slots",
        LOST,
        "x1 begins its parts",
        replace(TWO_AFTER, looks_at_timeline=False),
    ),
    _planted(
        "what is read has no intent",
        "there is no serial order",
        "x1 decides to commit",
        replace(READ, read_intents=False),
    ),
    _planted(
        "what is read is looked at behind the intents",
        "there is no serial order",
        "x0 finds nothing in table a",
        replace(READ, transactions=((1, 0),), only_read=((0,),), writers=(0,), cut=(0, 1), read_intents=False),
    ),
    _planted("nobody gives way", FOR_EVER, "x1 reads nothing", replace(ACROSS, patient=True, gives_way="")),
    _planted(
        "both give way",
        "all have aborted",
        "x0 gives way to x1",
        replace(ACROSS, patient=True, gives_way="both", attempts=2, races_most=2, conflicts=False),
    ),
    _planted(
        "only the decision is waited for",
        FOR_EVER,
        "x0's decision is deleted",
        replace(PATIENT, looks_at_tail=False, looks_for_file=False, writers=(0,)),
    ),
    _planted(
        "a cut that lists nothing behind a decision",
        NO_MOMENT,
        "cut reads table a up to slot 1",
        replace(CUT, transactions=((0,),), writers=(1,), cut_confirms=False),
    ),
    _planted("a cut of one pass", NO_MOMENT, "cut reads commit", replace(CUT, cut_by="one pass")),
    _planted(
        "a cut by ids",
        NO_MOMENT,
        "cut reads table b up to slot 1",
        replace(CUT, transactions=(), only_read=(), writers=(0, 1), cut_by="ids"),
    ),
    _planted("an undecided one counts", NO_MOMENT, "cut reads commit", replace(CUT, undecided_counts=True)),
    _planted(
        "an undecided one is aborted for a cut", NO_MOMENT, "cut reads no decision", replace(CUT, cut_asks_again=False)
    ),
    _planted(
        "a cut does not look for the file",
        NO_MOMENT,
        "x0's decision is deleted",
        replace(CUT, transactions=((0,),), writers=(1,), looks_for_file=False),
    ),
]
