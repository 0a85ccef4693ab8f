"""The steps that depend on one participant and on what all share: found once, whatever the others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

S = TypeVar("S", bound=tuple[Any, ...])
_Step = tuple[str, Any, tuple[Any, ...]]  # what is done, what the participant is then, and what all share


class OwnSteps(Generic[S]):
    """Remembers such steps; a step that looks at another participant after all meets None there, and fails.

    The first `groups` fields of a state hold participants, the others what they share.
    """

    def __init__(self, make: Callable[[Iterable[Any]], S], groups: int = 1) -> None:
        self._make, self._groups = make, groups
        self._found: dict[Hashable, dict[Hashable, list[_Step]]] = {}
        self._state: S | None = None
        self._here: dict[Hashable, list[_Step]] = {}

    def forget(self) -> None:
        self._found, self._state = {}, None

    def steps(
        self, state: S, group: int, who: int, find: Callable[[S, int, Any], Iterable[tuple[str, S]]]
    ) -> Iterator[tuple[str, S]]:
        """The steps that `find` finds for a participant, in this state."""
        here = self._shared_by(state)
        before = state[group]
        key = group, who, before[who]
        found = here.get(key)
        if found is None:
            alone = self._with_others_hidden(state, group, who)
            steps = find(alone, who, before[who])
            found = here[key] = [(done, after[group][who], after[self._groups :]) for done, after in steps]
        first, last = state[:group], state[group + 1 : self._groups]
        for done, mine, shared in found:
            yield done, self._make((*first, (*before[:who], mine, *before[who + 1 :]), *last, *shared))

    def around(self, state: S, find: Callable[[S], Iterable[tuple[str, S]]]) -> Iterator[tuple[str, S]]:
        """The steps that change nothing but what all share, and depend on that alone."""
        here = self._shared_by(state)
        found = here.get(None)
        if found is None:
            alone = self._with_others_hidden(state)
            found = here[None] = [(done, None, after[self._groups :]) for done, after in find(alone)]
        if found:
            participants = state[: self._groups]
            for done, _, shared in found:
                yield done, self._make((*participants, *shared))

    def _shared_by(self, state: S) -> dict[Hashable, list[_Step]]:
        if state is not self._state:  # it is asked for each participant
            self._state, self._here = state, self._found.setdefault(state[self._groups :], {})
        return self._here

    def _with_others_hidden(self, state: S, group: int = -1, who: int = -1) -> S:
        hidden = [
            tuple(one if (place, other) == (group, who) else None for other, one in enumerate(participants))
            for place, participants in enumerate(state[: self._groups])
        ]
        return self._make((*hidden, *state[self._groups :]))
