"""Looks at every state that a model can reach, breadth first, so that the trace to a broken promise is a shortest one.

A state is a tuple of tuples, so it can be hashed; a model gives the first state, the steps out of a state (each one
call to the storage or to the lock service, by one participant), and the first promise that a state breaks. A process
that died is one that takes no further step, and every promise is looked at in every state, so deaths need no steps.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

S = TypeVar("S", bound=Hashable)

_TOLD_EVERY = 50_000


class Model(Protocol[S]):
    """What `explore` needs."""

    def first(self) -> S: ...

    def steps(self, state: S) -> Iterable[tuple[str, S]]: ...

    def broken_promise(self, state: S) -> str | None: ...


@runtime_checkable
class Remembers(Protocol):
    """A model that keeps what it has found out about states, for as long as it is explored."""

    def forget(self) -> None: ...


@dataclass(frozen=True)
class Result(Generic[S]):
    """`problem` is None if every promise held in all `states`; else `trace` is a shortest way to break it.

    `complete` is False if `go_on` ended it: then only the states nearest to the first were looked at.
    """

    states: int
    depth: int
    problem: str | None = None
    trace: tuple[str, ...] = ()
    complete: bool = True


class Case(NamedTuple):
    name: str
    model: Model[Any]


class Planted(NamedTuple):
    """A mistake, the promise that it breaks, and a step of the shortest trace in which it shows."""

    name: str
    model: Model[Any]
    promise: str
    step: str


def explore(model: Model[S], go_on: Callable[[int, int], bool] = lambda states, depth: True) -> Result[S]:
    """Looks at every state; `go_on(states, depth)` is asked now and then, and may end it."""
    with _no_garbage(model):
        return _explored(model, go_on)  # with which all states are gone before garbage is looked for again


def _explored(model: Model[S], go_on: Callable[[int, int], bool]) -> Result[S]:
    came_from: dict[S, S | None] = {}
    depth, states = 0, 0
    for depth, state in _breadth_first(model, came_from):
        problem = model.broken_promise(state)
        if problem is not None:
            return Result(len(came_from), depth, problem, _trace(model, came_from, state))
        states += 1
        if states % _TOLD_EVERY == 0 and not go_on(states, depth):
            return Result(states, depth, complete=False)
    return Result(states, depth)


def reachable(model: Model[S]) -> set[S]:
    """Every state, whatever it breaks."""
    with _no_garbage(model):
        return {state for _, state in _breadth_first(model, {})}


@contextmanager
def _no_garbage(model: Model[S]) -> Iterator[None]:
    """States have no cycles, and to look for some among millions of tuples takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if isinstance(model, Remembers):
            model.forget()
        if enabled:
            gc.enable()


def _breadth_first(model: Model[S], came_from: dict[S, S | None]) -> Iterable[tuple[int, S]]:
    first = model.first()
    came_from[first] = None
    waiting = deque([first])
    depth, left_here = 0, 1
    known = 1
    while waiting:
        state = waiting.popleft()
        yield depth, state
        for _, after in model.steps(state):
            came_from.setdefault(after, state)  # so a state is hashed once, which takes as long as a step
            if len(came_from) > known:
                known += 1
                waiting.append(after)
        left_here -= 1
        if left_here == 0:
            depth, left_here = depth + 1, len(waiting)


def _trace(model: Model[S], came_from: dict[S, S | None], last: S) -> tuple[str, ...]:
    done: list[str] = []
    before = came_from[last]
    while before is not None:
        done.append(next(label for label, after in model.steps(before) if after == last))
        last, before = before, came_from[before]
    return tuple(reversed(done))
