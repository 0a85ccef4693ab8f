"""Transactions over several tables: an intent in each table's log, then one decision, put if absent (0042).

An intent is what the code calls a prepared event. Whoever meets one that nothing decides takes its owner for dead, at
any time, as heartbeats are for liveness; or waits for it, for as long as it takes (`patient`), which shows what blocks.
Nobody appends behind an intent before it has read the decision, and the next slot carries that. The object may go when
its owner has made all files, so what is not there is looked for among the files. Nothing of locks is in it. Clocks are
all behind, so a slot's number is its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from own_steps import OwnSteps
from tables_cut import CutReader
from tables_promises import Promises
from tables_rules import TableRules
from tables_stage import begin_parts, may_go
from tables_state import (
    ABORT,
    COMMIT,
    INTENTS,
    Event,
    Late,
    Part,
    State,
    Table,
    append,
    changed,
    counting,
    decide,
    delete,
    end,
    show,
    table_name,
    with_table,
    without,
)

Step = tuple[str, State]


class TableModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: TableRules) -> None:
        self.rules = rules
        self._owners = len(rules.transactions)
        self._writers = self._owners + len(rules.writers)
        self._recoveries = self._writers + len(rules.recoveries)
        self._cut = self._recoveries + len(rules.resolvers)
        self._tables = 1 + max((*rules.cut, *rules.writers, *(t for tables in rules.transactions for t in tables)))
        self._promises = Promises(rules)
        self._reader = CutReader(rules, self._promises)
        names = ("begin", "stage", "look", "ask", "file", "kill", "show", "create", "verify")
        ends = ("show_own", "decide", "read", "behind", "abort", "files")
        steps = {name: getattr(self, f"_{name}") for name in names + ends}
        self._steps: dict[str, Callable[[State, int, Part], Iterator[Step]]] = steps
        self._own_steps: OwnSteps[State] = OwnSteps(State)

    def forget(self) -> None:
        self._own_steps.forget()

    def first(self) -> State:
        parts = (Part(),) * (self._cut + bool(self.rules.cut))
        none = ("",) * (self._owners * self.rules.attempts)
        return State(parts, (Table(),) * self._tables, none, none)

    def broken_promise(self, state: State) -> str | None:
        broken = self._promises.broken(state)
        if broken is None and self.rules.patient and next(self.steps(state), None) is None:
            return self._promises.broken_at_rest(state)
        return broken

    def steps(self, state: State) -> Iterator[Step]:
        for label, after in self._all_steps(state):
            yield label, self._reader.sees(after)

    def ends_alone(self, state: State, who: int) -> bool:
        """Whether a participant gets to its end by steps of its own, whatever these are, if all others stop here."""
        mine = state.parts[who]
        if mine.step == "over":
            return True
        afters = [after for _, after in self._steps_of(state, who, mine)]
        return bool(afters) and all(self.ends_alone(after, who) for after in afters)

    def _all_steps(self, state: State) -> Iterator[Step]:
        yield from self._own_steps.around(state, self._around)
        for decision, says in enumerate(state.decisions):
            if says and may_go(self.rules, self._promises, state, decision, says):
                yield f"{self._owner(decision)}'s decision is deleted", delete(state, decision)
        for who, mine in enumerate(state.parts):
            if mine.step == "begin":  # which may look at others
                yield from self._labelled(state, who, mine)
            elif mine.step != "over":
                yield from self._own_steps.steps(state, 0, who, self._labelled)

    def _labelled(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for done, after in self._steps_of(state, who, mine):
            yield f"{self.label(who)} {done}", after

    def _around(self, state: State) -> Iterator[Step]:
        for late in state.air:
            rest = state._replace(air=without(state.air, late))
            if late.table < 0:
                yield "a late commit decision arrives", decide(rest, late.decision, COMMIT)
            elif len(rest.tables[late.table].log) + 1 == late.number:
                yield f"a late intent arrives in {table_name(late.table)}", append(rest, late.table, late.event)
            else:
                yield "a late intent finds its number taken", rest
        if not self.rules.keeps_undecided:
            yield from self._dropped(state)

    def _steps_of(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        return self._reader.steps(state, who, mine) if who == self._cut else self._steps[mine.step](state, who, mine)

    def label(self, who: int) -> str:
        kinds = ((self._owners, "x"), (self._writers, "w"), (self._recoveries, "r"), (self._cut, "resolver "))
        return next((f"{kind}{who}" for bound, kind in kinds if who < bound), "cut")

    # -- around ---------------------------------------------------------------------------------------------------

    def _owner(self, decision: int) -> str:
        return f"x{decision // self.rules.attempts}"

    def _dropped(self, state: State) -> Iterator[Step]:
        """A planted mistake: an archiver takes an intent that nothing decides for one that never will be."""
        for place, table in enumerate(state.tables):
            if table.log and table.log[-1].kind in INTENTS and not self.rules.says(state, table.log[-1]):
                yield (
                    f"an intent of {table_name(place)} is removed",
                    with_table(state, place, table._replace(log=table.log[:-1])),
                )

    # -- up to a slot ---------------------------------------------------------------------------------------------

    def _place(self, who: int, mine: Part) -> int:
        if who < self._owners:
            return self.rules.transactions[who][mine.at]
        if who < self._writers:
            return self.rules.writers[who - self._owners]
        return self.rules.recoveries[who - self._writers][1]

    def _begin(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        if who >= self._recoveries:
            if state.parts[self.rules.resolvers[who - self._recoveries]].step != "begin":
                yield "begins", changed(state, who, step="read", unsure=True)
        elif who >= self._writers:
            target, place = self.rules.recoveries[who - self._writers]
            victim = state.parts[target]
            if victim.step not in ("begin", "stage") or victim.attempt:
                mark = 0 if not victim.marks else self._mark(state, place, target, victim)
                yield f"takes x{target} for dead", changed(state, who, step="look", marks=(mark,))
        else:
            tables = self.rules.transactions[who] if who < self._owners else (self._place(who, mine),)
            marks = tuple(self._promises.shown(state, table) for table in tables)
            later = who < self._owners and self.rules.begins_later
            yield "begins", changed(state, who, step="stage" if later else "look", marks=marks)

    def _stage(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        begun, overtaken = begin_parts(self.rules, self._promises, state, who)
        yield "begins its parts", changed(state, who, step="look", begun=begun, overtaken=overtaken)

    def _since(self, mine: Part) -> int:
        """The slot since which a part may have been ended, and since which the log has to say what is in its way."""
        return (mine.begun or mine.marks)[mine.at]

    def _mark(self, state: State, place: int, target: int, victim: Part) -> int:
        return (victim.begun or victim.marks)[self.rules.transactions[target].index(place)]

    def _look(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        place = self._place(who, mine)
        table = state.tables[place]
        number = len(table.log)
        if self._since(mine) + 1 < self.rules.lowest(table):
            yield "was missed for too long", self._fail(state, who)
        elif not number or table.log[-1].kind not in INTENTS:
            yield from self._check(state, who, mine, number, "")
        elif number in table.files:
            yield from self._check(state, who, mine, number, COMMIT)
        else:
            yield f"finds an intent in {table_name(place)}", changed(state, who, step="ask", seen=number)

    def _ask(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        log = state.tables[self._place(who, mine)].log
        if len(log) != mine.seen and self.rules.looks_at_tail:
            yield "finds another tail", self._look_anew(state, who, mine)
            if self.rules.patient:
                return
        intent = log[mine.seen - 1]
        says = self.rules.says(state, intent)
        if says == COMMIT or not self.rules.waits_for_decision:
            yield from self._knows(state, who, mine, says)
        elif self.rules.looks_for_file:
            yield f"reads {says or 'nothing'}", changed(state, who, step="file", known=says)
        else:
            yield from self._file(state, who, mine._replace(known=says))

    def _file(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """After the decision: one that is not there may have been removed, and then all files were made before."""
        table = state.tables[self._place(who, mine)]
        intent, says = table.log[mine.seen - 1], mine.known
        if self.rules.looks_for_file and mine.seen in table.files:
            says = COMMIT
        if says:
            yield from self._knows(state, who, mine, says)
            return
        if not self.rules.patient:
            yield f"finds x{intent.who} undecided, and dead", changed(state, who, step="kill", known="")
        elif self.rules.looks_for_file and (len(table.log) != mine.seen or self.rules.says(state, intent)):
            yield "asks again", changed(state, who, step="ask", known="")
        first = {"greater": intent.who < who, "both": True}.get(self.rules.gives_way, False)
        if first and mine.slots:
            yield f"gives way to x{intent.who}", changed(state, who, step="abort", known="", gave_way=True)

    def _knows(self, state: State, who: int, mine: Part, says: str) -> Iterator[Step]:
        if mine.gave_way:
            yield "has waited", self._look_anew(state, who, mine)
        else:
            yield from self._check(state, who, mine, mine.seen, says)

    def _look_anew(self, state: State, who: int, mine: Part) -> State:
        at = 0 if mine.gave_way else mine.at
        return changed(state, who, step="look", at=at, seen=0, known="", gave_way=False)

    def _kill(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        intent = state.tables[self._place(who, mine)].log[mine.seen - 1]
        state = decide(state, self.rules.decision(intent.who, intent.attempt), ABORT, not self.rules.create_only)
        if self.rules.reads_decision:
            yield f"asks to abort x{intent.who}", changed(state, who, step="ask")
        else:
            yield from self._knows(state, who, mine, ABORT)

    def _check(self, state: State, who: int, mine: Part, number: int, known: str) -> Iterator[Step]:
        """What is decided at a tail, and the decision on it; the log up to there cannot change."""
        place = self._place(who, mine)
        log = state.tables[place].log[:number]
        counts = counting(log, known)
        since = log[self._since(mine) :]
        if who >= self._writers:
            target = self.rules.recoveries[who - self._writers][0]
            committed = any(log[one - 1].who == target for one in counts)
            if committed or any(event.kind == "rollback" and event.who == target for event in since):
                yield "finds it ended", end(state, who, 1)
                return
        elif any(event.kind == "rollback" and event.who == who for event in since):
            yield f"finds itself rolled back in {table_name(place)}", self._fail(state, who)
            return
        elif (place in mine.overtaken or any(one > self._since(mine) for one in counts)) and self._minds(who, place):
            yield f"finds a conflict in {table_name(place)}", self._fail(state, who)
            return
        if who < self._owners and place in self.rules.only_read[who] and not self.rules.read_intents:
            yield f"finds nothing in {table_name(place)}", self._verified(state, who, mine, 0)
            return
        missing = number in counts and number not in state.tables[place].files
        step = "show" if missing else "create"
        yield (
            f"goes on from slot {number} of {table_name(place)}",
            changed(state, who, step=step, seen=number, known=known),
        )

    def _minds(self, who: int, place: int) -> bool:
        if who >= self._owners:
            return self.rules.conflicts
        return self.rules.checks_from_cut and (self.rules.conflicts or place in self.rules.only_read[who])

    def _fail(self, state: State, who: int) -> State:
        return changed(state, who, step="abort", failed=True) if who < self._owners else end(state, who, -1)

    def _show(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        place = self._place(who, mine)
        yield (
            f"shows slot {mine.seen} of {table_name(place)}",
            changed(show(state, place, mine.seen), who, step="create"),
        )

    def _event(self, who: int, mine: Part) -> Event:
        if who >= self._writers:
            return Event(self.rules.recoveries[who - self._writers][0], "rollback", (), 0, mine.known)
        kind = "commit"
        if who < self._owners:
            kind = "read" if self._place(who, mine) in self.rules.only_read[who] else "intent"
        return Event(who, kind, mine.marks, mine.attempt, mine.known)

    def _create(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        place, event = self._place(who, mine), self._event(who, mine)
        table, number = state.tables[place], mine.seen + 1
        if who < self._owners and state.late_puts < self.rules.late_puts:
            late = Late(self.rules.decision(who, mine.attempt), place, number, event)
            in_air = state._replace(air=(*state.air, late), late_puts=state.late_puts + 1)
            yield (
                f"hears nothing of its intent in {table_name(place)}",
                changed(in_air, who, step="abort", unsure=True, failed=True),
            )
        if mine.seen == len(table.log):
            yield (
                f"creates slot {number} of {table_name(place)}",
                self._created(append(state, place, event), who, mine, number),
            )
        elif number < self.rules.lowest(table):
            yield (
                f"creates slot {number} of {table_name(place)}, which was removed",
                self._created(state, who, mine, number),
            )
        else:
            yield f"finds slot {number} of {table_name(place)} taken", self._lose(state, who, mine)

    def _lose(self, state: State, who: int, mine: Part) -> State:
        if mine.lost < self.rules.races_most:
            return changed(state, who, step="look", seen=0, known="", lost=mine.lost + 1)
        return changed(state, who, step="abort", failed=True) if who < self._owners else end(state, who, 0)

    def _created(self, state: State, who: int, mine: Part, number: int) -> State:
        """What follows a created slot: a look at the tail, which can say nothing while no slot is removed."""
        if self.rules.slots_kept < 9 and (self.rules.verifies or who >= self._owners):
            return changed(state, who, step="verify")
        return self._verified(state, who, mine, number)

    def _verify(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        table, number = state.tables[self._place(who, mine)], mine.seen + 1
        if number >= self.rules.lowest(table):
            yield "finds its slot in the log", self._verified(state, who, mine, number)
        elif who >= self._owners and number in table.files and table.log[number - 1].who == who:
            yield "finds its file", end(state, who, 1)
        else:
            yield "finds its slot below the watermark", self._lose(state, who, mine)

    def _verified(self, state: State, who: int, mine: Part, number: int) -> State:
        if who >= self._writers:
            return end(state, who, 1)
        if who >= self._owners:
            return changed(state, who, step="show_own", seen=number, known="")
        slots, tables = (*mine.slots, number), self.rules.transactions[who]
        if not self.rules.shows_decided:
            state = show(state, tables[mine.at], number)
        if len(slots) == len(tables):
            decided = not self.rules.all_intents_first
            return changed(state, who, step="files" if decided else "decide", at=0, slots=slots, seen=0, known="")
        early = not self.rules.all_intents_first and len(slots) + 1 == len(tables)
        return changed(
            state, who, step="decide" if early else "look", at=mine.at + 1, slots=slots, seen=0, known="", lost=0
        )

    # -- after it -------------------------------------------------------------------------------------------------

    def _show_own(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        yield "shows its file", end(show(state, self._place(who, mine), mine.seen), who, 1)

    def _decide(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        decision = self.rules.decision(who, mine.attempt)
        if state.late_puts < self.rules.late_puts:
            in_air = state._replace(air=(*state.air, Late(decision)), late_puts=state.late_puts + 1)
            yield "hears nothing of its commit", changed(in_air, who, step="read", unsure=True)
        after = decide(state, decision, COMMIT)
        if state.decisions[decision]:
            yield "finds a decision", changed(state, who, step="read")
        elif len(mine.slots) < len(self.rules.transactions[who]):
            yield "decides to commit", changed(after, who, step="look")
        else:
            yield "decides to commit", self._finish(after, who, mine, COMMIT)

    def _read(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        says = state.decisions[self._own_decision(who, mine)]
        if says and mine.unsure and self.rules.looks_behind:
            yield f"reads {says}", changed(state, who, step="behind", known=says)
        elif says:
            yield f"reads {says}", self._finish(state, who, mine, says)
        else:
            yield "reads nothing", changed(state, who, step="abort")
            if who < self._owners and len(mine.slots) == len(self.rules.transactions[who]):
                yield "reads nothing, and asks again", changed(state, who, step="decide")

    def _own_decision(self, who: int, mine: Part) -> int:
        return self.rules.decision(self._own(who), mine.attempt)

    def _own(self, who: int) -> int:
        """Whose decision is asked for: the own one, or that of the transaction whose caller was told nothing."""
        return who if who < self._owners else self.rules.resolvers[who - self._recoveries]

    def _behind(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """What the first table says: it is asked after the object, which may have been deleted before."""
        place = self.rules.transactions[self._own(who)][0]
        table, number = state.tables[place], self._promises.intent_of(state, place, self._own(who), mine.attempt)
        found = COMMIT if number in table.files else ""
        if 0 < number < len(table.log) and not found:
            found = table.log[number].carries if number + 1 >= self.rules.lowest(table) else ABORT
        done = f"looks at the table, and finds {found or 'nothing'}"
        yield done, self._finish(state, who, mine, found or mine.known)

    def _finish(self, state: State, who: int, mine: Part, says: str) -> State:
        if says == COMMIT:
            if who >= self._recoveries or not self.rules.tells_shown:
                return end(state, who, 1)
            return changed(state, who, step="files", at=0, known="")
        if who < self._owners and mine.attempt + 1 < self.rules.attempts and not mine.failed:
            return self._try_again(state, who, mine)
        return end(state, who, -1)

    def _try_again(self, state: State, who: int, mine: Part) -> State:
        """The next try, with what was read and staged for this one; whom it has given way to comes first."""
        again = Part("look", 0, mine.marks, mine.begun, mine.overtaken, attempt=mine.attempt + 1)
        if mine.gave_way:
            again = again._replace(step="ask", at=mine.at, seen=mine.seen, gave_way=True)
        return state._replace(parts=(*state.parts[:who], again, *state.parts[who + 1 :]))

    def _abort(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        if not mine.slots and not mine.unsure:
            yield "gives up", self._finish(state, who, mine, ABORT)
            return
        decided = decide(state, self._own_decision(who, mine), ABORT, not self.rules.create_only)
        yield "asks to abort it", changed(decided, who, step="read")

    def _files(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        tables = self.rules.transactions[who]
        place = tables[mine.at]
        if place not in self.rules.only_read[who]:
            state = show(state, place, mine.slots[mine.at])
        last = mine.at + 1 == len(tables)
        after = end(state, who, 1) if last else changed(state, who, at=mine.at + 1)
        yield f"shows its file in {table_name(place)}", after
