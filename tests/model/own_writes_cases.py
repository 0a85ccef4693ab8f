"""What is explored of transactions that read what they write: the sound protocol, and one planted mistake at a time."""

from __future__ import annotations

from dataclasses import replace

from own_writes_model import READ, REPLACE, WRITE, OwnWritesModel, OwnWritesRules
from search import Case, Planted

READS_FIRST = OwnWritesRules()
WRITES_FIRST = replace(READS_FIRST, program=(WRITE, READ, WRITE, READ))
ONLY_WRITES = replace(READS_FIRST, program=(WRITE, WRITE))
OVERWRITES = replace(READS_FIRST, program=(READ, WRITE, REPLACE, READ, WRITE, READ))
BUSY = (WRITE, REPLACE, REPLACE, WRITE)


OWN_WRITES_SMALL = [
    Case(f"own writes: {name}, {mode}", OwnWritesModel(replace(rules, others=BUSY, optimistic=mode == "optimistic")))
    for name, rules in {
        "reads first": READS_FIRST,
        "writes first": WRITES_FIRST,
        "only writes": ONLY_WRITES,
        "overwrites": OVERWRITES,
    }.items()
    for mode in ("optimistic", "non-blocking")
]


def _planted(name: str, promise: str, step: str, rules: OwnWritesRules) -> Planted:
    return Planted(f"own writes: {name}", OwnWritesModel(rules), promise, step)


MOVES = replace(READS_FIRST, optimistic=False)
HALF = "a reader sees some of several changes"

OWN_WRITES_MISTAKES = [
    _planted("later commits are seen", "since its moment", "read 2", replace(READS_FIRST, hides_later=False)),
    _planted(
        "files go where others have moved rows since",
        "does not read what it has written",
        "read 2",
        replace(MOVES, places_at_moment=False),
    ),
    _planted(
        "what was changed before the first read is not looked at",
        "does not read what it has written",
        "read 1",
        replace(WRITES_FIRST, checks_first_read=False),
    ),
    _planted(
        "conflicts since each change began",
        "overwrites what it has not read",
        "puts its slot",
        replace(READS_FIRST, checks_from_moment=False),
    ),
    _planted(
        "a change is in the way of the next one",
        "with nobody in its way",
        "finds its own change in its way",
        replace(ONLY_WRITES, minds_own=True),
    ),
    _planted("only the first change moves", "where nobody reads", "moves its rows", replace(MOVES, moves_all=False)),
    _planted("a slot for each change", HALF, "change 1 of the log is shown", replace(ONLY_WRITES, one_slot=False)),
    _planted(
        "readers do not ask for the rest of a slot",
        HALF,
        "change 1 of the log is shown",
        replace(ONLY_WRITES, leaves_out_half=False),
    ),
]
