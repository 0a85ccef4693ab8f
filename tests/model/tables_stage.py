"""Where the parts of a transaction begin that has read before, and which decisions may go, in `tables_model`."""

from __future__ import annotations

from tables_promises import Promises
from tables_rules import TableRules
from tables_state import ABORT, State


def begin_parts(
    rules: TableRules, promises: Promises, state: State, who: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The slot up to which each table was, and the tables in which others have committed since it was read.

    They are on the timeline, where whoever begins first makes the file of the last slot, if nobody has.
    """
    tables, marks = rules.transactions[who], state.parts[who].marks
    begun = tuple(promises.shown(state, place) for place in tables)
    overtaken = []
    for place, mark, slot in zip(tables, marks, begun, strict=True):
        table = state.tables[place]
        there = {*table.files, *(one for one in promises.committed(state, place) if one == slot)}
        between = [one for one in there if mark < one <= slot]
        if any(rules.looks_at_timeline or one >= rules.lowest(table) for one in between):
            overtaken.append(place)
    return begun, tuple(overtaken)


def may_go(rules: TableRules, promises: Promises, state: State, decision: int, says: str) -> bool:
    """Whether a decision may be deleted now."""
    if not rules.deletes:
        return False
    who, attempt = divmod(decision, rules.attempts)
    if says == ABORT:
        return _is_not_needed(rules, promises, state, who, attempt)
    if rules.deletes == "shown":
        written = set(rules.transactions[who]) - set(rules.only_read[who])
        intents = {place: promises.intent_of(state, place, who, attempt) for place in written}
        return all(number in state.tables[place].files for place, number in intents.items())
    return state.parts[who].told > 0


def _is_not_needed(rules: TableRules, promises: Promises, state: State, who: int, attempt: int) -> bool:
    """Whether an abort may go: its owner has gone on, and each log with an intent says by itself that it is void."""
    mine = state.parts[who]
    is_past = mine.step == "over" or attempt < mine.attempt
    intents = ((place, promises.intent_of(state, place, who, attempt)) for place in rules.transactions[who])
    is_said = all(number < len(state.tables[place].log) for place, number in intents if number)
    return (is_past or rules.deletes == "of others") and (is_said or rules.deletes == "unsaid")
