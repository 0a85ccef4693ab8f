"""Removing the files of a clean: with threads of this process, or in tasks if they are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from lakelatch.engine.services import cleaning
from lakelatch.engine.services.cleaning import Remover
from lakelatch.storage.contract import Storage

_FILES_OF_TASK = 1000


@runtime_checkable
class RemovesFiles(Protocol):
    """A `Runner` (see `planned`) whose tasks can also remove files."""

    def remove(self, storage: Storage, parallelism: int, parts: Sequence[Sequence[str]]) -> int:
        """Removes each part in a task of its own, with so many threads; returns how many bytes they had."""
        ...


def remover(
    storage: Storage, parallelism: int, runner: Callable[[], object] | None, files_of_task: int = _FILES_OF_TASK
) -> Remover:
    """Removes files where `runner` has tasks run, if that is on executors and they are more than one task takes.

    Otherwise threads of this process do it, and nobody is asked for a runner, which may have to open a session. A task
    that Spark repeats finds what is left; the bytes of what its first attempt has removed are not counted.
    """
    here = cleaning.in_threads(storage, parallelism)

    def remove(paths: Sequence[str]) -> int:
        if runner is None or len(paths) <= files_of_task:
            return here(paths)
        run = runner()
        if not isinstance(run, RemovesFiles):
            return here(paths)
        parts = [tuple(paths[start : start + files_of_task]) for start in range(0, len(paths), files_of_task)]
        return run.remove(storage, parallelism, parts)

    return remove
