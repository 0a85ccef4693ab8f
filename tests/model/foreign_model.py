"""One slot's file beside a foreign archiver and a foreign rollback: who may make it, and when, and who takes it back.

The slot is there, its file not yet. Its own writer, and others that complete the projection, look, make it and look
again; the writer may be a zombie, and so may they. A foreign archiver puts it into the history, then removes the
inflight file and then the completed one, the oldest first. A foreign rollback takes the instant for dead or undoes a
completed one: it looks, plans, removes the completed file if it has seen one, the data, and the inflight file last.
Then its own files may be archived as well, and no plan says any more what it has undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_BLINDLY = "committed, and its file is gone"
_OVER = ("committed", _BLINDLY, "ended", "done")
_ARCHIVER = ("record", "remove pending", "remove older", "remove completed")
_ROLLBACK = ("look", "plan", "remove completed", "remove data", "remove pending", "archive plan")
NOBODY, ARCHIVER, ROLLER = -1, -2, -3


@dataclass(frozen=True)
class ForeignRules:
    """The bounds, and then the protocol: each of its flags that is turned off plants a mistake."""

    helpers: int = 2
    rolls_back: bool = True  # a foreign rollback is there as well
    locked: bool = False  # all of ours and, while they look and plan, all foreign ones take one lock
    looks: bool = True  # before it makes the file
    looks_again: bool = True  # after it has made the file
    heeds_plans: bool = True  # of rollbacks; not the inflight file alone
    spares_younger: bool = True  # an archiver at work is left to remove the oldest first
    asks_history: bool = True  # before it says that it was rolled back
    heeds_lone: bool = True  # what it made, or finds gone, beside no inflight file and in no history, was rolled back


class State(NamedTuple):
    parts: tuple[str, ...]  # the slot's writer, and helpers
    archiver: int = 0
    roller: int = 0
    saw_completed: bool = False  # the rollback did, when it looked
    completed: bool = False
    shown: bool = False  # it has been there
    pending: bool = True
    data: bool = True
    older: bool = True  # a foreign commit that is older is on the timeline
    history: bool = False
    plan: bool = False
    too_late: bool = False  # the plan was, since the file was made after the look: no lock is there, and the data goes
    owner: int = NOBODY


Step = tuple[str, State]


class ForeignModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: ForeignRules) -> None:
        self.rules = rules

    def first(self) -> State:
        return State(("begin", *("begin",) * self.rules.helpers))

    def steps(self, state: State) -> Iterator[Step]:
        for who, step in enumerate(state.parts):
            if step not in _OVER and self._has_lock(state, who):
                done, after = self._ours(state, who, step)
                yield f"w{who} {done}", self._with_lock(after, who, after.parts[who] in _OVER)
        archives = state.roller == 0 and state.archiver < len(_ARCHIVER) and (state.archiver > 0 or state.completed)
        if archives and self._has_lock(state, ARCHIVER):
            step = _ARCHIVER[state.archiver]
            after = _archived(state, step)._replace(archiver=state.archiver + 1)
            yield f"the archiver does: {step}", self._with_lock(after, ARCHIVER, step == _ARCHIVER[-1])
        if self.rules.rolls_back and state.archiver == 0 and state.roller < len(_ROLLBACK):
            step = _ROLLBACK[state.roller]
            if step == "archive plan" and state.too_late:
                return  # once nothing says so any more, the next writer cannot know it
            if state.roller > 1 or self._has_lock(state, ROLLER):
                after = _rolled_back(state, step)._replace(roller=state.roller + 1)
                free = step == "plan"
                yield f"the rollback does: {step}", self._with_lock(after, ROLLER, free) if state.roller < 2 else after

    def _has_lock(self, state: State, who: int) -> bool:
        return not self.rules.locked or state.owner in (NOBODY, who)

    def _with_lock(self, state: State, who: int, free: bool) -> State:
        return state._replace(owner=NOBODY if free else who) if self.rules.locked else state

    # -- one of ours ------------------------------------------------------------------------------------------------

    def _ours(self, state: State, who: int, step: str) -> Step:
        if step == "begin":
            if not self.rules.looks:
                return "does not look", _part(state, who, "put")
            if who > 0 and state.completed:
                return "finds the file", _part(state, who, "done" if state.pending else "again, as others made it")
            return "finds no file", _part(state, who, "put" if who == 0 and state.pending else "look")
        if step == "look":
            fate = self._fate(state)
            return f"finds that it {fate}", _part(state, who, "put" if fate == "never was" else _told(who, fate))
        if step == "put":
            then = "again" if self.rules.looks_again else _told(who, "is there")
            return "makes the file", _part(state._replace(completed=True, shown=True), who, then)
        if step.startswith("again"):
            fate = self._after(state, made=step == "again")
            then = _told(who, fate) if fate == "is there" else f"remove, {_told(who, fate)}"
            if fate == "is there" and not state.completed and not state.pending and who == 0:
                then = _BLINDLY
            return f"looks again: it {fate}", _part(state, who, then)
        return "takes the file back", _part(state._replace(completed=False), who, step.rpartition(" ")[2])

    def _fate(self, state: State) -> str:
        if self.rules.heeds_plans and state.plan:
            return "was rolled back"
        if state.completed:
            return "is there"
        if state.pending:
            return "never was"
        return "was archived" if state.history and self.rules.asks_history else "was rolled back"

    def _after(self, state: State, made: bool) -> str:
        if self.rules.heeds_plans and state.plan:
            return "was rolled back"
        if self.rules.heeds_lone and (made or not state.completed) and not (state.pending or state.history):
            return "was rolled back"
        if state.pending or not state.history or (state.older and self.rules.spares_younger):
            return "is there"
        return "was archived"

    # -- promises ---------------------------------------------------------------------------------------------------

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        if state.history and state.older and not state.completed and state.shown:
            return "a reader takes a committed instant for one that never was"
        if any(step not in ("begin", *_OVER) for step in state.parts):
            return None
        if 0 < state.archiver < len(_ARCHIVER) or 0 < state.roller < len(_ROLLBACK) - 1:
            return None
        if not self.rules.locked and (self.rules.looks or state.completed):  # what the next writer makes of it
            state = self._next_writer(state)
        untouched = state.archiver == 0 and state.roller == 0
        if untouched and state.completed != state.shown:
            return "a commit is gone, and nobody has taken it away"
        if untouched and any(step in _OVER for step in state.parts) and not state.completed:
            return "a commit that a crash left out is not shown"
        if state.completed and not state.data:
            return "readers see a commit whose files are gone"
        if state.completed and state.archiver:
            return "what was archived is back, and readers begin with it"
        if state.parts[0] == "ended" and (state.completed or state.history):
            return "told 'not committed', and it is"
        if state.parts[0] == _BLINDLY:
            return "told 'committed' of a file that is gone"
        if self.rules.locked and state.parts[0] == "committed" and state.roller > 1 and not state.saw_completed:
            return "told 'committed', and it was rolled back as dead"
        return None

    def _next_writer(self, state: State) -> State:
        """What one more writer leaves, if nobody disturbs it."""
        if not any(step in _OVER for step in state.parts):
            return state
        state = state._replace(parts=(*state.parts, "begin"))
        who = len(state.parts) - 1
        while state.parts[who] not in _OVER:
            state = self._ours(state, who, state.parts[who])[1]
        return state._replace(parts=state.parts[:-1])


def _told(who: int, fate: str) -> str:
    if who > 0:
        return "done"
    return "ended" if fate == "was rolled back" else "committed"


def _part(state: State, who: int, step: str) -> State:
    return state._replace(parts=(*state.parts[:who], step, *state.parts[who + 1 :]))


def _archived(state: State, step: str) -> State:
    if step == "record":
        return state._replace(history=True)
    if step == "remove pending":
        return state._replace(pending=False)
    if step == "remove older":
        return state._replace(older=False)
    return state._replace(completed=False)


def _rolled_back(state: State, step: str) -> State:
    if step == "look":
        return state._replace(saw_completed=state.completed)
    if step == "plan":
        return state._replace(plan=True, too_late=state.completed and not state.saw_completed)
    if step == "remove completed":
        return state._replace(completed=state.completed and not state.saw_completed)
    if step == "remove data":
        return state._replace(data=False)
    if step == "archive plan":
        return state._replace(plan=False)
    return state._replace(pending=False)
