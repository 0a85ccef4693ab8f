"""What must hold in every state of `tables_model`, whatever the participants do."""

from __future__ import annotations

from collections.abc import Hashable

from tables_rules import TableRules
from tables_state import COMMIT, INTENTS, Event, State

_CUT = -1  # in the place of a transaction


class Promises:
    """Looks at states; what depends on the tables and the decisions alone is looked at once."""

    def __init__(self, rules: TableRules) -> None:
        self._rules = rules
        self._owners = len(rules.transactions)
        self._seen: dict[Hashable, str | None] = {}
        self._committed: dict[Hashable, list[int]] = {}

    def broken(self, state: State) -> str | None:
        """The first promise that does not hold."""
        shared = state.tables, state.fates
        if shared not in self._seen:
            self._seen[shared] = self._broken_in_tables(state)
        return self._seen[shared] or (
            self._wrong_for_callers(state) or self._wrong_answer(state) or self._wrong_cut(state)
        )

    def broken_at_rest(self, state: State) -> str | None:
        """The same of a state in which nobody can take a step, and nobody has died."""
        if any(part.step not in ("over", "begin") for part in state.parts):
            return "participants wait for each other for ever"
        if not any(self.committed(state, place) for place in range(len(state.tables))):
            return "all have aborted"
        if not self._rules.conflicts and any(part.told < 0 for part in state.parts):
            return "nothing was in its way, and it was given up"
        return None

    # -- what has happened ----------------------------------------------------------------------------------------

    def fate(self, state: State, event: Event) -> str:
        return state.fates[self._rules.decision(event.who, event.attempt)]

    def committed(self, state: State, place: int) -> list[int]:
        """The slots of a table that count, by what was decided first."""
        log = state.tables[place].log
        key = log, state.fates
        if key not in self._committed:
            self._committed[key] = [
                number
                for number, event in enumerate(log, 1)
                if event.kind == "commit" or (event.kind == "intent" and self.fate(state, event) == COMMIT)
            ]
        return self._committed[key]

    def counts(self, state: State) -> tuple[int, ...]:
        """How many commits each table of the cut has at this moment."""
        return tuple(len(self.committed(state, place)) for place in self._rules.cut)

    def shown(self, state: State, place: int) -> int:
        """The slot up to which who reads a table now has read it: an intent that nothing decides is not in it."""
        log = state.tables[place].log
        undecided = bool(log) and log[-1].kind in INTENTS and not self.fate(state, log[-1])
        return len(log) - undecided

    def intent_of(self, state: State, place: int, who: int, attempt: int) -> int:
        """The slot of an intent, 0 if there is none."""
        for number, event in enumerate(state.tables[place].log, 1):
            if event.kind in INTENTS and (event.who, event.attempt) == (who, attempt):
                return number
        return 0

    # -- promises -------------------------------------------------------------------------------------------------

    def _broken_in_tables(self, state: State) -> str | None:
        broken = self._torn(state) or self._not_serial(state)
        for place, table in enumerate(state.tables):
            committed = self.committed(state, place)
            if broken is None and not set(table.files) <= set(committed):
                broken = "readers see what was not committed"
            if broken is None and list(table.files) != committed[: len(table.files)]:
                broken = "an incremental reader has passed a commit that it never saw"
            if broken is None and any(number not in table.files for number in committed if number < len(table.log)):
                broken = "a committed file is missing below the tail"
            for event, behind in zip(table.log, table.log[1:], strict=False):
                if broken is None and event.kind == "intent" and behind.carries != self.fate(state, event):
                    broken = "a log says otherwise than the decision"
        return broken

    def _torn(self, state: State) -> str | None:
        for decision, fate in enumerate(state.fates):
            who, attempt = divmod(decision, self._rules.attempts)
            if fate != COMMIT:
                continue
            for place in self._rules.transactions[who]:
                if place in self._rules.only_read[who]:
                    continue
                if not self.intent_of(state, place, who, attempt):
                    return "a transaction is committed without one of its parts"
                if any(event.kind == "rollback" and event.who == who for event in state.tables[place].log):
                    return "a part was both committed and rolled back"
        return None

    def _not_serial(self, state: State, cut: tuple[int, ...] = ()) -> str | None:
        """Whether those that committed can be put in no order in which each has read what those before it wrote.

        Without `serializable`, what was only read counts for nothing, so the shortest circle is a lost update. `cut`:
        how many commits of each table a reader has seen.
        """
        after: dict[int, set[int]] = {}
        for place, table in enumerate(state.tables):
            committed = self.committed(state, place)
            wrote = {table.log[number - 1].who: number for number in committed}
            marks = self._read_at(state, place, set(wrote))
            if cut:
                marks[_CUT] = (0, *committed)[cut[self._rules.cut.index(place)]]
            for reader, mark in marks.items():
                for one, number in wrote.items():
                    if one == reader:
                        continue
                    if number <= mark or number < wrote.get(reader, 0):
                        after.setdefault(one, set()).add(reader)
                    if number > mark:
                        after.setdefault(reader, set()).add(one)
        if not any(_reached(one, after) for one in after):
            return None
        return "there is no serial order" if self._rules.serializable else "an update was lost"

    def _read_at(self, state: State, place: int, wrote: set[int]) -> dict[int, int]:
        """Up to which slot each that committed has read a table."""
        if not self._rules.conflicts:
            return {}
        marks = {}
        for who, tables in enumerate(self._rules.transactions):
            if place in tables and (who in wrote or (self._rules.serializable and self._is_committed(state, who))):
                written = next(table for table in tables if table not in self._rules.only_read[who])
                intents = (event for event in state.tables[written].log if event.kind == "intent" and event.who == who)
                event = next(event for event in intents if self.fate(state, event) == COMMIT)
                marks[who] = event.marks[tables.index(place)]
        for event in state.tables[place].log:
            if event.kind == "commit":
                marks[event.who] = event.marks[0]
        return marks

    def _is_committed(self, state: State, who: int) -> bool:
        return COMMIT in state.fates[who * self._rules.attempts : (who + 1) * self._rules.attempts]

    def _wrong_for_callers(self, state: State) -> str | None:
        for who, mine in enumerate(state.parts[: self._owners + len(self._rules.writers)]):
            first = who * self._rules.attempts
            if mine.attempt and COMMIT in state.fates[first : first + mine.attempt]:
                return "an attempt that was given up is committed"
            if mine.told:
                wrong = self._wrong_for_caller(state, who, mine.told > 0)
                if wrong is not None:
                    return wrong
        return None

    def _wrong_for_caller(self, state: State, who: int, committed: bool) -> str | None:
        for place in self._written(who):
            table = state.tables[place]
            found = [number for number in self.committed(state, place) if table.log[number - 1].who == who]
            if found and not committed:
                return "a caller was told 'not committed', and it is"
            if committed and not found:
                return "a caller was told 'committed', and it is not"
            if committed and found[0] not in table.files:
                return "a caller was told 'committed', and readers do not see it"
        return None

    def _written(self, who: int) -> tuple[int, ...]:
        if who >= self._owners:
            return (self._rules.writers[who - self._owners],)
        return tuple(place for place in self._rules.transactions[who] if place not in self._rules.only_read[who])

    def _wrong_answer(self, state: State) -> str | None:
        """What those were told who asked for a transaction's end."""
        first = len(state.parts) - len(self._rules.resolvers) - bool(self._rules.cut)
        for mine, target in zip(state.parts[first:], self._rules.resolvers, strict=False):
            committed = state.fates[target * self._rules.attempts] == COMMIT
            if mine.told and committed != (mine.told > 0):
                return "an answer that was lost was resolved wrongly"
        return None

    def _wrong_cut(self, state: State) -> str | None:
        if not self._rules.cut or not state.parts[-1].cut or not state.parts[-1].told:
            return None
        mine = state.parts[-1]
        counts = tuple(found.counts for found in mine.cut)
        if counts not in mine.moments:
            return "a cut shows what was at no moment"
        return self._not_serial(state, counts) if self._rules.serializable else None


def _reached(one: int, after: dict[int, set[int]]) -> bool:
    """Whether one comes after itself."""
    reached, found = set[int](), set(after[one])
    while found:
        reached |= found
        found = {more for each in found for more in after.get(each, ())} - reached
    return one in reached
