"""Where the tasks of writes and of table services run: in this process, or on a session's executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from lakelatch.format.names import NO_TASK
from lakelatch.progress import count, counted

T = TypeVar("T")
R = TypeVar("R")
#: Does one thing, under a token that no other attempt has; None if there is nothing to report. Pickles.
Task: TypeAlias = Callable[[T, str], R | None]


class Executor(Protocol):
    """Runs tasks, in this process or elsewhere."""

    @property
    def tasks(self) -> bool:
        """Whether services that rewrite data files may run here; otherwise they are left to other writers."""
        ...

    def map(self, work: Task[T, R], things: Sequence[T], kind: type[R], what: str, small: bool = False) -> list[R]:
        """Returns the results of `work` for each thing, in any order, without those that are None.

        Work may be done more than once for a thing. `kind` is a dataclass of texts and whole numbers; `what` describes
        the work in user interfaces. `small` work is done in this process. Errors: those of `work`.
        """
        ...


@dataclass(frozen=True)
class Here:
    """Does the work in this process, one thing after the other."""

    tasks: bool = True

    def map(self, work: Task[T, R], things: Sequence[T], kind: type[R], what: str, small: bool = False) -> list[R]:
        """See `Executor`."""
        found: list[R] = []
        with counted(what, len(things)):
            for thing in things:
                made = work(thing, NO_TASK)
                found += [made] if made is not None else []
                count(tasks=1)
        return found


HERE = Here()
#: For the commit of a stream or a data source, whose process has no session: only small work is done there.
NO_TASKS = Here(tasks=False)
