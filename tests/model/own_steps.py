"""The steps that depend on one participant and on what all share: found once, whatever the others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

S = TypeVar("S", bound=tuple[Any, ...])
_Step = tuple[str, Any, tuple[Any, ...]]  # what is done, what the participant is then, and what all share


class OwnSteps(Generic[S]):
    """Remembers such steps; a step that looks at another participant after all meets None there, and fails.

    The first `groups` fields of a state, which is of the `kind`, hold participants; the others what they share.
    """

    def __init__(self, kind: type[S], groups: int = 1) -> None:
        self._kind, self._groups = kind, groups
        self._found: dict[Hashable, dict[Hashable, list[_Step]]] = {}
        self._state: S | None = None
        self._here: dict[Hashable, list[_Step]] = {}

    def forget(self) -> None:
        self._found, self._here, self._state = {}, {}, None

    def steps(
        self, state: S, group: int, who: int, find: Callable[[S, int, Any], Iterable[tuple[str, S]]]
    ) -> Sequence[tuple[str, S]]:
        """The steps that `find` finds for a participant, in this state."""
        here = self._here if state is self._state else self._shared_by(state)
        participants = state[group]
        key = group, who, participants[who]
        found = here.get(key)
        if found is None:
            steps = find(self._with_others_hidden(state, group, who), who, participants[who])
            found = here[key] = [(done, after[group][who], after[self._groups :]) for done, after in steps]
        if not found:
            return ()
        make, kind, before, behind = tuple.__new__, self._kind, participants[:who], participants[who + 1 :]
        if self._groups == 1:
            return [(done, make(kind, ((*before, mine, *behind), *shared))) for done, mine, shared in found]
        first, last = state[:group], state[group + 1 : self._groups]
        return [(done, make(kind, (*first, (*before, mine, *behind), *last, *shared))) for done, mine, shared in found]

    def around(self, state: S, find: Callable[[S], Iterable[tuple[str, S]]]) -> Sequence[tuple[str, S]]:
        """The steps that change nothing but what all share, and depend on that alone."""
        here = self._here if state is self._state else self._shared_by(state)
        found = here.get(None)
        if found is None:
            steps = find(self._with_others_hidden(state))
            found = here[None] = [(done, None, after[self._groups :]) for done, after in steps]
        participants = state[: self._groups]
        return [(done, tuple.__new__(self._kind, (*participants, *shared))) for done, _, shared in found]

    def _shared_by(self, state: S) -> dict[Hashable, list[_Step]]:
        """What is known of the states that share the same; it is asked for once for each state."""
        self._state, self._here = state, self._found.setdefault(state[self._groups :], {})
        return self._here

    def _with_others_hidden(self, state: S, group: int = -1, who: int = -1) -> S:
        hidden = [
            tuple(one if (place, other) == (group, who) else None for other, one in enumerate(participants))
            for place, participants in enumerate(state[: self._groups])
        ]
        return tuple.__new__(self._kind, (*hidden, *state[self._groups :]))
