"""Beginnings, data files and rollbacks: the rules of their model, and what lies in the storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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
    in_driver: bool = False  # drivers make their files themselves, and nobody else is given their instants
    recovers: bool = False  # try in every state whether a recoverer, left alone, clears all away, and at once
    fresh_tail: bool = True  # the tail is read again after the claim
    looks_beside: bool = False  # and they announce a file beside the tail after the claim, and are shown beside the log
    looks_before_showing: bool = True
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
    air: frozenset[int | File] = frozenset()  # openings and data files that may still arrive
    faults: tuple[int, int, int] = (0, 0, 0)  # repeated times, failed begins, repeated data
