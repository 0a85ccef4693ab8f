"""A state of `tables_model`: the log and the files of each table, the decisions, and what everybody remembers."""

from __future__ import annotations

from typing import NamedTuple

COMMIT, ABORT = "commit", "abort"  # what a decision says; "" if there is none
INTENTS = ("intent", "read")  # of a part that writes, and of one that was only read


class Event(NamedTuple):
    """What a slot holds; `carries` is the decision on the intent in the slot before it."""

    who: int  # of a rollback: whom it ends
    kind: str
    marks: tuple[int, ...]  # the slot up to which its writer had read each of its tables
    attempt: int = 0
    carries: str = ""


class Table(NamedTuple):
    log: tuple[Event, ...] = ()  # every slot that was ever added: what has happened, whoever knows it
    files: tuple[int, ...] = ()  # the slots whose completed files are there, as they appeared


class Late(NamedTuple):
    """A put that may still arrive: of a decision if `table` is -1, else of a slot."""

    decision: int
    table: int = -1
    number: int = 0
    event: Event = Event(0, "", ())


class Tail(NamedTuple):
    number: int
    counts: int  # how many commits count up to it
    undecided: bool  # whether it is an intent without a decision


class Part(NamedTuple):
    """A participant; `told` is 1 for committed, or done, and -1 for what is not and never will be."""

    step: str = "begin"
    at: int = 0  # which of its tables it is at
    marks: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()  # the slot up to which each table was when its part began, if that was later
    overtaken: tuple[int, ...] = ()  # tables in which others had committed between the two
    slots: tuple[int, ...] = ()  # of its intents
    seen: int = 0  # the tail that its slot would follow
    known: str = ""  # the decision on that tail, or on the own intents
    lost: int = 0
    attempt: int = 0
    unsure: bool = False  # whether it has asked for something without an answer
    failed: bool = False  # whether another try would be of no use
    gave_way: bool = False  # whether it waits for another transaction before its next try
    told: int = 0
    cut: tuple[Tail, ...] = ()  # of a reader: what its first pass has found
    moments: frozenset[tuple[int, ...]] = frozenset()  # what has counted since the cut began, at each moment


class State(NamedTuple):
    parts: tuple[Part, ...]
    tables: tuple[Table, ...]
    decisions: tuple[str, ...]  # the objects, one for each attempt of each transaction
    fates: tuple[str, ...]  # what each said first, for ever
    air: tuple[Late, ...] = ()
    late_puts: int = 0


def changed(state: State, who: int, **values: object) -> State:
    mine = state.parts[who]._replace(**values)  # type: ignore[arg-type]
    return state._replace(parts=(*state.parts[:who], mine, *state.parts[who + 1 :]))


def end(state: State, who: int, told: int) -> State:
    mine = state.parts[who]
    over = Part("over", attempt=mine.attempt, told=told)
    if told > 0 and mine.cut:
        over = over._replace(cut=mine.cut, moments=mine.moments)
    return state._replace(parts=(*state.parts[:who], over, *state.parts[who + 1 :]))


def with_table(state: State, place: int, table: Table) -> State:
    return state._replace(tables=(*state.tables[:place], table, *state.tables[place + 1 :]))


def append(state: State, place: int, event: Event) -> State:
    table = state.tables[place]
    return with_table(state, place, table._replace(log=(*table.log, event)))


def show(state: State, place: int, number: int) -> State:
    """Makes the completed file of a slot, unless it is there."""
    table = state.tables[place]
    if number in table.files:
        return state
    return with_table(state, place, table._replace(files=(*table.files, number)))


def decide(state: State, decision: int, says: str, replaces: bool = False) -> State:
    """Puts a decision if there is none."""
    if state.decisions[decision] and not replaces:
        return state
    fate = state.fates[decision] or says
    return state._replace(
        decisions=(*state.decisions[:decision], says, *state.decisions[decision + 1 :]),
        fates=(*state.fates[:decision], fate, *state.fates[decision + 1 :]),
    )


def delete(state: State, decision: int) -> State:
    return state._replace(decisions=(*state.decisions[:decision], "", *state.decisions[decision + 1 :]))


def without(late: tuple[Late, ...], one: Late) -> tuple[Late, ...]:
    return tuple(other for other in late if other is not one)


def counting(log: tuple[Event, ...], known: str) -> list[int]:
    """The slots of a log that count as committed, as the log says; `known` is the decision on its last one."""
    says = (*(event.carries for event in log[1:]), known)
    return [
        number
        for number, (event, decision) in enumerate(zip(log, says, strict=False), 1)
        if event.kind == "commit" or (event.kind == "intent" and decision == COMMIT)
    ]


def table_name(place: int) -> str:
    return f"table {'abc'[place]}"
