"""The commit log with everything but its races left out: small enough to try every interleaving.

Each participant adds its events, by default with no lock at all. Between any two steps any other one may run; a put
may arrive late, or once more after it was answered; and removed slots make their numbers free again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from log_promises import Promises
from own_steps import OwnSteps

PLAN = "plan"  # in `Rules.roles`: schedules a compaction; any other role but these three writes to that file group
COMPACTOR = "compactor"  # schedules one and then carries it out
CANCELLER = "canceller"  # asks that the plan never commits
OVER = ("committed", "gave up")
FINE: frozenset[str] = frozenset()
COARSE = frozenset({"show_last", "list", "create", "show_own"})  # glued to the step before; slots go at once


@dataclass(frozen=True)
class Rules:
    """The protocol and the bounds; each value that differs from the default of the first ones plants one mistake."""

    roles: tuple[str, ...] = ("a", "a", "b")
    slots_kept: int = 1
    races_most: int = 2  # so often may a participant lose a slot before it gives up
    late_puts: int = 1  # for so many of them, the first put is late or repeated
    glued: frozenset[str] = FINE
    leases_end: int | None = None  # None: no lock. Else so often a lease ends under a holder who is not told
    granted_twice: int = 0  # so often the lock is granted although it is held
    looks_at_watermark: bool = True  # a slot below the watermark does not simply count
    own_file_decides: bool = True  # nor does it simply not count
    knows_what_it_missed: bool = True  # who began below the watermark ends
    rolls_forward: bool = True  # the last slot's file is there before the next slot
    shows_last_alone: bool = True  # and none is made for what was read in the place of a slot that others have followed
    time: str = "fresh"  # "own": the next one after the tail's, by clocks that are all behind; two may take the same.
    # "kept" across a lost race; "early": taken before the lock
    resolves: str = "reads"  # after a lost answer; "loss": takes it for one; "blind": so, and does not know itself
    plan_in_log: bool = True
    cancel_in_log: bool = True
    executor_shows_last: bool = True  # the tail's file is there before an executor looks for a cancelled plan
    numbered: bool = True  # False: no slots, only files whose names hold the time, as in Hudi


class Slot(NamedTuple):
    """A slot's content; `view` has a bit for each participant that a plan found committed, or a write is based on."""

    number: int
    who: int
    kind: str
    time: int
    watermark: int
    view: int


class Part(NamedTuple):
    """One participant; `event` counts what it has added before."""

    step: str = "begin"
    event: int = 0
    start: int = 0  # the tail at its beginning
    view: int = 0
    seen: int = 0  # the tail that its slot would follow
    time: int = 0
    races_lost: int = 0


class State(NamedTuple):
    parts: tuple[Part, ...]
    clock: int = 0
    slots: tuple[Slot, ...] = ()  # what lies in the storage
    truth: tuple[Slot, ...] = ()  # every slot that was created in order: what has happened, whoever knows it
    beside: tuple[Slot, ...] = ()  # what a planted mistake keeps out of the log
    files: tuple[tuple[int, str, int], ...] = ()  # (who, kind, time) in the order in which readers got to see them
    told: frozenset[tuple[int, str]] = frozenset()  # whose callers were told "committed", or "cancelled"
    air: tuple[Slot, ...] = ()  # puts that may still arrive
    late_puts: int = 0
    owner: int = -1  # whom the lock service takes for the holder
    leases_ended: int = 0
    granted_twice: int = 0


Step = tuple[str, State]


class LogModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._promises = Promises(rules.roles)
        names = [
            "begin",
            "acquire",
            "look",
            "show_last",
            "list",
            "take_time",
            "create",
            "wonder",
            "resolve",
            "show_own",
        ]
        self._steps = {name: getattr(self, f"_{name}") for name in names}
        self._own_steps: OwnSteps[State] = OwnSteps(State)

    def forget(self) -> None:
        self._own_steps.forget()

    def first(self) -> State:
        return State(tuple(Part() for _ in self.rules.roles))

    def broken_promise(self, state: State) -> str | None:
        return self._promises.broken(state)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._own_steps.around(state, self._around)
        begun: dict[str, bool] = {}
        for who, mine in enumerate(state.parts):
            role = self.rules.roles[who]
            # Those of one role are alike until they begin, so it is enough that they begin in this order.
            if mine.step == "begin" and not begun.get(role, True):
                continue
            begun[role] = mine.step != "begin" or mine.event > 0
            if mine.step not in OVER:
                yield from self._own_steps.steps(state, 0, who, self._glued)

    def _glued(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for done, after in self._steps[mine.step](state, who, mine):
            now = after.parts[who]
            if now.step in self.rules.glued and now.step != mine.step:
                for more, last in self._glued(after, who, now):
                    yield f"w{who} {done}, {more.partition(' ')[2]}", last
            else:
                yield f"w{who} {done}", after

    def _around(self, state: State) -> Iterator[Step]:
        """What happens without a participant."""
        newest = state.slots[-1].watermark if state.slots else 0
        for slot in state.slots:
            if slot.number < newest:
                kept = tuple(other for other in state.slots if other is not slot)
                yield f"slot {slot.number} is removed", state._replace(slots=kept)
        for slot in state.air:
            rest = state._replace(air=tuple(other for other in state.air if other is not slot))
            yield f"a put of w{slot.who} for slot {slot.number} arrives late", _put(rest, slot) or rest
        if state.owner >= 0 and state.leases_ended < (self.rules.leases_end or 0):
            ended = state._replace(owner=-1, leases_ended=state.leases_ended + 1)
            yield f"the lease of w{state.owner} ends", ended

    # -- one participant --------------------------------------------------------------------------------------------

    def _begin(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        kind = self._kind(who, mine)
        if kind == "cancel" and not any(shown == "plan" for _, shown, _ in state.files):
            return
        if kind == "complete" and self.rules.executor_shows_last and state.truth:
            state = _show(state, state.truth[-1])
        if kind == "complete" and any(shown == "cancel" for _, shown, _ in state.files):
            yield "finds its plan cancelled", _set(state, who, step="gave up")
            return
        time = 0
        if self.rules.time == "early":
            time = state.clock + 1
            state = state._replace(clock=time)
        tail = _tail(state)
        view = mine.view
        if kind == "commit":
            view = _bits(slot.who for slot in state.truth if self._same_group(slot, who))
        step = "look" if self.rules.leases_end is None else "acquire"
        begun = _set(state, who, step=step, start=tail, view=view, time=time)
        if step == "look" and kind in ("plan", "cancel"):  # these do not ask what has happened since they began
            yield from self._look(begun, who, begun.parts[who])
        else:
            yield f"begins at {tail}", begun

    def _acquire(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        if state.owner < 0:
            yield "gets the lock", _set(state._replace(owner=who), who, step="look")
        elif state.granted_twice < self.rules.granted_twice:
            twice = state._replace(owner=who, granted_twice=state.granted_twice + 1)
            yield "gets the lock as well", _set(twice, who, step="look")

    def _look(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        tail = _tail(state)
        mark = state.slots[-1].watermark if state.slots else 0
        if self.rules.numbered:
            since = [slot for slot in state.slots if slot.number > mine.start and slot.number >= mark]
        else:
            since = [slot for slot in state.truth if slot.number > mine.start]
        in_time = mine.start + 1 >= mark or self._kind(who, mine) in ("plan", "cancel")
        if self.rules.knows_what_it_missed and not in_time:
            yield "was missed for too long", _give_up(state, who)
        elif self._conflicts(since, state, who, mine):
            yield "finds a conflict", _give_up(state, who)
        else:
            yield f"checks up to {tail}", _set(state, who, step="show_last", seen=tail)

    def _conflicts(self, since: list[Slot], state: State, who: int, mine: Part) -> bool:
        kind = self._kind(who, mine)
        if kind == "commit":
            itself = self.rules.resolves != "blind"
            return any(self._same_group(slot, who) and (itself or slot.who != who) for slot in since)
        if kind == "complete":
            return any(slot.kind == "cancel" for slot in since)
        return kind == "cancel" and any(slot.kind == "complete" for slot in state.truth)

    def _show_last(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        # What is read now, perhaps long after the listing, may be gone, or be a zombie's in the same number.
        read = next((slot for slot in state.slots if slot.number == mine.seen), None)
        is_last = _tail(state) == mine.seen or not self.rules.shows_last_alone
        if self.rules.rolls_forward and read is not None and is_last:
            state = _show(state, read)
        next_step = "list" if self._kind(who, mine) == "plan" else "take_time"
        yield f"shows slot {mine.seen}", _set(state, who, step=next_step)

    def _list(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        found = _bits(other for other, kind, _ in state.files if kind == "commit")
        yield "lists what its plan takes in", _set(state, who, step="take_time", view=found)

    def _take_time(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        if mine.time and (self.rules.time == "kept" or (self.rules.time == "early" and not mine.races_lost)):
            yield f"keeps time {mine.time}", _set(state, who, step="create")
            return
        if self.rules.time == "own":
            time = next((slot.time for slot in state.truth if slot.number == mine.seen), 0) + 1
        else:
            time = state.clock + 1
        clock = max(state.clock, time)
        yield f"takes time {time}", _set(state._replace(clock=clock), who, step="create", time=time)

    def _create(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        kind = self._kind(who, mine)
        number = mine.seen + 1
        slot = Slot(number, who, kind, mine.time, max(0, number - self.rules.slots_kept), mine.view)
        if (kind == "plan" and not self.rules.plan_in_log) or (kind == "cancel" and not self.rules.cancel_in_log):
            beside = state._replace(beside=(*state.beside, slot), files=(*state.files, (who, kind, mine.time)))
            yield f"writes its {kind} beside the log", self._done(beside, who, mine)
            return
        if not self.rules.numbered:  # the name holds the writer's own time, so that it is never taken
            slot = slot._replace(number=_tail(state) + 1, watermark=0)
            state = state._replace(truth=(*state.truth, slot), slots=(*state.slots, slot))
            yield f"creates its file of time {mine.time}", self._done(_show(state, slot), who, mine)
            return
        if self.rules.glued and number <= _tail(state):
            unused = state.clock - (not self.rules.late_puts)  # nobody has heard of the time, so that it may come again
            yield from self._lose(f"finds slot {number} taken", state._replace(clock=unused), who, mine)
        created = _put(state, slot)
        if created is not None and self.rules.glued:
            created = created._replace(slots=tuple(s for s in created.slots if s.number >= created.slots[-1].watermark))
        late = state.late_puts < self.rules.late_puts
        if late:
            in_air = state._replace(air=(*state.air, slot), late_puts=state.late_puts + 1)
            yield f"asks for slot {number}, and hears nothing", _set(in_air, who, step="wonder")
        if created is None and not self.rules.glued:
            yield f"finds slot {number} taken", _set(state, who, step="wonder")
        if created is None:
            return
        yield f"creates slot {number}", _set(created, who, step="resolve")
        if late:
            again = created._replace(air=(*state.air, slot), late_puts=state.late_puts + 1)
            yield f"creates slot {number}, and the request is repeated", _set(again, who, step="resolve")

    def _wonder(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        number, kind = mine.seen + 1, self._kind(who, mine)
        there = next((slot for slot in state.slots if slot.number == number), None)
        if self.rules.resolves != "reads" and (there is None or there.who == who):
            yield "takes it for a loss", _set(state, who, step="look")
        elif (there and there.who == who and there.kind == kind) or (who, kind, mine.time) in state.files:
            yield "finds its slot or its file", _set(state, who, step="resolve")
        elif there:
            yield from self._lose(f"finds another in slot {number}", state, who, mine)
        else:
            yield "finds nothing and asks again", _set(state, who, step="create")

    def _resolve(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        number = mine.seen + 1
        below = self.rules.looks_at_watermark and state.slots[-1].watermark > number
        shown = self.rules.own_file_decides and (who, self._kind(who, mine), mine.time) in state.files
        if below and not shown:
            state = state._replace(slots=tuple(slot for slot in state.slots if slot.number != number))
            yield from self._lose(f"finds slot {number} below the watermark", state, who, mine)
        else:
            yield "is sure", _set(state, who, step="show_own")

    def _show_own(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        state = _show(state, Slot(mine.seen + 1, who, self._kind(who, mine), mine.time, 0, 0))
        yield "shows its file", self._done(state, who, mine)

    def _done(self, state: State, who: int, mine: Part) -> State:
        state = _free(state, who)._replace(told=state.told | {(who, self._kind(who, mine))})
        if self.rules.roles[who] == COMPACTOR and mine.event == 0:
            again = Part(event=1, view=mine.view)
            return state._replace(parts=(*state.parts[:who], again, *state.parts[who + 1 :]))
        return _set(state, who, step="committed", start=0, view=0, seen=0, time=0, races_lost=0)

    def _lose(self, why: str, state: State, who: int, mine: Part) -> Iterator[Step]:
        if mine.races_lost == self.rules.races_most:
            yield why, _give_up(state, who)
        else:
            yield why, _set(state, who, step="look", races_lost=mine.races_lost + 1)

    def _kind(self, who: int, mine: Part) -> str:
        role = self.rules.roles[who]
        if role == COMPACTOR:
            return ("plan", "complete")[mine.event]
        return {PLAN: "plan", CANCELLER: "cancel"}.get(role, "commit")

    def _same_group(self, slot: Slot, who: int) -> bool:
        return slot.kind == "commit" and self.rules.roles[slot.who] == self.rules.roles[who]


def without_lock(state: State) -> State:
    """What is left of a state if nobody looks at the lock."""
    parts = tuple(mine._replace(step="look") if mine.step == "acquire" else mine for mine in state.parts)
    return state._replace(parts=parts, owner=-1, leases_ended=0, granted_twice=0)


def _put(state: State, slot: Slot) -> State | None:
    """Creates a slot if its number is free; None if it is not."""
    if any(other.number == slot.number for other in state.slots):
        return None
    if slot.number == _tail(state) + 1:
        state = state._replace(truth=(*state.truth, slot))
    return state._replace(slots=tuple(sorted((*state.slots, slot))))


def _tail(state: State) -> int:
    return state.slots[-1].number if state.slots else 0


def _set(state: State, who: int, **values: object) -> State:
    changed = state.parts[who]._replace(**values)  # type: ignore[arg-type]
    return State((*state.parts[:who], changed, *state.parts[who + 1 :]), *state[1:])


def _give_up(state: State, who: int) -> State:
    return _set(_free(state, who), who, step="gave up", start=0, view=0, seen=0, time=0, races_lost=0)


def _free(state: State, who: int) -> State:
    return state._replace(owner=-1) if state.owner == who else state


def _show(state: State, slot: Slot) -> State:
    file = (slot.who, slot.kind, slot.time)
    return state if file in state.files else state._replace(files=(*state.files, file))


def _bits(participants: Iterable[int]) -> int:
    bits = 0
    for who in participants:
        bits |= 1 << who
    return bits
