"""How a commit ends: as a value that says what its caller has to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lakelatch.errors import InvariantBroken, TransactionEnded, WriteConflict
from lakelatch.timeline.metadata import CommitMetadata, FileGroup


@dataclass(frozen=True)
class Committed:
    """The proof of a commit: it is visible under this completion time, which is above every earlier one.

    `metadata` is what was committed, as it was resolved at the place in the log.
    """

    instant: str
    completion: str
    slot: int
    token: int
    metadata: CommitMetadata = field(repr=False)


@dataclass(frozen=True)
class Conflicted:
    """Another write came first; nothing of this one is visible. `files_kept`: until `abort`, for another try."""

    conflict: WriteConflict
    files_kept: bool = False


@dataclass(frozen=True)
class Displaced:
    """Some of the files lie in file groups that were replaced since they were written; the transaction is still open.

    `successors` has the file id that holds now for each file group of this write whose file id does not any more.
    """

    successors: Mapping[FileGroup, str]


@dataclass(frozen=True)
class Ended:
    """Somebody else has ended the transaction: rolled it back, or completed it."""

    error: TransactionEnded


class PlanCancelled(TransactionEnded):
    """The plan was called off, and its executor stops: nothing of it is visible. `execute_cancel` tidies up."""

    @classmethod
    def of(cls, action: str, instant: str) -> PlanCancelled:
        return cls(
            f"{action} {instant} was cancelled, so nothing of it is carried out: what is left of it goes with "
            "`lakelatch cancel execute`, or with the next clean",
            instant=instant,
        )


Outcome: TypeAlias = Committed | Conflicted | Displaced | Ended


def committed_or_raise(outcome: Outcome) -> Committed:
    """The proof of a commit, or the error that says why there is none."""
    if isinstance(outcome, Committed):
        return outcome
    if isinstance(outcome, Conflicted):
        raise outcome.conflict
    if isinstance(outcome, Ended):
        raise outcome.error
    raise InvariantBroken("a commit was displaced that has no files to relocate")
