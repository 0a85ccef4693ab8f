"""A clean beside plans, savepoints and restores: what it removes, nobody may need any more.

One file group. Each overwrite supersedes the version that was the latest; a clean removes superseded versions, a plan
needs the one that was the latest in its place of the log, a savepoint keeps one, and a restore brings one back. The log
is one step, as in `claims_model`. Looks are not: plans that wait are listed before versions are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

NONE = -1


@dataclass(frozen=True)
class CleanRules:
    """The bounds, and then the protocol: each of its flags that is turned off plants a mistake."""

    overwrites: int = 2
    cleans: int = 2
    executors: int = 2
    restores: int = 1
    in_log: bool = True  # a clean's plan is put where it was decided, or decided anew
    heeds_plans: bool = True  # a clean spares what plans need that wait
    heeds_savepoints: bool = True
    savepoint_asks: bool = True  # whether a clean that waits removes what is to be kept
    restore_asks: bool = True  # whether a clean waits, or one has removed what would be live again


class State(NamedTuple):
    versions: tuple[int, ...] = (0,)  # live ones of the past, oldest first; the last one is the latest
    files: frozenset[int] = frozenset([0])
    made: int = 0  # so many overwrites
    log: int = 0
    plan: int = NONE  # the version that a waiting plan needs
    planned: bool = False
    savepoint: int = NONE
    look: tuple[int, frozenset[int]] | None = None  # a cleaner's: its place in the log, and what it spares
    chosen: tuple[int, frozenset[int]] | None = None  # its place, and what it wants to remove
    waiting: frozenset[int] = frozenset()  # what the clean that waits removes
    cleans: int = 0
    executors: tuple[frozenset[int], ...] = ()  # what each has still to remove, also when others have completed it
    restores: int = 0


Step = tuple[str, State]


class CleanModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: CleanRules) -> None:
        self.rules = rules

    def first(self) -> State:
        return State()

    def steps(self, state: State) -> Iterator[Step]:
        if state.made < self.rules.overwrites:
            new = state.made + 1
            after = state._replace(versions=(*state.versions, new), files=state.files | {new}, made=new)
            yield f"version {new} is committed", _logged(after)
        if not state.planned:
            yield "a plan is made", _logged(state._replace(plan=state.versions[-1], planned=True))
        if state.plan != NONE:
            yield "the plan ends", _logged(state._replace(plan=NONE))
        if state.savepoint == NONE:
            for version in state.versions:
                if version in state.files and not (self.rules.savepoint_asks and version in state.waiting):
                    yield f"version {version} is kept", _logged(state._replace(savepoint=version))
        if state.restores < self.rules.restores:
            yield from self._restore(state)
        yield from self._plan_clean(state)
        yield from self._remove(state)

    def _restore(self, state: State) -> Iterator[Step]:
        """Plans that are younger go with it; cleans that wait are not taken back, nor what they remove."""
        for place, version in enumerate(state.versions[:-1]):
            refused = self.rules.restore_asks and (state.waiting or version not in state.files)
            if not refused and state.savepoint <= version:
                gone = state.files.difference(state.versions[place + 1 :])
                plan = state.plan if state.plan <= version else NONE
                after = state._replace(versions=state.versions[: place + 1], files=gone, plan=plan)
                yield f"version {version} is restored", _logged(after._replace(restores=state.restores + 1))

    def _plan_clean(self, state: State) -> Iterator[Step]:
        if state.look is None and state.chosen is None and state.cleans < self.rules.cleans and not state.waiting:
            spared = {state.plan} if self.rules.heeds_plans else set[int]()
            spared |= {state.savepoint} if self.rules.heeds_savepoints else set()
            yield "a cleaner lists what waits", state._replace(look=(state.log, frozenset(spared)))
        if state.look is not None:
            place, spared_then = state.look
            superseded = state.files.intersection(state.versions[:-1]) - spared_then
            yield "and versions", state._replace(look=None, chosen=(place, superseded) if superseded else None)
        if state.chosen is not None:
            place, removed = state.chosen
            if (self.rules.in_log and place != state.log) or state.waiting:
                yield "finds that the log has moved", state._replace(chosen=None)
            else:
                executors = (removed,) * self.rules.executors
                after = state._replace(chosen=None, waiting=removed, cleans=state.cleans + 1)
                yield (
                    f"a clean of {sorted(removed)} is planned",
                    _logged(after._replace(executors=(*state.executors, *executors))),
                )

    def _remove(self, state: State) -> Iterator[Step]:
        for who, left in enumerate(state.executors):
            others = (*state.executors[:who], *state.executors[who + 1 :])
            for version in left:
                after = state._replace(
                    files=state.files - {version}, executors=tuple(sorted((*others, left - {version}), key=sorted))
                )
                yield f"version {version} is removed", after
            if not left and state.waiting and not state.waiting & state.files:
                yield "the clean completes", _logged(state._replace(waiting=frozenset(), executors=others))

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        if state.versions[-1] not in state.files:
            return "the latest version is gone"
        if state.plan != NONE and state.plan not in state.files:
            return "what a plan reads is gone"
        if state.savepoint != NONE and state.savepoint not in state.files:
            return "what a savepoint keeps is gone"
        return None


def _logged(state: State) -> State:
    return state._replace(log=state.log + 1)
