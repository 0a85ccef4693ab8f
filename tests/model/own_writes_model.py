"""A transaction that reads a table and changes it several times, beside others: what it sees, and its one slot (0049).

The table is one bucket. Whoever replaces its rows gives it another file group, and rows in one that was replaced are
read by nobody. A commit of others is one step, and so is a slot: how either gets into the log, and how a slot of
several tables is decided, is in `tables_model`. The log's last slot may be shown in part, by anybody, one change after
the other. Who dies takes no further step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

READ, WRITE, REPLACE = "read", "write", "replace"
NEVER = -1


@dataclass(frozen=True)
class OwnWritesRules:
    """The bounds, and then the protocol: each of its values that differs from the default plants a mistake."""

    program: tuple[str, ...] = (READ, WRITE, READ, WRITE, READ)
    others: tuple[str, ...] = (WRITE, REPLACE)
    optimistic: bool = True
    hides_later: bool = True  # what it looks at is the table at its moment, whatever others have done since
    places_at_moment: bool = True  # so are the file groups into which its rows go
    checks_first_read: bool = True  # what was changed before the first read lies where that reads
    checks_from_moment: bool = True  # conflicts of all changes begin there; False: where each of them began
    minds_own: bool = False  # a later change finds an earlier one in its way
    moves_all: bool = True  # if others have replaced the file group, all changes move
    one_slot: bool = True
    leaves_out_half: bool = True  # a reader who finds a part of a slot shows none of it
    shows_before: bool = True  # whoever adds a slot makes what the last one lacks


class Change(NamedTuple):
    kind: str
    group: int  # where its rows lie
    mark: int  # so many slots it has seen, or believes to have seen
    step: int = 0  # of the program


class State(NamedTuple):
    log: tuple[tuple[Change, ...], ...] = ()  # slots, each with its changes; those of others have no mark
    shown: int = 0  # so many changes have their files
    done: int = 0  # so many others have committed
    step: int = 0  # of the program
    moment: int = NEVER  # so many slots it reads
    changes: tuple[Change, ...] = ()
    looked: int = NEVER  # the tail for which its changes were decided
    put: int = 0  # so many of them have a slot
    ended: str = ""
    wrong: str = ""


Step = tuple[str, State]


class OwnWritesModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: OwnWritesRules) -> None:
        self.rules = rules

    def first(self) -> State:
        return State()

    def steps(self, state: State) -> Iterator[Step]:
        if state.shown < len(_all(state)):
            yield f"change {state.shown + 1} of the log is shown", state._replace(shown=state.shown + 1)
        if state.done < len(self.rules.others) and self._may_append(state):
            kind = self.rules.others[state.done]
            group = _live(state.log) if kind == WRITE else 100 + state.done
            slot = (Change(kind, group, NEVER),)
            yield f"another one's {kind}", state._replace(log=(*state.log, slot), done=state.done + 1)
        if state.ended:
            return
        if state.step < len(self.rules.program):
            kind = self.rules.program[state.step]
            after = state._replace(step=state.step + 1)
            yield f"{kind} {state.step}", self._read(after) if kind == READ else self._change(after, kind)
        elif state.looked == NEVER:
            yield from self._decide(state)
        else:
            yield from self._put(state)

    def _may_append(self, state: State) -> bool:
        return not self.rules.shows_before or state.shown == len(_all(state))

    # -- inside the block ---------------------------------------------------------------------------------------------

    def _seen(self, state: State) -> int:
        """How many slots the transaction sees, or would see if it looked now."""
        first = state.changes[0].mark if state.changes else len(state.log)
        return state.moment if state.moment != NEVER else first

    def _read(self, state: State) -> State:
        if state.moment == NEVER:
            if self.rules.checks_first_read and _lies_elsewhere(state):
                return state._replace(ended="aborted")
            state = state._replace(moment=len(state.log))
        seen = state.moment
        looks_at = seen if self.rules.hides_later else len(state.log)
        if looks_at > seen:
            return state._replace(wrong="a transaction reads what others have done since its moment")
        group = _live(state.log[:looks_at])
        for change in state.changes:
            group = change.group if change.kind == REPLACE else group
        if any(change.group != group for change in _last_rows(state.changes)):
            return state._replace(wrong="a transaction does not read what it has written")
        return state

    def _change(self, state: State, kind: str) -> State:
        mark = self._seen(state) if self.rules.checks_from_moment else len(state.log)
        view = state.log[: self._seen(state)] if self.rules.places_at_moment else state.log
        group = _live(view)
        for change in state.changes:
            group = change.group if change.kind == REPLACE else group
        group = 200 + state.step if kind == REPLACE else group
        return state._replace(changes=(*state.changes, Change(kind, group, mark, state.step)))

    # -- its end ------------------------------------------------------------------------------------------------------

    def _decide(self, state: State) -> Iterator[Step]:
        """What becomes of all changes behind one tail."""
        if not self._may_append(state):
            return
        left = state.changes[state.put :]
        if self.rules.minds_own and len(state.changes) > 1:
            yield "finds its own change in its way", state._replace(ended="aborted")
            return
        if self.rules.optimistic and any(_by_others(state.log[change.mark :]) for change in left):
            yield "finds a conflict", state._replace(ended="aborted")
            return
        group, moved, is_displaced = _live(state.log), list[Change](), False
        for number, change in enumerate(left):
            if change.kind == REPLACE:
                group = change.group
            elif change.group != group and (self.rules.moves_all or number == 0):
                change, is_displaced = change._replace(group=group), True
            moved.append(change)
        changes = (*state.changes[: state.put], *moved)
        if is_displaced:
            yield "moves its rows", state._replace(changes=changes)
        else:
            yield "decides", state._replace(looked=len(state.log))

    def _put(self, state: State) -> Iterator[Step]:
        if len(state.log) != state.looked:
            yield "finds its slot taken", state._replace(looked=NEVER)
            return
        last = len(state.changes) if self.rules.one_slot else state.put + 1
        put = state._replace(log=(*state.log, state.changes[state.put : last]), put=last, looked=NEVER)
        yield "puts its slot", put._replace(ended="committed" if last == len(state.changes) else "")

    # -- promises -----------------------------------------------------------------------------------------------------

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        own = [number for number, slot in enumerate(state.log) if slot[0].mark != NEVER]
        if state.wrong:
            return state.wrong
        if state.ended == "aborted" and not _by_others(state.log[state.changes[0].mark :]):
            return "a transaction is aborted with nobody in its way"
        seen = _shown(state, self.rules.leaves_out_half)
        if 0 < sum(change in seen for change in state.changes) < len(state.changes):
            return "a reader sees some of several changes"
        for number in own:
            if self.rules.optimistic and _by_others(state.log[self._seen(state) : number]):
                return "a transaction overwrites what it has not read"
            if any(change.group != _live(state.log[: number + 1]) for change in _last_rows(state.log[number])):
                return "rows of a transaction are where nobody reads"
        return None


def _all(state: State) -> list[Change]:
    return [change for slot in state.log for change in slot]


def _live(log: tuple[tuple[Change, ...], ...]) -> int:
    """The file group that holds the rows by now."""
    return next((one.group for slot in reversed(log) for one in reversed(slot) if one.kind == REPLACE), 0)


def _lies_elsewhere(state: State) -> bool:
    """Whether others have replaced the file group since the first change."""
    return bool(state.changes) and _live(state.log) != _live(state.log[: state.changes[0].mark])


def _last_rows(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The changes whose rows nobody of the same transaction has replaced since."""
    last = max((number for number, one in enumerate(changes) if one.kind == REPLACE), default=0)
    return changes[last:]


def _by_others(log: tuple[tuple[Change, ...], ...]) -> bool:
    return any(slot[0].mark == NEVER for slot in log)


def _shown(state: State, leaves_out_half: bool) -> list[Change]:
    """What a reader shows of the changes whose files are there."""
    left, seen = state.shown, list[Change]()
    for slot in state.log:
        found = slot[:left]
        left -= len(found)
        seen += found if len(found) == len(slot) or not leaves_out_half else ()
    return seen
