"""Fault plans: what goes wrong with calls to a storage or a lock service, and when.

`carry` takes one call to its effect and back under a plan. A plan decides for each call; the mechanics are here, once.
"""

from __future__ import annotations

import random  # noqa: TID251  (seeded here, so that a run can be repeated)
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

from lakelatch.errors import InvalidRequest, InvariantBroken, LakelatchError, Unavailable

T = TypeVar("T")

UNAVAILABLE = "unavailable"  # nothing happened, and the caller gets that answer
LOST_BEFORE = "lost_before"  # the change was lost on its way, and the caller cannot tell
LATE = "late"  # as lost_before, but the change takes place after its caller has given it up
LOST_AFTER = "lost_after"  # the change was made, and its answer was lost
REPEATED = "repeated"  # the change was made, and is made once more later
DONE = ""  # nothing went wrong
_KINDS = (LOST_AFTER, LOST_BEFORE, UNAVAILABLE)
_PUTS = ("put", "put_if_absent")
OPERATIONS = ("read", "stat", "list", "put", "put_if_absent", "delete")


class FaultPlan:
    """Decides the fate of each call; this one lets every call through. Each method may let time pass."""

    def decide(self, operation: str, path: str, changes: bool) -> str:
        """The fate of a call that is about to be made: one of the kinds above.

        The answer of a call that `changes` nothing cannot be lost: `DONE` or `UNAVAILABLE` are all that it can get.
        """
        return DONE

    def loses_answer(self, kind: str) -> bool:
        """Whether the answer to a change is lost on its way back; `kind` is what was decided before the change."""
        return kind == LOST_AFTER

    def act_late(self, act: Callable[[], None]) -> None:
        """Makes a change whose caller does not wait for it, after some time."""
        raise InvariantBroken(f"{type(self).__name__} has no late arrivals")

    def note(self, operation: str, path: str, kind: str, result: object = None) -> None:
        """Called with the kind of each call, or its result, when that is decided."""


def carry(
    plan: FaultPlan,
    operation: str,
    effect: Callable[..., T],
    arguments: tuple[Any, ...],
    lost: type[LakelatchError] | None = None,
) -> T:
    """Makes one call under a plan. `lost` is the error of a change whose answer is lost; None for a read.

    The first argument names what the call is about.
    """
    path = arguments[0]
    kind = plan.decide(operation, path, lost is not None)
    if kind == UNAVAILABLE:
        plan.note(operation, path, kind)
        raise Unavailable(f"injected fault: {operation} of {path!r} failed", path=path)
    if lost is not None and kind in (LOST_BEFORE, LATE):
        if kind == LATE:
            plan.act_late(partial(_make_late, plan, operation, effect, arguments))
        plan.note(operation, path, kind)
        raise lost(f"injected fault: it is unknown whether the {operation} of {path!r} was done", path=path)
    result = effect(*arguments)
    plan.note(operation, path, DONE, result)
    if kind == REPEATED:
        plan.act_late(partial(_make_late, plan, operation, effect, arguments))
    if lost is not None and plan.loses_answer(kind):
        raise lost(f"injected fault: the answer about the {operation} of {path!r} was lost", path=path)
    return result


def _make_late(plan: FaultPlan, operation: str, effect: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    plan.note(operation, arguments[0], DONE, effect(*arguments))


@dataclass
class FaultRates:
    """How likely each call is to go wrong, by the kind of fault; all zero is a plan without faults."""

    unavailable: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    late: float = 0.0
    repeated: float = 0.0

    def draw(self, drawn: float, changes: bool) -> str:
        """The kind of fault that a number between 0 and 1 stands for."""
        if drawn < self.unavailable:
            return UNAVAILABLE
        if not changes:
            return DONE
        drawn -= self.unavailable
        if drawn < self.late:
            return LATE
        drawn -= self.late
        if drawn < self.lost_before:
            return LOST_BEFORE
        drawn -= self.lost_before
        if drawn < self.lost_after:
            return LOST_AFTER
        return REPEATED if drawn - self.lost_after < self.repeated else DONE

    def change(self, **values: float) -> None:
        """Sets some of the rates. Errors: `InvalidRequest` for a name that is none."""
        known = {field.name for field in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise InvalidRequest(f"{name}: no such fault, use {', '.join(sorted(known))}")
            setattr(self, name, value)

    def clear(self) -> None:
        """No call goes wrong any more."""
        self.change(**{field.name: type(getattr(self, field.name))(0) for field in fields(FaultRates)})


@dataclass(frozen=True)
class Fault:
    """Which calls fail, and how: of `operation` ("" for every one that can), on paths that start with `prefix`.

    `probability` is that of each such call, and after `times` failures the fault is over (None: never). Only a put's
    answer can be lost, so the kinds `lost_after` and `lost_before` concern `put` and `put_if_absent` alone.
    """

    kind: str
    operation: str = ""
    prefix: str = ""
    probability: float = 1.0
    times: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InvalidRequest(f"kind={self.kind!r} is no fault: use one of {', '.join(_KINDS)}")
        possible = OPERATIONS if self.kind == UNAVAILABLE else _PUTS
        if self.operation and self.operation not in possible:
            raise InvalidRequest(f"operation={self.operation!r} cannot be {self.kind}: use {', '.join(possible)}")
        if not 0 <= self.probability <= 1:
            raise InvalidRequest(f"probability={self.probability}: use 0 to 1")

    def concerns(self, operation: str, path: str) -> bool:
        """Whether a call can suffer this fault."""
        wanted = self.operation in ("", operation) and path.startswith(self.prefix)
        return wanted and (self.kind == UNAVAILABLE or operation in _PUTS)


class ListedFaults(FaultPlan):
    """The first fault of a list that concerns a call and is drawn decides; `failed` counts them.

    `before(operation, path)` is called ahead of each call, outside of any lock: what it does to the storage behind, or
    raises, happens at exactly that point. A pickled copy begins anew with the same seed, and without `before`.
    """

    def __init__(
        self, faults: Iterable[Fault] = (), seed: int = 0, before: Callable[[str, str], None] | None = None
    ) -> None:
        self.failed = 0
        self._before = before
        self._faults = tuple(faults)
        self._seed = seed
        self._random = random.Random(seed)
        self._left = [fault.times for fault in self._faults]
        self._guard = threading.Lock()

    def decide(self, operation: str, path: str, changes: bool) -> str:
        if self._before is not None:
            self._before(operation, path)
        with self._guard:
            for number, fault in enumerate(self._faults):
                left = self._left[number]
                if left == 0 or not fault.concerns(operation, path) or self._random.random() >= fault.probability:
                    continue
                self._left[number] = None if left is None else left - 1
                self.failed += 1
                return fault.kind
        return DONE

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._faults, self._seed)
