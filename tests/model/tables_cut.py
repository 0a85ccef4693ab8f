"""A reader that takes a cut of several tables in `tables_model`: at one moment all of them were as it shows them.

It lists all logs twice: what was the same in both held between them. Then it reads the last slots, and if one of them
is a part of a transaction that is decided, which may have been so later, it lists all logs once more. If the part's
file was there beside the first listing, it was decided before.
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
            "again": self._again,
            "content": self._content,
            "asks": self._asks,
            "file": self._file,
            "confirm": self._confirm,
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
        yield "begins", changed(state, who, step="pass" if self.rules.cut_by == "two passes" else "content")

    # -- how far the logs go, twice -----------------------------------------------------------------------------------

    def _pass(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """The first listing of a log, and whether the file of its last slot is there; until it is read, that counts."""
        place = self.rules.cut[mine.at]
        number = len(state.tables[place].log)
        found = Tail(number, int(self.rules.cut_lists_files and number in state.tables[place].files), False)
        said = f"lists {table_name(place)} up to slot {found.number}"
        yield said, self._next(state, who, mine, "pass", "again", cut=(*mine.cut, found))

    def _again(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """The second listing: what is the same was so at one moment, that between the two."""
        place = self.rules.cut[mine.at]
        if len(state.tables[place].log) != mine.cut[mine.at].number:
            yield f"finds another tail of {table_name(place)}", self._cut_anew(state, who, mine)
        else:
            yield f"finds the same tail of {table_name(place)}", self._next(state, who, mine, "again", "content")

    # -- what the last slots say --------------------------------------------------------------------------------------

    def _content(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """A last slot, whether its file is there, and then the decision on it."""
        place = self.rules.cut[mine.at]
        table = state.tables[place]
        number = mine.cut[mine.at].number if self.rules.cut_by == "two passes" else len(table.log)
        is_intent = number > 0 and table.log[number - 1].kind == "intent"
        if is_intent and number not in table.files:
            yield f"finds an intent in {table_name(place)}", changed(state, who, step="asks", seen=number)
        else:
            known = COMMIT if number else ""
            is_later = self.rules.cut_by != "two passes" or not mine.cut[mine.at].counts
            after = self._found(state, who, mine, number, known, is_intent and is_later)
            yield f"reads {table_name(place)} up to slot {number}", after

    def _asks(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        says = self._asked(state, mine, mine.seen)
        if says == COMMIT or not self.rules.looks_for_file:
            yield f"reads {says or 'no decision'}", self._found(state, who, mine, mine.seen, says, True)
        else:
            yield f"reads {says or 'no decision'}", changed(state, who, step="file", known=says)

    def _file(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        says = COMMIT if self._is_shown(state, mine, mine.seen) else mine.known
        yield (
            f"looks for the file, and takes it for {says or 'undecided'}",
            self._found(state, who, mine, mine.seen, says, True),
        )

    def _asked(self, state: State, mine: Part, number: int) -> str:
        intent = state.tables[self.rules.cut[mine.at]].log[number - 1]
        return self.rules.says(state, intent) or (COMMIT if self.rules.undecided_counts else "")

    def _is_shown(self, state: State, mine: Part, number: int) -> bool:
        return number in state.tables[self.rules.cut[mine.at]].files

    def _found(self, state: State, who: int, mine: Part, number: int, known: str, is_intent: bool) -> State:
        """What was undecided when it was asked for was so before; what is decided may be later than the listings."""
        log = state.tables[self.rules.cut[mine.at]].log[:number]
        found = Tail(number, len(counting(log, known)), is_intent and not known)
        cut = (*mine.cut[: mine.at], found, *mine.cut[mine.at + 1 :])
        unsure = mine.unsure or (is_intent and known != "")
        state = changed(state, who, known="", seen=0)
        if mine.at + 1 < len(self.rules.cut):
            return changed(state, who, step="content", at=mine.at + 1, cut=cut, unsure=unsure)
        if self.rules.cut_by == "ids":
            return self._cut_by_ids(state, who, cut)
        if self.rules.cut_by == "one pass" or not (unsure and self.rules.cut_confirms):
            return end(changed(state, who, cut=cut), who, 1)
        return changed(state, who, step="confirm", at=0, cut=cut, unsure=False)

    # -- what was decided, at the same moment -------------------------------------------------------------------------

    def _confirm(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """One more listing behind the decisions, and whether what was undecided still is."""
        place, found = self.rules.cut[mine.at], mine.cut[mine.at]
        if len(state.tables[place].log) != found.number:
            yield f"finds another tail of {table_name(place)}", self._cut_anew(state, who, mine)
            return
        asks = found.undecided and self.rules.cut_asks_again
        after = changed(state, who, step="asks_again") if asks else self._confirmed(state, who, mine)
        yield f"finds the same tail of {table_name(place)}", after

    def _asks_again(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        says = self._asked(state, mine, mine.cut[mine.at].number)
        if says:
            after = self._cut_anew(state, who, mine)
        elif self.rules.looks_for_file:
            after = changed(state, who, step="file_again")
        else:
            after = self._confirmed(state, who, mine)
        yield f"asks again, and finds {says or 'no decision'}", after

    def _file_again(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        if self._is_shown(state, mine, mine.cut[mine.at].number):
            yield "finds the file", self._cut_anew(state, who, mine)
        else:
            yield "finds no file", self._confirmed(state, who, mine)

    def _confirmed(self, state: State, who: int, mine: Part) -> State:
        if mine.at + 1 < len(self.rules.cut):
            return changed(state, who, step="confirm", at=mine.at + 1)
        return end(state, who, 1)

    def _next(self, state: State, who: int, mine: Part, step: str, then: str, **values: object) -> State:
        """The same step at the next table, or another one at the first."""
        if mine.at + 1 < len(self.rules.cut):
            return changed(state, who, step=step, at=mine.at + 1, **values)
        return changed(state, who, step=then, at=0, **values)

    def _cut_anew(self, state: State, who: int, mine: Part) -> State:
        if mine.lost + 1 >= self.rules.passes_most:
            return end(state, who, 0)
        return changed(state, who, step="pass", at=0, seen=0, cut=(), unsure=False, lost=mine.lost + 1)

    def _cut_by_ids(self, state: State, who: int, cut: tuple[Tail, ...]) -> State:
        """A planted mistake: only a table that misses what another one has of the same transaction is read again."""
        has: list[set[int]] = []
        for place, found in zip(self.rules.cut, cut, strict=True):
            numbers = self._promises.committed(state, place)[: found.counts]
            has.append({state.tables[place].log[number - 1].who for number in numbers})
        for at, place in enumerate(self.rules.cut):
            for one in set().union(*has) - has[at]:
                if one < self._owners and place in self.rules.transactions[one]:
                    return changed(state, who, step="content", at=at, seen=0, cut=cut)
        return end(changed(state, who, cut=cut), who, 1)
