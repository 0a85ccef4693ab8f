"""The commit log with everything but its races left out: small enough to try every interleaving.

Writers add one event each, with no lock at all. Between any two steps any other writer may run, one answer of each
may be lost, and removed slots make their numbers free again. A writer that died is one that takes no further step, and
every promise is looked at in every state, so deaths need no step of their own. `explore` goes breadth first: the trace
that it gives for a broken promise is a shortest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

PLAN = "plan"  # in `Rules.groups`: this writer schedules a compaction instead of writing to a file group
_OVER = ("committed", "gave up")


@dataclass(frozen=True)
class Rules:
    """The protocol; each flag that is turned off plants one mistake."""

    groups: tuple[str, ...] = ("a", "a", "b")  # what each writer writes to
    slots_kept: int = 1
    races_most: int = 2  # so often may a writer lose a slot before it gives up
    looks_at_watermark: bool = True  # a slot below the watermark does not simply count
    own_file_decides: bool = True  # nor does it simply not count
    rolls_forward: bool = True  # the last slot's file is there before the next slot
    fresh_time: bool = True  # a lost race takes another time
    knows_own_slot: bool = True  # a lost answer is settled by reading
    plan_in_log: bool = True
    numbered: bool = True  # False: no slots, only files whose names hold the time, as in Hudi


class Entry(NamedTuple):
    """A slot's content; `includes` is what a plan found committed, `base` what a write was based on."""

    number: int
    writer: int
    time: int
    watermark: int
    base: frozenset[int]


class Writer(NamedTuple):
    step: str = "begin"
    start: int = 0  # the tail at its beginning
    base: frozenset[int] = frozenset()
    seen: int = 0  # the tail that its slot would follow
    time: int = 0
    races_lost: int = 0
    answers_lost: int = 0


class State(NamedTuple):
    writers: tuple[Writer, ...]
    clock: int = 0
    slots: tuple[Entry, ...] = ()  # what lies in the storage
    truth: tuple[Entry, ...] = ()  # every slot that was created in order: what has happened, whoever knows it
    beside: tuple[Entry, ...] = ()  # plans that a planted mistake keeps out of the log
    files: tuple[tuple[int, int], ...] = ()  # (writer, time) in the order in which readers got to see them
    told: frozenset[int] = frozenset()  # writers whose callers were told that they committed


Step = tuple[str, State]


class Model:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def first(self) -> State:
        return State(tuple(Writer() for _ in self.rules.groups))

    def steps(self, state: State) -> Iterator[Step]:
        newest = state.slots[-1].watermark if state.slots else 0
        for entry in state.slots:
            if entry.number < newest:
                yield f"slot {entry.number} is removed", state._replace(slots=_without(state.slots, entry))
        for writer, mine in enumerate(state.writers):
            if mine.step in _OVER:
                continue
            for done, after in getattr(self, f"_{mine.step}")(state, writer, mine):
                yield f"w{writer} {done}", after

    def _begin(self, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        tail = _tail(state)
        yield f"begins at {tail}", _set(state, writer, step="look", start=tail, base=self._before(state, writer))

    def _look(self, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        if self._is_plan(writer):
            found = frozenset(entry.writer for entry in state.truth)
            yield "plans", _set(state, writer, step="show_last", seen=_tail(state), base=found)
        elif any(e.number > mine.start and self._same_group(e.writer, writer) for e in state.truth):
            yield "finds a conflict", _set(state, writer, step="gave up")
        else:
            yield f"checks up to {_tail(state)}", _set(state, writer, step="show_last", seen=_tail(state))

    def _show_last(self, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        last = [entry for entry in state.slots if entry.number == mine.seen]
        if last and self.rules.rolls_forward:
            state = _show(state, last[0].writer, last[0].time)
        yield f"shows slot {mine.seen}", _set(state, writer, step="take_time")

    def _take_time(self, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        if mine.time and not self.rules.fresh_time:
            yield f"keeps time {mine.time}", _set(state, writer, step="create")
            return
        time = state.clock + 1
        yield f"takes time {time}", _set(state._replace(clock=time), writer, step="create", time=time)

    def _create(self, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        number = mine.seen + 1
        entry = Entry(number, writer, mine.time, max(0, number - self.rules.slots_kept), mine.base)
        if self._is_plan(writer) and not self.rules.plan_in_log:
            yield "writes its plan beside the log", _set(state._replace(beside=(entry,)), writer, step="committed")
            return
        if not self.rules.numbered:  # the name holds the writer's own time, so that it is never taken
            state = state._replace(truth=(*state.truth, entry), files=(*state.files, (writer, mine.time)))
            yield f"creates its file of time {mine.time}", _set(state, writer, step="committed")
            return
        if any(other.number == number for other in state.slots):
            yield from self._lose(f"finds slot {number} taken", state, writer, mine)
            return
        in_order = number == _tail(state) + 1
        state = state._replace(slots=tuple(sorted((*state.slots, entry))))
        if in_order:
            state = state._replace(truth=(*state.truth, entry))
        yield f"creates slot {number}", _set(state, writer, step="settle")
        if not mine.answers_lost:
            yield f"creates slot {number}, unheard", _set(state, writer, step="wonder", answers_lost=1)

    def _wonder(self, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        if not self.rules.knows_own_slot:
            yield "takes it for a loss", _set(state, writer, step="look")
            return
        mine_lies_there = any(entry.number == mine.seen + 1 and entry.writer == writer for entry in state.slots)
        found = mine_lies_there or (writer, mine.time) in state.files
        yield "looks for its slot or file", _set(state, writer, step="settle" if found else "look")

    def _settle(self, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        below = self.rules.looks_at_watermark and state.slots[-1].watermark > mine.seen + 1
        shown = self.rules.own_file_decides and (writer, mine.time) in state.files
        if below and not shown:
            yield from self._lose(f"finds slot {mine.seen + 1} below the watermark", state, writer, mine)
        else:
            yield "is sure", _set(state, writer, step="show_own")

    def _show_own(self, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        state = _show(state, writer, mine.time)
        yield "shows its file", _set(state._replace(told=state.told | {writer}), writer, step="committed")

    def _lose(self, why: str, state: State, writer: int, mine: Writer) -> Iterator[Step]:
        again = mine.races_lost < self.rules.races_most
        yield why, _set(state, writer, step="look" if again else "gave up", races_lost=mine.races_lost + 1)

    def _is_plan(self, writer: int) -> bool:
        return self.rules.groups[writer] == PLAN

    def _same_group(self, one: int, other: int) -> bool:
        return self.rules.groups[one] == self.rules.groups[other]

    def _before(self, state: State, writer: int) -> frozenset[int]:
        return frozenset(entry.writer for entry in state.truth if self._same_group(entry.writer, writer))

    # -- promises ---------------------------------------------------------------------------------------------------

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        happened = [entry.writer for entry in state.truth]
        if len(set(happened)) < len(happened):
            return "an operation is in the log twice"
        if not state.told <= set(happened):
            return "a caller was told 'committed', and the log knows nothing of it"
        if any(mine.step == "gave up" and writer in happened for writer, mine in enumerate(state.writers)):
            return "a caller was told 'not committed', and it is in the log"
        if not {writer for writer, _ in state.files} <= set(happened):
            return "readers see a file that is not in the log"
        if _falls(entry.time for entry in state.truth):
            return "times do not increase along the log"
        if _falls(time for _, time in state.files):
            return "files appeared out of the order of their times"
        for place, entry in enumerate(state.truth):
            earlier = {e.writer for e in state.truth[:place] if self._same_group(e.writer, entry.writer)}
            if not self._is_plan(entry.writer) and entry.base != earlier:
                return "an update was lost"
        for plan in (*state.truth, *state.beside):
            earlier = {e.writer for e in state.truth if e.time < plan.time and not self._is_plan(e.writer)}
            if self._is_plan(plan.writer) and not earlier <= plan.base:
                return "a plan misses a commit that is older than itself"
        return None


@dataclass(frozen=True)
class Result:
    """`problem` is None if every promise held in all `states`; else `trace` is a shortest way to break it."""

    states: int
    problem: str | None = None
    trace: tuple[str, ...] = ()


def explore(rules: Rules) -> Result:
    """Looks at every state that can be reached."""
    model = Model(rules)
    first = model.first()
    came_from: dict[State, tuple[str, State] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        problem = model.broken_promise(state)
        if problem is not None:
            trace: list[str] = []
            step = came_from[state]
            while step is not None:
                trace.append(step[0])
                step = came_from[step[1]]
            return Result(len(came_from), problem, tuple(reversed(trace)))
        for done, after in model.steps(state):
            if after not in came_from:
                came_from[after] = (done, state)
                waiting.append(after)
    return Result(len(came_from))


def _tail(state: State) -> int:
    return state.slots[-1].number if state.slots else 0


def _set(state: State, writer: int, **values: object) -> State:
    changed = state.writers[writer]._replace(**values)  # type: ignore[arg-type]
    return state._replace(writers=(*state.writers[:writer], changed, *state.writers[writer + 1 :]))


def _show(state: State, writer: int, time: int) -> State:
    return state if (writer, time) in state.files else state._replace(files=(*state.files, (writer, time)))


def _without(slots: tuple[Entry, ...], gone: Entry) -> tuple[Entry, ...]:
    return tuple(entry for entry in slots if entry is not gone)


def _falls(times: Iterator[int]) -> bool:
    last = 0
    for time in times:
        if time <= last:
            return True
        last = time
    return False
