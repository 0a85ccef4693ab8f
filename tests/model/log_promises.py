"""What must hold in every state of `commit_log_model`, whatever the participants do."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commit_log_model import Slot, State


class Promises:
    """Looks at states; what depends on the log and the files alone is looked at once, as many states share them."""

    def __init__(self, roles: tuple[str, ...]) -> None:
        self._roles = roles
        self._seen: dict[Hashable, str | None] = {}

    def broken(self, state: State) -> str | None:
        """The first promise that does not hold."""
        shared = (state.truth, state.beside, state.files, state.told)
        if shared not in self._seen:
            self._seen[shared] = _broken_in_log(state) or _lost_update(state, self._roles)
        problem = self._seen[shared]
        if problem is not None:
            return problem
        for who, mine in enumerate(state.parts):
            if mine.step == "gave up" and sum(slot.who == who for slot in state.truth) > mine.event:
                return "a caller was told 'not committed', and it is in the log"
        return None


def _broken_in_log(state: State) -> str | None:
    happened = [(slot.who, slot.kind) for slot in state.truth]
    known = {*happened, *((slot.who, slot.kind) for slot in state.beside)}
    if len(set(happened)) < len(happened):
        return "an operation is in the log twice"
    if not state.told <= known:
        return "a caller was told 'committed', and the log knows nothing of it"
    if not {(who, kind) for who, kind, _ in state.files} <= known:
        return "readers see a file that is not in the log"
    if _falls(slot.time for slot in state.truth):
        return "times do not increase along the log"
    if _falls(time for _, _, time in state.files):
        return "files appeared out of the order of their times"
    return _wrong_plan(state) or _wrong_rows(state)


def _lost_update(state: State, roles: tuple[str, ...]) -> str | None:
    earlier = dict.fromkeys(roles, 0)
    for slot in state.truth:
        if slot.kind == "commit":
            if slot.view != earlier[roles[slot.who]]:
                return "an update was lost"
            earlier[roles[slot.who]] |= 1 << slot.who
    return None


def _wrong_plan(state: State) -> str | None:
    cancelled = False
    for slot in sorted((*state.truth, *state.beside), key=_time):
        if slot.kind == "plan":
            earlier = _committed(other for other in state.truth if other.time < slot.time)
            if earlier & ~slot.view:
                return "a plan misses a commit that is older than itself"
            if slot.view & ~earlier:
                return "a plan has a commit that is younger than itself"
        if slot.kind == "complete" and cancelled:
            return "a plan was committed after it was cancelled"
        cancelled = cancelled or slot.kind == "cancel"
    kinds = {kind for _, kind in state.told}
    return "a plan was both committed and cancelled" if {"complete", "cancel"} <= kinds else None


def _wrong_rows(state: State) -> str | None:
    """A snapshot has all that is shown, and each row once; an incremental reader has all up to its position.

    What an incremental reader has depends only on the files that it found, so a look at what was there after each file
    covers every reader, whenever it read.
    """
    found = 0
    for who, kind, position in state.files:
        if kind == "commit":
            found |= 1 << who
        if found != _committed(slot for slot in state.truth if slot.time <= position):
            return "an incremental reader has passed a commit that it never saw"
    if any(kind == "complete" for _, kind, _ in state.files):
        plan = next(slot for slot in (*state.truth, *state.beside) if slot.kind == "plan")
        shown = {who: time for who, kind, time in state.files if kind == "commit"}
        for who, time in shown.items():
            if (time > plan.time) == bool(plan.view >> who & 1):
                return "a snapshot shows a row twice, or not at all"
    return None


def _committed(slots: Iterable[Slot]) -> int:
    bits = 0
    for slot in slots:
        if slot.kind == "commit":
            bits |= 1 << slot.who
    return bits


def _time(slot: Slot) -> int:
    return slot.time


def _falls(times: Iterable[int]) -> bool:
    last = 0
    for time in times:
        if time <= last:
            return True
        last = time
    return False
