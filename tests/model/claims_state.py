"""Beginnings, data files and rollbacks: the rules of their model, and what lies in the storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ClaimRules:
    """The faults of the surroundings, and then the protocol: each of its flags that is turned off plants a mistake."""

    drivers: int = 1
    attempts: int = 1  # so many of the drivers have an attempt that was given up
    beats: int = 1  # so many have a beat that is under way
    recoverers: int = 1
    repeated_times: int = 0  # so often a time is handed out that somebody was given before
    failed_begins: int = 0  # so often the storage fails at a beginning: the instant was opened, or will be, later
    repeated_data: int = 0  # so often the request that makes a data file arrives once more
    others_commit: int = 0  # so often the log goes on by an event of another instant, which others have ended
    repeated_removals: int = 0  # so often a removal of what is given back arrives once more
    in_driver: bool = False  # drivers make their files themselves, and nobody else is given their instants
    recovers: bool = False  # try in every state whether a recoverer, left alone, clears all away, and at once
    fresh_tail: bool = True  # the tail is read again after the claim
    looks_beside: bool = False  # and they announce a file beside the tail after the claim, and are shown beside the log
    looks_before_showing: bool = True
    gives_back: bool = False  # and who finds before its file that the log is later takes all of it back, at any time
    keeps_used: bool = True  # but not if a slot has that time's name
    later_is_refused: bool = True  # by the tail after the claim
    driver_asks: str = "log"  # between announcing its file and making it: that, only its claim, or nothing ("")
    opens_once: bool = True  # an error ends the beginning; the opening is not asked for again
    checks_open: bool = True  # a task asks whether the instant is open; else only whether it beats
    announces_first: bool = True
    closes_first: bool = True  # before the list
    bars: bool = True  # a file that is not there yet
    leaves_tombstones: bool = True
    rollback_in_log: bool = True
    forgets_only_ended: bool = True  # what nobody has ended in the log is aborted there before its traces go


class File(NamedTuple):
    time: int
    driver: int
    kind: str


class Removal(NamedTuple):
    """A request that removes what lay under a time, whoever has it by then."""

    time: int
    what: str  # "claim" or "markers"


class Part(NamedTuple):
    """A driver or a recoverer; a recoverer's `time` is its victim."""

    step: str
    time: int = 0
    seen: int = 0  # how much of the log it has looked at
    listed: frozenset[File] = frozenset()


class State(NamedTuple):
    drivers: tuple[Part, ...]
    attempts: tuple[str, ...]
    beats: tuple[str, ...]
    recoverers: tuple[Part, ...]
    clock: int = 0
    claims: frozenset[tuple[int, int]] = frozenset()  # (time, driver)
    open: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    markers: frozenset[File] = frozenset()
    files: frozenset[File] = frozenset()
    tombstones: frozenset[File] = frozenset()
    log: tuple[tuple[str, int, int, int], ...] = ()  # (event, instant, driver, time)
    air: frozenset[int | File | Removal] = frozenset()  # openings, data files and removals that may still arrive
    faults: tuple[int, int, int] = (0, 0, 0)  # repeated times, failed begins, repeated data
    others: int = 0  # commits of others
    removals: int = 0  # that will be repeated


_STORED = slice(State._fields.index("clock"), State._fields.index("log") + 1)


Stored = tuple[Any, ...]


def stored_in(state: State) -> Stored:
    """What the storage holds, and how far the clock is."""
    return tuple(state)[_STORED]


def nobody_at(stored: Stored) -> State:
    """A state with that storage in which nobody is at work, and nothing may still arrive."""
    return State((), (), (), (), *stored)


def cleared(state: State, mine: Part) -> State:
    time = mine.time
    if mine.step in ("unbeat", "unbeat again"):
        return unclaimed(state, time)
    if mine.step in ("close", "unopen"):
        return state._replace(open=state.open - {time})
    if mine.step == "unmark":
        return state._replace(markers=state.markers - of_time(state.markers, time))
    if mine.step == "unpend":
        return state._replace(pending=state.pending - {time})
    finished = any(event == "finish" and instant == time for event, instant, _, _ in state.log)
    return state if finished else appended(state, "finish", time, -1)


def without(state: State, removal: Removal) -> State:
    return cleared(state, Part({"claim": "unbeat", "markers": "unmark"}[removal.what], removal.time))


def appended(state: State, event: str, instant: int, driver: int) -> State:
    pending = state.pending - {instant} if event == "commit" else state.pending
    time = state.clock + 1
    return state._replace(clock=time, log=(*state.log, (event, instant, driver, time)), pending=pending)


def marked(state: State, file: File) -> State:
    return state._replace(markers=state.markers | {file})


def created(state: State, file: File) -> State:
    return state if file in state.tombstones else state._replace(files=state.files | {file})


def known(state: State) -> set[int]:
    """Instants of which the storage has any trace but an ending."""
    return {*state.pending, *state.open, *(time for time, _ in state.claims), *(file.time for file in state.markers)}


def of_time(files: frozenset[File], time: int) -> frozenset[File]:
    return frozenset(file for file in files if file.time == time)


def owner(state: State, time: int) -> int | None:
    return next((driver for claimed, driver in state.claims if claimed == time), None)


def claimed(state: State, time: int, driver: int) -> State:
    return state._replace(claims=state.claims | {(time, driver)})


def unclaimed(state: State, time: int) -> State:
    return state._replace(claims=frozenset(claim for claim in state.claims if claim[0] != time))


def last_time(state: State) -> int:
    return state.log[-1][3] if state.log else 0
