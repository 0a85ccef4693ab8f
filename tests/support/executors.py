"""Executors that do their work as a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakelatch.engine.run.executor import HERE, Executor, Task
from lakelatch.engine.run.file_report import FileReport

#: What is run in the place of all tasks, with their work and the things that it is done to.
Run: TypeAlias = Callable[[Any, Any], list[Any]]


@dataclass(frozen=True)
class Running:
    """Has all tasks run by a function, in this process."""

    run: Run
    tasks: bool = True

    def map(
        self, work: Task[Any, Any], things: Sequence[Any], kind: type[Any], what: str, small: bool = False
    ) -> list[Any]:
        return self.run(work, things)


def executor_of(run: Run | None) -> Executor:
    """What has all tasks run by a function, or as the product does."""
    return HERE if run is None else Running(run)


def run_here(work: Any, things: Any) -> list[Any]:
    """As the product does it."""
    return HERE.map(work, things, FileReport, "")
