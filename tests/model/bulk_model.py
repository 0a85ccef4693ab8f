"""Bulk loads that write base files, beside writers of log files, plans and their compactions: no row is ever hidden.

One bucket, empty at first. A base file begins a slice at the *requested* time of its write; a log file belongs to the
newest slice that begins below its *completion*; a reader takes the newest slice alone. What a commit does at its place
in the log is three steps: read the tail and check, take a time, create the slot if nobody has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LOADER, WRITER, PLANNER = "loader", "writer", "planner"
UNCHECKED = -1
LOG, BASE, PLAN = "log", "base", "plan"  # kinds of slots; a compaction's is a base file as well


@dataclass(frozen=True)
class BulkRules:
    """The bounds, and then the protocol: each of its flags that is turned off plants a mistake."""

    loaders: int = 2
    writers: int = 1
    planners: int = 1
    asks_if_empty: bool = True  # a loader makes a base file in a bucket without a slice only
    heeds_times: bool = True  # what completed below the base file's instant is looked for
    heeds_bases: bool = True  # other base files are looked for
    heeds_plans: bool = True  # plans that wait are looked for
    looks_again: bool = True  # the look is repeated for each slot that is fought for


class Slot(NamedTuple):
    kind: str
    time: int  # when it completed, or was planned
    instant: int  # where the slice of a base file begins
    rows: frozenset[int]


class Actor(NamedTuple):
    role: str
    at: str = "begins"
    instant: int = 0
    start: int = 0  # so many slots were there
    kind: str = LOG
    checked: int = UNCHECKED  # the tail that was looked at
    time: int = 0
    rows: frozenset[int] = frozenset()


class State(NamedTuple):
    log: tuple[Slot, ...]
    actors: tuple[Actor, ...]


Step = tuple[str, State]
Change = tuple[str, tuple[Slot, ...], Actor]


class BulkModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: BulkRules) -> None:
        self.rules = rules
        self._steps = {
            "begins": self._begin,
            "claimed": self._look_at_bucket,
            "staged": self._check,
            "checked": self._take_time,
            "timed": self._create,
        }

    def first(self) -> State:
        rules = self.rules
        roles = [LOADER] * rules.loaders + [WRITER] * rules.writers + [PLANNER] * rules.planners
        return State((), tuple(Actor(role, rows=frozenset([who])) for who, role in enumerate(roles)))

    def steps(self, state: State) -> Iterator[Step]:
        for who, actor in enumerate(state.actors):
            step = self._steps.get(actor.at)
            if step is not None:
                for label, log, after in step(state, actor):
                    actors = (*state.actors[:who], after, *state.actors[who + 1 :])
                    yield f"{actor.role} {who} {label}", _ranked(State(log, actors))

    def _begin(self, state: State, actor: Actor) -> Iterator[Change]:
        if actor.role == LOADER:
            yield "takes its requested time", state.log, actor._replace(at="claimed", instant=_now(state))
        else:
            yield "stages", state.log, actor._replace(at="staged", start=len(state.log))

    def _look_at_bucket(self, state: State, actor: Actor) -> Iterator[Change]:
        if state.log and state.log[-1].time >= actor.instant:  # a transaction that begins takes another time then
            yield "begins anew", state.log, actor._replace(at="begins", instant=0)
            return
        kind = LOG if state.log and self.rules.asks_if_empty else BASE
        yield f"stages a {kind}", state.log, actor._replace(at="staged", start=len(state.log), kind=kind)

    def _check(self, state: State, actor: Actor) -> Iterator[Change]:
        if actor.role == PLANNER:
            yield from self._plan(state, actor)
        elif actor.kind == BASE and actor.checked == UNCHECKED and not self._stands(state, actor):
            after = actor._replace(at="begins", kind=LOG, role=WRITER, instant=0, checked=UNCHECKED)
            yield "takes its rows over as a log", state.log, after
        else:
            yield "may commit", state.log, actor._replace(at="checked", checked=len(state.log))

    def _stands(self, state: State, actor: Actor) -> bool:
        """Whether the base file may become visible after this tail."""
        rules = self.rules
        since = state.log[actor.start :]
        hidden = any(slot.kind == LOG and slot.time <= actor.instant for slot in since)
        bases = any(slot.kind == BASE for slot in since)
        planned = bool(_waiting(state.log))
        return not ((hidden and rules.heeds_times) or (bases and rules.heeds_bases) or (planned and rules.heeds_plans))

    def _plan(self, state: State, actor: Actor) -> Iterator[Change]:
        waiting = _waiting(state.log)
        if actor.kind == LOG and state.log:  # has planned nothing yet
            after = actor._replace(at="checked", checked=len(state.log), kind=PLAN, rows=visible(state.log))
            yield "chooses what to compact", state.log, after
        elif actor.kind == PLAN and waiting:
            after = actor._replace(at="checked", checked=len(state.log), kind=BASE, instant=waiting[0].time)
            yield "has compacted", state.log, after._replace(rows=waiting[0].rows)

    def _take_time(self, state: State, actor: Actor) -> Iterator[Change]:
        yield "takes a time", state.log, actor._replace(at="timed", time=_now(state))

    def _create(self, state: State, actor: Actor) -> Iterator[Change]:
        if len(state.log) != actor.checked:
            kind = {PLAN: LOG, BASE: PLAN}.get(actor.kind, actor.kind) if actor.role == PLANNER else actor.kind
            checked = UNCHECKED if self.rules.looks_again else actor.checked
            yield "loses the slot", state.log, actor._replace(at="staged", kind=kind, time=0, checked=checked)
            return
        slot = Slot(actor.kind, actor.time, actor.instant, actor.rows)
        after = actor._replace(at="staged" if actor.kind == PLAN else "done", checked=UNCHECKED, time=0, instant=0)
        yield f"creates the slot of its {actor.kind}", (*state.log, slot), after

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        committed = {row for slot in state.log if slot.kind != PLAN for row in slot.rows}
        if committed - visible(state.log):
            return "a committed row is hidden"
        return None


def visible(log: tuple[Slot, ...]) -> frozenset[int]:
    """What a reader sees who knows these slots."""
    bases = [slot for slot in log if slot.kind == BASE]
    newest = max(bases, key=lambda slot: slot.instant, default=None)
    begin = -1 if newest is None else newest.instant
    rows = {row for slot in log if slot.kind == LOG and slot.time > begin for row in slot.rows}
    return frozenset(rows | (newest.rows if newest is not None else frozenset()))


def _times(state: State) -> set[int]:
    times = {0}
    for slot in state.log:
        times.add(slot.time)
        times.add(slot.instant)
    for actor in state.actors:
        times.add(actor.time)
        times.add(actor.instant)
    return times


def _now(state: State) -> int:
    """A time after all others."""
    return max(_times(state)) + 1


def _ranked(state: State) -> State:
    """The same state with the least numbers for its times: only their order counts."""
    times = _times(state)
    if max(times) < len(times):  # as they are, mostly
        return state
    rank = {time: place for place, time in enumerate(sorted(times))}
    log = tuple(slot._replace(time=rank[slot.time], instant=rank[slot.instant]) for slot in state.log)
    actors = tuple(one._replace(time=rank[one.time], instant=rank[one.instant]) for one in state.actors)
    return State(log, actors)


def _waiting(log: tuple[Slot, ...]) -> list[Slot]:
    """Plans that nobody has carried out."""
    done = {slot.instant for slot in log if slot.kind == BASE}
    return [slot for slot in log if slot.kind == PLAN and slot.time not in done]
