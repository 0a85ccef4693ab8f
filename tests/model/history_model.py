"""Manifests of the history: created once each, by archivers of which the greatest one counts.

Each archiver builds on the greatest manifest, creates the next number, and looks whether its own is the greatest; only
then do the files of what it has recorded go. Old manifests are removed, so a number can be free again, for an archiver
that was paused or for a request that is late. Level files are written before, and no two of one name differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_AT_ONCE = 3


@dataclass(frozen=True)
class HistoryRules:
    """The bounds, and then the protocol: each of its flags that is turned off plants a mistake."""

    instants: int = 3
    archivers: int = 2
    runs: int = 2  # of each archiver
    late_puts: int = 1  # requests that arrive late, or once more
    kept: int = 1  # so many manifests stay
    creates: bool = True  # a manifest is put only where there is none
    looks_after: bool = True  # whether its own is the greatest, before files go
    history_first: bool = True  # the manifest counts before files go
    puts_no_version: bool = True  # the greatest manifest counts; no file names another


class Archiver(NamedTuple):
    step: str = "look"
    number: int = 0
    content: frozenset[int] = frozenset()
    instants: frozenset[int] = frozenset()  # that it takes away
    runs: int = 0


class State(NamedTuple):
    archivers: tuple[Archiver, ...]
    active: frozenset[int]
    manifests: tuple[tuple[int, frozenset[int]], ...] = ()  # by number
    version: int = 0  # the number that a file names, 0 for none
    air: tuple[tuple[str, int, frozenset[int]], ...] = ()
    late: int = 0


Step = tuple[str, State]


class HistoryModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: HistoryRules) -> None:
        self.rules = rules

    def first(self) -> State:
        return State((Archiver(),) * self.rules.archivers, frozenset(range(1, self.rules.instants + 1)))

    def steps(self, state: State) -> Iterator[Step]:
        for request in state.air:
            what, number, content = request
            left = state._replace(air=tuple(one for one in state.air if one != request))
            after = left._replace(version=number) if what == "version" else self._put(left, number, content)
            yield f"{what} {number} arrives late", after
        for who, mine in enumerate(state.archivers):
            for done, after, then in self._archive(state, mine):
                archivers = (*state.archivers[:who], then, *state.archivers[who + 1 :])
                yield f"a{who} {done}", after._replace(archivers=archivers)

    def _archive(self, state: State, mine: Archiver) -> Iterator[tuple[str, State, Archiver]]:
        again = Archiver(runs=mine.runs + 1)
        if mine.step == "look":
            if mine.runs == self.rules.runs:
                return
            content = _content(state)
            ready = state.active - content
            back = state._replace(active=ready)  # what an archiver that died has left
            for most in range(1, min(len(ready), _AT_ONCE) + 1):
                picked = frozenset(sorted(ready)[:most])
                step = "put" if self.rules.history_first else "remove"
                chosen = Archiver(step, _greatest(state) + 1, content | picked, picked, mine.runs)
                yield f"looks, and picks up to {max(picked)}", back, chosen
            if not ready:
                yield "looks, and finds nothing", back, again
        elif mine.step == "put":
            done = self._put(state, mine.number, mine.content)
            if done is state:
                yield f"finds manifest {mine.number} there", state, again
                return
            then = mine._replace(step="check" if self.rules.looks_after else "remove")
            yield f"makes manifest {mine.number}", done, then
            if state.late < self.rules.late_puts:
                in_air = (*state.air, ("manifest", mine.number, mine.content))
                yield f"gives up manifest {mine.number}", state._replace(air=in_air, late=state.late + 1), again
                yield f"makes manifest {mine.number} twice", done._replace(air=in_air, late=state.late + 1), then
        elif mine.step == "check":
            if _greatest(state) == mine.number:
                yield "finds that it counts", state, mine._replace(step="version")
            else:
                yield "finds that it does not count", _without(state, mine.number), again
        elif mine.step == "version":
            then = mine._replace(step="remove")
            if self.rules.puts_no_version:
                yield "removes the version", state._replace(version=0), then
                return
            yield f"names version {mine.number}", state._replace(version=mine.number), then
            if state.late < self.rules.late_puts:
                in_air = (*state.air, ("version", mine.number, frozenset[int]()))
                yield (
                    f"names version {mine.number} twice",
                    state._replace(version=mine.number, air=in_air, late=state.late + 1),
                    then,
                )
        elif mine.step == "remove":
            then = mine._replace(step="tidy" if self.rules.history_first else "put")
            yield f"removes up to {max(mine.instants)}", state._replace(active=state.active - mine.instants), then
        else:
            last = [number for number, _ in state.manifests[-self.rules.kept :]]
            kept = tuple(one for one in state.manifests if one[0] in (*last, state.version))
            yield "removes old manifests", state._replace(manifests=kept), again

    def _put(self, state: State, number: int, content: frozenset[int]) -> State:
        there = dict(state.manifests)
        if number in there and self.rules.creates:
            return state
        return state._replace(manifests=tuple(sorted({**there, number: content}.items())))

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        missing = set(range(1, self.rules.instants + 1)) - state.active - _content(state)
        return "an instant is on neither timeline" if missing else None


def _content(state: State) -> frozenset[int]:
    """What the manifest that counts has recorded."""
    there = dict(state.manifests)
    return there.get(state.version or _greatest(state), frozenset())


def _greatest(state: State) -> int:
    return state.manifests[-1][0] if state.manifests else 0


def _without(state: State, number: int) -> State:
    return state._replace(manifests=tuple(one for one in state.manifests if one[0] != number))
