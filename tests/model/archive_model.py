"""The archive and late projections: a writer that was paused between its slot and its file makes the file once more.

Slots and files appear in order, as `commit_log_model` shows; here they are archived, and come back. Some puts of a
file that is long there are still to come: of its own writer, of another one that completed the projection, and of a
second generation for a later slot. Readers follow hudi-rs: whatever is older than the first file on the active
timeline counts as committed, and of what is younger only that which has a file there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from own_steps import OwnSteps

_ARCHIVER = ("clean", "pick", "record", "remove")


@dataclass(frozen=True)
class ArchiveRules:
    """The bounds, and then the protocol: each of its flags that is turned off plants a mistake."""

    instants: int = 3
    zombies: tuple[int, ...] = (1, 1, 2)  # whose files somebody is late with
    archivers: int = 2
    runs: int = 2  # of each archiver
    prompt: bool = True  # a put arrives before its slot is old; else it may take for ever
    asks_age: bool = True  # nobody makes the file of an old slot, and only old ones are archived
    asks_history: bool = True  # a writer whose slot and file are gone looks there, too, before it says "not committed"
    history_first: bool = True  # an instant is in the history before its file goes
    oldest_first: bool = True
    removes_again: bool = True  # each run begins with what has come back


class Archiver(NamedTuple):
    step: str = "clean"
    instant: int = 0
    runs: int = 0


class State(NamedTuple):
    zombies: tuple[str, ...]
    archivers: tuple[Archiver, ...]
    tail: int = 0
    old: int = 0  # slots up to this one are old
    watermark: int = 0
    shown: int = 0  # whose files have been there
    active: frozenset[int] = frozenset()
    history: frozenset[int] = frozenset()
    denied: bool = False  # a writer of a commit was told that it did not happen


Step = tuple[str, State]


class ArchiveModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: ArchiveRules) -> None:
        self.rules = rules
        self._own_steps: OwnSteps[State] = OwnSteps(State, groups=2)
        self._broken: dict[tuple[object, ...], str | None] = {}

    def forget(self) -> None:
        self._own_steps.forget()
        self._broken.clear()

    def first(self) -> State:
        return State(("resolve",) * len(self.rules.zombies), (Archiver(),) * self.rules.archivers)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._own_steps.around(state, self._around)
        if state.old < state.shown and not (self.rules.prompt and self._on_its_way(state, state.old + 1)):
            yield f"slot {state.old + 1} is old", state._replace(old=state.old + 1)
        for who in range(len(state.zombies)):
            yield from self._own_steps.steps(state, 0, who, self._late)
        for who in range(len(state.archivers)):
            yield from self._own_steps.steps(state, 1, who, self._by_archiver)

    def _around(self, state: State) -> Iterator[Step]:
        if state.shown < state.tail:
            shown = state._replace(shown=state.tail, active=state.active | {state.tail})
            yield f"file {state.tail} appears", shown
        elif state.tail < self.rules.instants:
            yield f"slot {state.tail + 1} is created", state._replace(tail=state.tail + 1)
        if state.watermark < state.tail:
            yield f"the watermark rises to {state.tail}", state._replace(watermark=state.tail)

    def _on_its_way(self, state: State, instant: int) -> bool:
        return any(of == instant and step == "put" for of, step in zip(self.rules.zombies, state.zombies, strict=True))

    def _late(self, state: State, who: int, step: str) -> Iterator[Step]:
        instant = self.rules.zombies[who]
        if instant > state.tail or step == "over":
            return
        if step == "resolve":
            there = instant in state.active or (self.rules.asks_history and instant in state.history)
            if instant < state.watermark and not there:
                yield f"z{who} says that {instant} did not happen", _zombie(state, who, "over")._replace(denied=True)
            else:
                yield f"z{who} is sure of slot {instant}", _zombie(state, who, "age" if self.rules.asks_age else "put")
        elif step == "age":
            then = "over" if instant <= state.old else "put"
            yield f"z{who} asks how old slot {instant} is", _zombie(state, who, then)
        else:
            late = state._replace(active=state.active | {instant}, shown=max(state.shown, instant))
            yield f"z{who} makes file {instant}", _zombie(late, who, "over")

    def _by_archiver(self, state: State, who: int, mine: Archiver) -> Iterator[Step]:
        for done, after in self._archive(state, mine):
            yield f"archiver {who} {done}", _archives(state, who, after)

    # -- an archiver ------------------------------------------------------------------------------------------------

    def _archive(self, state: State, mine: Archiver) -> Iterator[tuple[str, tuple[State, Archiver]]]:
        order = _ARCHIVER if self.rules.history_first else ("clean", "pick", "remove", "record")
        if mine.step == "clean":
            if mine.runs < self.rules.runs:
                back = state.active & state.history if self.rules.removes_again else frozenset()
                cleaned = state._replace(active=state.active - back)
                yield "removes what came back", (cleaned, mine._replace(step="pick", runs=mine.runs + 1))
            return
        if mine.step == "pick":
            chosen = self._choice(state)
            step = order[2] if chosen else "clean"
            yield f"picks {chosen or 'nothing'}", (state, mine._replace(step=step, instant=chosen))
            return
        if mine.step == "record":
            after = state._replace(history=state.history | {mine.instant})
        else:
            after = state._replace(active=state.active - {mine.instant})
        ended = mine.step == order[3]
        then = mine._replace(step="clean", instant=0) if ended else mine._replace(step=order[3])
        yield f"{mine.step}s {mine.instant}", (after, then)

    def _choice(self, state: State) -> int:
        """What goes next; never the last one."""
        old = state.old if self.rules.asks_age else state.shown
        ready = [i for i in state.active - state.history if i < state.shown and i <= old]
        if not ready:
            return 0
        if not self.rules.oldest_first:
            return max(ready)
        return min(ready) if min(ready) == min(state.active) else 0

    # -- promises ---------------------------------------------------------------------------------------------------

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state; who is at work does not matter for it."""
        lies_there = state[2:]
        if lies_there not in self._broken:
            self._broken[lies_there] = self._broken_promise(state)
        return self._broken[lies_there]

    def _broken_promise(self, state: State) -> str | None:
        if state.denied:
            return "a caller was told 'not committed', and it is in the log"
        if not set(range(1, state.shown + 1)) <= state.active | state.history:
            return "an incremental reader misses an instant"
        if not self.rules.prompt:
            state = self._next_run(state)
        boundary = min(state.active, default=0)
        if any(i > boundary and i not in state.active for i in range(1, state.shown + 1)):
            return "a reader takes a committed instant for one that never was"
        return None

    def _next_run(self, state: State) -> State:
        """What the next run makes of it, if nobody disturbs it."""
        mine = Archiver()
        while True:
            step = next(self._archive(state, mine), None)
            assert step is not None
            state, mine = step[1]
            if mine.step == "clean":
                return state


def _zombie(state: State, who: int, step: str) -> State:
    return state._replace(zombies=(*state.zombies[:who], step, *state.zombies[who + 1 :]))


def _archives(before: State, who: int, after: tuple[State, Archiver]) -> State:
    state, mine = after
    return state._replace(archivers=(*before.archivers[:who], mine, *before.archivers[who + 1 :]))
