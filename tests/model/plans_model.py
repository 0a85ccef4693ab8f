"""Plans: two executors of one compaction, cancellers, and what a reader makes of it.

The log is one step here, as in `claims_model`. That a plan takes in exactly what is older than itself is shown in
`commit_log_model`; here it is about the plan's end, and about the file that its executors make.

A cancellation is an event of the log that names the plan. What follows can be done again by anybody, as after a
rollback: the claim goes, the names that the plan fixes get tombstones, its timeline files go, and an event says so.

A cancellation in part names the file group whose output the base file is, and the plan goes on with others: it commits
without the file, and names its file id as replaced by the same commit, so that nobody reads it whenever it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from own_steps import OwnSteps

OVER = ("committed", "gave up", "cancelled", "too late", "begun", "done")
DROPPED = -2  # in the place of the file of a completion that leaves it out
_CARRY_OUT = ("unclaim", "bar", "unpend", "finish", "cancelled")


@dataclass(frozen=True)
class PlanRules:
    """The bounds, and then the protocol: each of its flags that is turned off plants a mistake."""

    writers: int = 2
    executors: int = 2
    cancellers: int = 2
    repeated_files: int = 1  # so often the request that makes the new base file arrives once more
    cancel_in_log: bool = True  # else the plan is taken off the timeline, and its claim removed
    knows_what_it_missed: bool = True  # an executor that began below the watermark ends
    lists_before: bool = True  # an executor looks for a cancellation that is older than its beginning
    checks_completion: bool = True  # a canceller looks whether it comes too late
    names_from_plan: bool = True  # else each executor names its file
    bars: bool = True
    leaves_tombstones: bool = True
    in_part: bool = False  # what is cancelled is one file group of several, and the plan commits the others
    hides_dropped: bool = True  # the commit names the dropped output as replaced


class Part(NamedTuple):
    step: str
    start: int = 0
    seen: int = 0


class State(NamedTuple):
    executors: tuple[Part, ...]
    cancellers: tuple[Part, ...]
    commits: int = 0  # so many writers have committed
    includes: int = -1  # and so many before the plan, as soon as there is one
    log: tuple[tuple[str, int], ...] = ()  # (event, by whom)
    watermark: int = 0
    claim: int = -1
    pending: bool = False
    files: frozenset[int] = frozenset()  # the plan's base file; its number is 0, or the executor's
    tombstones: frozenset[int] = frozenset()
    air: frozenset[int] = frozenset()
    repeated: int = 0
    told: bool = False  # a cancellation was acknowledged
    hidden: bool = False  # no reader shows the plan's base file, should it be there


Step = tuple[str, State]


class PlanModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: PlanRules) -> None:
        self.rules = rules
        self._own_steps: OwnSteps[State] = OwnSteps(State, groups=2)

    def forget(self) -> None:
        self._own_steps.forget()

    def first(self) -> State:
        return State((Part("begin"),) * self.rules.executors, (Part("look"),) * self.rules.cancellers)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._own_steps.around(state, self._around)
        if state.includes < 0:
            return
        for who, mine in enumerate(state.executors):
            if mine.step not in OVER and not (who and state.executors[who - 1].step == "begin"):
                yield from self._own_steps.steps(state, 0, who, self._by_executor)
        for who, mine in enumerate(state.cancellers):
            if mine.step not in OVER and not (who and state.cancellers[who - 1].step == "look"):
                yield from self._own_steps.steps(state, 1, who, self._by_canceller)

    def _by_executor(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for done, after in self._execute(state, who, mine):
            yield f"e{who} {done}", after

    def _by_canceller(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        for done, after in self._cancel(state, who, mine):
            yield f"c{who} {done}", after

    def _around(self, state: State) -> Iterator[Step]:
        if state.commits < self.rules.writers:
            yield "a writer commits", _append(state, "commit", -1)._replace(commits=state.commits + 1)
        if state.includes < 0:
            yield "plans", _append(state, "plan", -1)._replace(includes=state.commits, pending=True)
            return
        if state.watermark < len(state.log):
            yield "the watermark rises to the tail", state._replace(watermark=len(state.log))
        for file in state.air:
            yield f"the request for file {file} is repeated", _make(state._replace(air=state.air - {file}), file)

    # -- an executor ------------------------------------------------------------------------------------------------

    def _execute(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        file = 0 if self.rules.names_from_plan else who
        if mine.step == "begin":
            over = any(event in self._ends for event, _ in state.log)
            ended = not state.pending or (over and self.rules.lists_before)
            yield "looks at the plan", _executes(state, who, "gave up" if ended else "claim", start=len(state.log))
        elif mine.step == "claim":
            yield "claims the plan, or takes it over", _executes(state._replace(claim=who), who, "make")
        elif mine.step == "make":
            made = _executes(_make(state, file), who, "check")
            yield "makes the file, or finds it", made
            if state.repeated < self.rules.repeated_files:
                made = made._replace(air=state.air | {file}, repeated=state.repeated + 1)
                yield "makes the file, and the request will be repeated", made
        elif mine.step == "check":
            missed = mine.start < state.watermark
            since = state.log[max(mine.start, state.watermark) :]
            ended = any(event in self._ends for event, _ in since) or not state.pending
            if ended or state.claim != who or (missed and self.rules.knows_what_it_missed):
                yield "finds that it may not commit", _executes(state, who, "gave up", start=0)
            else:
                yield "finds that it may commit", _executes(state, who, "append", seen=len(state.log))
        elif len(state.log) != mine.seen:
            yield "finds the slot taken", _executes(state, who, "check", seen=0)
        else:
            looked_at = state.log if self.rules.lists_before else state.log[mine.start :]
            dropped = self.rules.in_part and any(event == "cancel" for event, _ in looked_at)
            ended_now = _append(state, "complete", DROPPED if dropped else file)._replace(pending=False, claim=-1)
            ended_now = ended_now._replace(hidden=dropped and self.rules.hides_dropped)
            done = "commits, but for the part that was called off" if dropped else "commits"
            yield done, _executes(ended_now, who, "committed", start=0, seen=0)

    @property
    def _ends(self) -> tuple[str, ...]:
        """The events that end a plan."""
        return ("complete",) if self.rules.in_part else ("complete", "cancel")

    # -- a canceller ------------------------------------------------------------------------------------------------

    def _cancel(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        events = {event for event, _ in state.log}
        if mine.step == "look":
            if "cancel" in events or (state.told and not self.rules.cancel_in_log):
                then = "done" if "finish" in events or self.rules.in_part else "unclaim"
            elif "complete" in events and self.rules.checks_completion:
                then = "too late"
            else:
                then = "ask"
            yield "looks at the plan", _cancels(state, who, then, seen=len(state.log) if then == "ask" else 0)
        elif mine.step == "ask" and not self.rules.cancel_in_log:
            yield "says that it is cancelled", _cancels(state._replace(told=True), who, "unclaim", seen=0)
        elif mine.step == "ask" and len(state.log) != mine.seen:
            yield "finds the slot taken", _cancels(state, who, "look", seen=0)
        elif mine.step == "ask":
            told = _append(state, "cancel", -1)._replace(told=True)
            yield "cancels, and is told so", _cancels(told, who, "done" if self.rules.in_part else "unclaim", seen=0)
        else:
            after = _CARRY_OUT[_CARRY_OUT.index(mine.step) + 1]
            yield mine.step, _cancels(self._carry_out(state, mine.step), who, after)

    def _carry_out(self, state: State, step: str) -> State:
        if step == "unclaim":
            return state._replace(claim=-1)
        if step == "unpend":
            return state._replace(pending=False)
        if step == "finish":
            return state if ("finish", -1) in state.log else _append(state, "finish", -1)
        tombstones = state.files if self.rules.leaves_tombstones else frozenset()
        tombstones |= frozenset({0}) - state.files if self.rules.bars else frozenset()
        return state._replace(files=frozenset(), tombstones=state.tombstones | tombstones)

    # -- promises ---------------------------------------------------------------------------------------------------

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        completed = [file for event, file in state.log if event == "complete"]
        if len(completed) > 1:
            return "a plan was committed twice"
        if completed == [DROPPED]:
            return "a file of a part that was called off is read" if state.files and not state.hidden else None
        if completed and state.told:
            return "a plan was both committed and cancelled"
        if completed and completed[0] not in state.files:
            return "a committed file is gone, and its rows with it"
        if completed and len(state.files) > 1:
            return "a file of another executor is read as well"
        if ("finish", -1) in state.log and state.files:
            return "a plan that was cancelled left a file"
        return None


def _append(state: State, event: str, by: int) -> State:
    return state._replace(log=(*state.log, (event, by)))


def _make(state: State, file: int) -> State:
    return state if file in state.tombstones else state._replace(files=state.files | {file})


def _executes(state: State, who: int, step: str, **values: int) -> State:
    changed = state.executors[who]._replace(step=step, **values)
    return state._replace(executors=(*state.executors[:who], changed, *state.executors[who + 1 :]))


def _cancels(state: State, who: int, step: str, **values: int) -> State:
    changed = state.cancellers[who]._replace(step=step, **values)
    return state._replace(cancellers=(*state.cancellers[:who], changed, *state.cancellers[who + 1 :]))
