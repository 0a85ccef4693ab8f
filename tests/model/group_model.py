"""Group commit: writers that lost a slot leave records, and whoever leads commits them with its own, in one slot.

A slot holds several events, each with its own time and file. Everybody may lead at any time, as turns and patience are
for liveness; a listing of the records may lack any of them, and a record may be there twice, or again after it was
removed. A writer that moves its files has its record withdrawn by the log first; a recovery may take anybody for dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from group_promises import Promises
from group_state import (
    Event,
    Part,
    Record,
    Slot,
    State,
    changed,
    end,
    events_of,
    names_of,
    not_shown,
    put,
    show,
    tail_of,
    tell,
    without,
)
from own_steps import OwnSteps

ENDS = ("commit", "rollback")
FINE: frozenset[str] = frozenset()
COARSE = frozenset({"look", "leave", "move"})  # glued to the step before


@dataclass(frozen=True)
class GroupRules:
    """The protocol and the bounds; each value that differs from the default of the first ones plants one mistake."""

    groups: tuple[str, ...] = ("a", "a", "b")  # the file group that each writes to, under optimistic control; "": in
    # nobody's way
    slots_kept: int = 9
    races_most: int = 1  # so often may a writer lose a slot before it stops
    alone_first: bool = True  # a writer leaves its record when it has lost a slot, and not before
    removed_at_once: bool = False  # what the watermark has passed goes with the slot that moves it
    late_puts: int = 0  # for so many slots, the put is late or repeated
    late_lists: bool = True  # a listing of the records may lack any
    doubled_records: bool = False  # each may be found twice, under two names
    lists_first: bool = True  # and then reads the tail; False: it reads the tail, and then lists
    moves: tuple[int, ...] = ()  # who may have its record withdrawn, and move its files
    gives_up: tuple[int, ...] = ()  # who may roll itself back
    victims: tuple[int, ...] = ()  # whom a recovery takes for dead, one recovery each
    glued: frozenset[str] = COARSE
    checks_ended: bool = True  # a record whose instant has ended in the log is passed over
    once_in_group: bool = True  # so is one whose instant is in the group already
    sees_group: bool = True  # and one that conflicts with another of the group
    heeds_start: bool = True  # and one that began below the watermark
    withdraws: str = "in the log"  # "by its file": the record is removed, and no more; "by name": a second one of the
    # same stands
    times: str = "rising"  # "same" for all of a slot; "above the first" of the tail's
    shows: str = "in order"  # "at once": side by side, where the table says so; "last": of the tail's slot the last
    # file only
    reads: str = "whole slots"  # of files that appear at once a reader leaves out what comes behind a missing one, as
    # the newest file tells; "next": if the one before the newest is missing; "any": it takes all that it sees
    concludes: str = "up to the own"  # who finds its commit in another's slot sees to these files before it says so;
    # "own file": to its own
    below: str = "begins again"  # a slot below the watermark counts if "own file": one of its files is there, by name
    # and time; "member": any file of an instant in it; "counts": always
    resolves: str = "begins again"  # if the slot is another's; "first": lost if its first event is not the own one;
    # "trusts": committed if the own event is in it
    finds_own_file: bool = True  # who began below the watermark looks for its own file before it says "not committed"
    fresh: bool = True  # what is decided is decided at the tail that the slot follows
    record_gone: str = "nothing"  # what a missing record tells its owner; "lost": not committed


Step = tuple[str, State]


class GroupModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: GroupRules) -> None:
        self.rules = rules
        self._writers = len(rules.groups)
        self._promises = Promises(rules.groups, rules.shows == "at once", rules.reads)
        names = [
            "begin",
            "leave",
            "wait",
            "list",
            "look",
            "again",
            "show_last",
            "create",
            "wonder",
            "resolve",
            "show",
            "conclude",
            "move",
        ]
        self._steps: dict[str, Callable[[State, int, Part], Iterator[Step]]] = {
            name: getattr(self, f"_{name}") for name in names
        }
        self._own_steps: OwnSteps[State] = OwnSteps(State)

    def forget(self) -> None:
        self._own_steps.forget()

    def first(self) -> State:
        return State((*(Part() for _ in self.rules.groups), *(Part(does="rollback") for _ in self.rules.victims)))

    def broken_promise(self, state: State) -> str | None:
        return self._promises.broken(state)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._own_steps.around(state, self._around)
        begun: dict[str, bool] = {}
        for who, mine in enumerate(state.parts):
            if who < self._writers and who not in self._special:
                # Those alike are alike until they begin, so it is enough that they begin in this order.
                if mine.step == "begin" and not begun.get(self.rules.groups[who], True):
                    continue
                begun[self.rules.groups[who]] = mine.step != "begin"
            if mine.step == "begin" and who >= self._writers:
                yield from self._glued(state, who, mine)  # looks at whom it may take for dead
            elif mine.step != "over":
                yield from self._own_steps.steps(state, 0, who, self._glued)

    @property
    def _special(self) -> tuple[int, ...]:
        return (*self.rules.moves, *self.rules.gives_up, *self.rules.victims)

    def _glued(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for done, after in self._steps[mine.step](state, who, mine):
            now = after.parts[who]
            if now.step in self.rules.glued and now.step != mine.step:
                for more, last in self._glued(after, who, now):
                    yield f"w{who} {done}, {more.partition(' ')[2]}", last
            else:
                yield f"w{who} {done}", after

    def _around(self, state: State) -> Iterator[Step]:
        """What happens without a participant, or by any of those that have ended."""
        newest = state.slots[-1].watermark if state.slots else 0
        for slot in state.slots:
            if slot.number < newest:
                yield f"slot {slot.number} is removed", state._replace(slots=without(state.slots, slot))
        for slot in state.air:
            rest = state._replace(air=without(state.air, slot))
            yield f"a put of w{slot.by} for slot {slot.number} arrives late", put(rest, slot) or rest

    # -- one participant --------------------------------------------------------------------------------------------

    def _target(self, who: int) -> int:
        return who if who < self._writers else self.rules.victims[who - self._writers]

    def _begin(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        target = self._target(who)
        if target != who:
            victim = state.parts[target]
            if victim.step != "begin" and not victim.told:
                yield f"takes w{target} for dead", changed(state, who, step="look", start=victim.start)
            return
        view = 0
        for event in events_of(state.truth):
            view |= (event.kind == "commit" and self._same_group(event.who, who)) << event.who
        step = "look" if self.rules.alone_first else "leave"
        yield f"begins at {tail_of(state)}", changed(state, who, step=step, start=tail_of(state), view=view)

    def _leave(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        record = Record(who, mine.files, mine.start, mine.view)
        state = state._replace(records=tuple(sorted((*state.records, record))))
        yield "leaves its record", changed(state, who, step="wait", left=True)

    def _wait(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        if self.rules.record_gone == "lost" and any(event.who == who for event in events_of(state.truth)):
            yield "finds its record gone", tell(state, who, -1)
            return
        if self.rules.lists_first:
            for names, found in self._listings(state, who):
                yield f"leads, and finds records of {names}", changed(state, who, step="look", records=found)
        else:
            yield f"leads from {tail_of(state)}", changed(state, who, step="list", seen=tail_of(state))
        if who in self.rules.moves and not mine.files:
            if self.rules.withdraws != "by its file":
                yield "withdraws its record", changed(state, who, step="look", does="withdraw")
            else:
                kept = tuple(record for record in state.records if record.who != who)
                yield "removes its record", changed(state._replace(records=kept), who, step="move", left=False)
        if who in self.rules.gives_up:
            yield "gives up", changed(state, who, step="look", does="rollback")

    def _listings(self, state: State, who: int) -> Iterator[tuple[str, tuple[Record, ...]]]:
        others = [record for record in state.records if record.who != who]
        if self.rules.doubled_records:
            others = sorted((*others, *(record._replace(copy=1) for record in others)))
        for size in range(0 if self.rules.late_lists else len(others), len(others) + 1):
            for found in combinations(others, size):
                yield names_of(found), found

    def _list(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for names, found in self._listings(state, who):
            for done, after in self._decide(state, who, mine._replace(records=found), mine.seen):
                yield f"finds records of {names}, {done}", after

    def _look(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        yield from self._decide(state, who, mine, tail_of(state))

    def _decide(self, state: State, who: int, mine: Part, tail: int) -> Iterator[Step]:
        target = self._target(who)
        past, missed = self._since(state, mine.start, tail)
        ended = [event for event in past if event.who == target and event.kind in ENDS]
        if missed and self.rules.finds_own_file:
            ended += [file for file in state.files if file.who == target and file.kind in ENDS]
        if ended and self.rules.shows == "at once" and target == who and ended[0].kind == "commit":
            yield "finds its commit", self._concluded(changed(state, who, step="conclude", seen=ended[0].time), who)
        elif ended:
            yield f"finds its {ended[0].kind}", tell(state, who, ended[0].time if ended[0].kind == "commit" else -1)
        elif missed:
            yield "was missed for too long", tell(state, who, -1) if target == who else end(state, who)
        elif mine.does == "commit":
            group = self._group(state, who, mine, tail)
            if not group:
                yield "finds a conflict", tell(state, who, -1)
                return
            yield f"decides on {names_of(group)} at {tail}", self._decided(state, who, tail, group)
        else:
            event = Event(target, mine.does, 0, mine.files, 0, who)
            yield f"decides at {tail}", self._decided(state, who, tail, (event,))

    def _group(self, state: State, who: int, mine: Part, tail: int) -> tuple[Event, ...]:
        """The events of a slot that follows this tail: the own one first, if it passes; then others."""
        group: tuple[Event, ...] = ()
        for record in (Record(who, mine.files, mine.start, mine.view), *mine.records):
            if self._passes(state, record, group, tail):
                group = (*group, Event(record.who, "commit", 0, record.files, record.view))
            elif record.who == who:
                return ()
        return group

    def _passes(self, state: State, record: Record, group: tuple[Event, ...], tail: int) -> bool:
        past, missed = self._since(state, record.start, tail)
        if missed and self.rules.heeds_start:
            return False
        if self.rules.checks_ended and any(event.who == record.who and event.kind in ENDS for event in past):
            return False
        if self.rules.once_in_group and any(event.who == record.who for event in group):
            return False
        second = self.rules.withdraws == "by name" and record.copy
        for event in (*past, *group) if self.rules.sees_group else past:
            if event.kind == "withdraw" and event.who == record.who and event.files >= record.files and not second:
                return False
            if event.kind == "commit" and event.who != record.who and self._same_group(event.who, record.who):
                return False
        return True

    def _decided(self, state: State, who: int, tail: int, group: tuple[Event, ...]) -> State:
        state = changed(state, who, step="show_last", seen=tail, records=(), events=self._timed(state, tail, group))
        if not self._missing(state, tail):
            return changed(state, who, step="create" if self.rules.fresh else "again")
        return state

    def _timed(self, state: State, tail: int, group: tuple[Event, ...]) -> tuple[Event, ...]:
        """With times as of a clock that is behind: two leaders may take the same ones."""
        last = 0
        if tail:
            last = state.truth[tail - 1].events[0 if self.rules.times == "above the first" else -1].time
        steps = [1] * len(group) if self.rules.times == "same" else range(1, len(group) + 1)
        return tuple(event._replace(time=last + step) for event, step in zip(group, steps, strict=True))

    def _missing(self, state: State, tail: int) -> list[Event]:
        """The files of the tail's slot that are not there, as somebody sees it who is about to follow it."""
        events = state.truth[tail - 1].events if tail else ()
        return not_shown(state, events[-1:] if self.rules.shows == "last" else events)

    def _show_last(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for file in self._next(self._missing(state, mine.seen)):
            shown = self._made(state, file)
            ready = not self._missing(shown, mine.seen)
            step = ("create" if self.rules.fresh else "again") if ready else "show_last"
            yield f"shows w{file.who}'s file of time {file.time}", changed(shown, who, step=step)
        if not self._missing(state, mine.seen):
            yield "finds the files of the tail", changed(state, who, step="create" if self.rules.fresh else "again")

    def _again(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """A planted mistake: the tail is read once more, and what was decided on records at the older one stays."""
        tail, own = tail_of(state), Record(who, mine.files, mine.start, mine.view)
        if self._passes(state, own, (), tail) and not self._missing(state, tail):
            timed = self._timed(state, tail, mine.events)
            yield f"goes on to tail {tail}", changed(state, who, step="create", seen=tail, events=timed)

    def _conclude(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for file in self._before_own(state, mine):
            yield f"shows w{file.who}'s file of time {file.time}", self._concluded(self._made(state, file), who)
        if not self._before_own(state, mine):
            yield "finds the files up to its own", self._concluded(state, who)

    def _concluded(self, state: State, who: int) -> State:
        mine = state.parts[who]
        return state if self._before_own(state, mine) else tell(state, who, mine.seen)

    def _before_own(self, state: State, mine: Part) -> list[Event]:
        """What is missing of the files that have to be there before the caller hears of its commit."""
        missing = self._missing(state, len(state.truth))
        last = [file for file in missing if file.time <= mine.seen]
        return last if self.rules.concludes != "own file" else [file for file in last if file.time == mine.seen]

    def _made(self, state: State, file: Event) -> State:
        """With one file more. Where they come at once, nothing depends on which of them was first."""
        shown = show(state, file)
        return shown._replace(files=tuple(sorted(shown.files))) if self.rules.shows == "at once" else shown

    def _next(self, missing: list[Event]) -> list[Event]:
        return missing if self.rules.shows == "at once" else missing[:1]

    def _slot(self, who: int, mine: Part) -> Slot:
        number = mine.seen + 1
        return Slot(number, who, mine.events, max(0, number - self.rules.slots_kept))

    def _create(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        slot = self._slot(who, mine)
        created = put(state, slot)
        if created is not None and self.rules.removed_at_once:
            created = created._replace(
                slots=tuple(s for s in created.slots if s.number >= created.slots[-1].watermark or s is slot)
            )
        late = state.late_puts < self.rules.late_puts
        if late:
            in_air = state._replace(air=(*state.air, slot), late_puts=state.late_puts + 1)
            yield f"asks for slot {slot.number}, and hears nothing", changed(in_air, who, step="wonder")
        if created is None:
            yield f"finds slot {slot.number} taken", changed(state, who, step="wonder")
            return
        yield f"creates slot {slot.number}", changed(created, who, step="resolve")
        if late:
            again = created._replace(air=(*state.air, slot), late_puts=state.late_puts + 1)
            yield f"creates slot {slot.number}, and the request is repeated", changed(again, who, step="resolve")

    def _wonder(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        number = mine.seen + 1
        there = next((slot for slot in state.slots if slot.number == number), None)
        if there is None:
            if number <= tail_of(state):
                yield from self._lose(f"finds slot {number} gone", state, who, mine)
            else:
                yield f"finds no slot {number}, and asks again", changed(state, who, step="create")
        elif there == self._slot(who, mine):
            yield "finds its own slot", changed(state, who, step="resolve")
        elif self.rules.resolves == "first" and mine.does == "commit" and there.events[0].who != who:
            yield "takes it for a loss", tell(state, who, -1)
        elif self.rules.resolves == "trusts" and (who, "commit") in {event[:2] for event in there.events}:
            time = next(event.time for event in there.events if event.who == who)
            yield f"finds its event in slot {number} of w{there.by}", tell(state, who, time)
        else:
            yield from self._lose(f"finds slot {number} of w{there.by}", state, who, mine)

    def _resolve(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        slot = self._slot(who, mine)
        if self.rules.below == "counts" or state.slots[-1].watermark <= slot.number or self._counts(state, slot):
            done = changed(state, who, step="show")
            yield "is sure", done if not_shown(state, slot.events) else self._done(state, who, mine)
        else:
            kept = tuple(other for other in state.slots if other.number != slot.number)
            why = f"finds slot {slot.number} below the watermark"
            yield from self._lose(why, state._replace(slots=kept), who, mine)

    def _counts(self, state: State, slot: Slot) -> bool:
        """Planted mistakes: what lies below the watermark is decided by the files that are there."""
        if self.rules.below == "own file":
            return len(not_shown(state, slot.events)) < len(slot.events)
        members = {event.who for event in slot.events}
        return self.rules.below == "member" and any(file.who in members for file in state.files)

    def _show(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for file in self._next(not_shown(state, mine.events)):
            shown = self._made(state, file)
            done = shown if not_shown(shown, mine.events) else self._done(shown, who, mine)
            yield f"shows w{file.who}'s file of time {file.time}", done
        if not not_shown(state, mine.events):
            yield "finds all files", self._done(state, who, mine)

    def _done(self, state: State, who: int, mine: Part) -> State:
        if mine.does == "withdraw":
            return changed(state, who, step="move", does="commit", seen=0, events=(), left=False)
        return tell(state, who, -1 if mine.does == "rollback" else mine.events[0].time)

    def _move(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        yield "moves its files", changed(state, who, step="leave", files=mine.files + 1)

    def _lose(self, why: str, state: State, who: int, mine: Part) -> Iterator[Step]:
        lost = mine.lost + 1
        if lost > self.rules.races_most:
            yield f"{why}, and stops", end(state, who)
        elif who >= self._writers:
            yield why, changed(state, who, step="look", seen=0, events=(), lost=lost)
        else:
            step = "wait" if mine.left else "leave"
            yield why, changed(state, who, step=step, does="commit", seen=0, events=(), lost=lost)

    def _since(self, state: State, start: int, tail: int) -> tuple[list[Event], bool]:
        """The events after a slot up to the tail's that the log still has, and whether there were others."""
        mark = state.truth[tail - 1].watermark if tail else 0
        return list(events_of(state.truth[max(start, mark - 1) : tail])), start + 1 < mark

    def _same_group(self, one: int, other: int) -> bool:
        return self.rules.groups[one] == self.rules.groups[other] != ""
