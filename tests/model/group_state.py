"""A state of `group_model`: the log, its files, the records that writers left, and what everybody remembers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Event(NamedTuple):
    who: int
    kind: str
    time: int
    files: int  # how often its owner had moved its files when it said so
    view: int = 0  # a bit for each commit to the same file group that it is based on
    by: int = -1  # whose rollback it is; the name of a completed file does not tell who made it


class Record(NamedTuple):
    who: int
    files: int
    start: int
    view: int
    copy: int = 0


class Slot(NamedTuple):
    number: int
    by: int
    events: tuple[Event, ...]
    watermark: int


class Part(NamedTuple):
    """A writer, or a recovery of one; `told` is the time of its commit, or -1 if there is none and never will be."""

    step: str = "begin"
    does: str = "commit"
    start: int = 0  # the tail at its beginning
    view: int = 0
    files: int = 0
    left: bool = False  # whether it has left its record
    records: tuple[Record, ...] = ()  # of others, as it has read them
    seen: int = 0  # the tail that its slot would follow
    events: tuple[Event, ...] = ()  # of its slot
    lost: int = 0
    told: int = 0


class State(NamedTuple):
    parts: tuple[Part, ...]
    slots: tuple[Slot, ...] = ()  # what lies in the storage
    truth: tuple[Slot, ...] = ()  # every slot that was created in order: what has happened, whoever knows it
    files: tuple[Event, ...] = ()  # what readers got to see, in that order; nothing but what their names hold
    records: tuple[Record, ...] = ()  # all that were ever left: a listing may lack any, so none need be removed
    air: tuple[Slot, ...] = ()  # puts that may still arrive
    late_puts: int = 0


def events_of(slots: Iterable[Slot]) -> Iterator[Event]:
    return (event for slot in slots for event in slot.events)


def named(event: Event) -> Event:
    """What a file's name says of an event: whose, which times, and of a rollback who made it."""
    return event._replace(files=0, view=0)


def not_shown(state: State, events: tuple[Event, ...]) -> list[Event]:
    return [event for event in events if event.kind != "withdraw" and named(event) not in state.files]


def show(state: State, event: Event) -> State:
    return state._replace(files=(*state.files, named(event)))


def put(state: State, slot: Slot) -> State | None:
    """Creates a slot if its number is free; None if it is not."""
    if any(other.number == slot.number for other in state.slots):
        return None
    if slot.number == tail_of(state) + 1:
        state = state._replace(truth=(*state.truth, slot))
    return state._replace(slots=tuple(sorted((*state.slots, slot))))


def tail_of(state: State) -> int:
    return state.slots[-1].number if state.slots else 0


def changed(state: State, who: int, **values: object) -> State:
    mine = state.parts[who]._replace(**values)  # type: ignore[arg-type]
    return State((*state.parts[:who], mine, *state.parts[who + 1 :]), *state[1:])


def tell(state: State, who: int, told: int) -> State:
    return changed(end(state, who), who, told=told)


def end(state: State, who: int) -> State:
    mine = state.parts[who]
    ended = Part(step="over", does=mine.does, files=mine.files)
    return State((*state.parts[:who], ended, *state.parts[who + 1 :]), *state[1:])


def without(slots: tuple[Slot, ...], slot: Slot) -> tuple[Slot, ...]:
    return tuple(other for other in slots if other is not slot)


def names_of(group: tuple[Event, ...] | tuple[Record, ...]) -> str:
    return "[" + ", ".join(f"w{one.who}" for one in group) + "]"
