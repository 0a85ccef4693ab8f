"""A reader that takes a cut of several tables in `tables_model`: at one moment all of them were as it shows them.

It reads each tail, and the decision on it, then looks whether all of that is so still. What held in both passes held
between them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tables_promises import Promises
from tables_rules import TableRules
from tables_state import COMMIT, Part, State, Tail, changed, counting, end, table_name

Step = tuple[str, State]


class CutReader:
    """The steps of one."""

    def __init__(self, rules: TableRules, promises: Promises) -> None:
        self.rules = rules
        self._promises = promises
        self._owners = len(rules.transactions)
        self._steps = {
            "begin": self._begin,
            "pass": self._pass,
            "asks": self._asks,
            "file": self._file,
            "again": self._again,
            "asks_again": self._asks_again,
            "file_again": self._file_again,
        }

    def steps(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        yield from self._steps[mine.step](state, who, mine)

    def sees(self, state: State) -> State:
        """The state in which the reader was there at this moment."""
        if not self.rules.cut or state.parts[-1].step in ("begin", "over"):
            return state
        moments = state.parts[-1].moments | {self._promises.counts(state)}
        return changed(state, len(state.parts) - 1, moments=moments)

    def _begin(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        yield "begins", changed(state, who, step="pass")

    def _pass(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """The first pass: a tail, and then the decision on it."""
        place = self.rules.cut[mine.at]
        table = state.tables[place]
        number, undecided = len(table.log), False
        if number and table.log[-1].kind == "intent":
            undecided = number not in table.files
        if undecided:
            yield f"finds an intent in {table_name(place)}", changed(state, who, step="asks", seen=number)
        else:
            known = COMMIT if number else ""
            yield f"reads {table_name(place)} up to slot {number}", self._passed(state, who, mine, number, known)

    def _asks(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        says = self._asked(state, mine, mine.seen)
        if says == COMMIT or not self.rules.looks_for_file:
            yield f"reads {says or 'no decision'}", self._passed(state, who, mine, mine.seen, says)
        else:
            yield f"reads {says or 'no decision'}", changed(state, who, step="file", known=says)

    def _file(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        says = COMMIT if self._is_shown(state, mine, mine.seen) else mine.known
        yield (
            f"looks for the file, and takes it for {says or 'undecided'}",
            self._passed(state, who, mine, mine.seen, says),
        )

    def _asked(self, state: State, mine: Part, number: int) -> str:
        intent = state.tables[self.rules.cut[mine.at]].log[number - 1]
        return self.rules.says(state, intent) or (COMMIT if self.rules.undecided_counts else "")

    def _is_shown(self, state: State, mine: Part, number: int) -> bool:
        return number in state.tables[self.rules.cut[mine.at]].files

    def _passed(self, state: State, who: int, mine: Part, number: int, known: str) -> State:
        log = state.tables[self.rules.cut[mine.at]].log[:number]
        undecided = bool(log) and log[-1].kind == "intent" and not known
        found = Tail(number, len(counting(log, known)), undecided)
        state = changed(state, who, known="")
        cut = (*mine.cut[: mine.at], found, *mine.cut[mine.at + 1 :])
        if len(cut) < len(self.rules.cut):
            return changed(state, who, step="pass", at=mine.at + 1, seen=0, cut=cut)
        if self.rules.cut_by == "ids":
            return self._cut_by_ids(state, who, cut)
        if self.rules.cut_by == "one pass":
            return end(changed(state, who, cut=cut), who, 1)
        return changed(state, who, step="again", at=0, seen=0, cut=cut)

    def _again(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """The second pass: the tail, and whether what was undecided there still is."""
        place, found = self.rules.cut[mine.at], mine.cut[mine.at]
        if len(state.tables[place].log) != found.number:
            yield f"finds another tail of {table_name(place)}", self._cut_anew(state, who, mine)
            return
        asks = found.undecided and self.rules.cut_asks_again
        after = changed(state, who, step="asks_again") if asks else self._passed_again(state, who, mine)
        yield f"finds the same tail of {table_name(place)}", after

    def _asks_again(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        says = self._asked(state, mine, mine.cut[mine.at].number)
        if says:
            after = self._cut_anew(state, who, mine)
        elif self.rules.looks_for_file:
            after = changed(state, who, step="file_again")
        else:
            after = self._passed_again(state, who, mine)
        yield f"asks again, and finds {says or 'no decision'}", after

    def _file_again(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        if self._is_shown(state, mine, mine.cut[mine.at].number):
            yield "finds the file", self._cut_anew(state, who, mine)
        else:
            yield "finds no file", self._passed_again(state, who, mine)

    def _passed_again(self, state: State, who: int, mine: Part) -> State:
        if mine.at + 1 < len(self.rules.cut):
            return changed(state, who, step="again", at=mine.at + 1)
        return end(state, who, 1)

    def _cut_anew(self, state: State, who: int, mine: Part) -> State:
        if mine.lost + 1 >= self.rules.passes_most:
            return end(state, who, 0)
        return changed(state, who, step="pass", at=0, seen=0, cut=(), lost=mine.lost + 1)

    def _cut_by_ids(self, state: State, who: int, cut: tuple[Tail, ...]) -> State:
        """A planted mistake: only a table that misses what another one has of the same transaction is read again."""
        has: list[set[int]] = []
        for place, found in zip(self.rules.cut, cut, strict=True):
            numbers = self._promises.committed(state, place)[: found.counts]
            has.append({state.tables[place].log[number - 1].who for number in numbers})
        for at, place in enumerate(self.rules.cut):
            for one in set().union(*has) - has[at]:
                if one < self._owners and place in self.rules.transactions[one]:
                    return changed(state, who, step="pass", at=at, seen=0, cut=cut)
        return end(changed(state, who, cut=cut), who, 1)
