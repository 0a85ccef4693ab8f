"""The outcomes of a commit, and the verdicts of checks at the log's tail: values that say what is to be done next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from lakelatch.errors import InvariantBroken, TransactionEnded, WriteConflict
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.timeline.plans.service_plan import ServicePlan
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.conflicts.report import Work

T = TypeVar("T")


@dataclass(frozen=True)
class Committed:
    """The proof of a commit: it is visible under this completion time, which is above every earlier one.

    `metadata` is what was committed, as resolved at the log's tail.
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

    `successors` maps each replaced file group of this write to the file id that has taken its place.
    """

    successors: Mapping[FileGroup, str]


@dataclass(frozen=True)
class Ended:
    """Another process has ended the transaction: rolled it back, or completed it."""

    error: TransactionEnded


class PlanCancelled(TransactionEnded):
    """The plan was cancelled, and its executor stops: nothing of it is visible. `execute_cancel` cleans up."""

    @classmethod
    def of(cls, action: str, instant: str) -> PlanCancelled:
        return cls(
            f"{action} {instant} was cancelled, so nothing of it is carried out: what is left of it goes with "
            "`lakelatch cancel execute`, or with the next clean",
            instant=instant,
        )


@dataclass(frozen=True)
class Staged:
    """The commit to make, as far as checks have resolved it, and the work that would be lost with it.

    `possible` are the completed writes that a strategy is shown, None for all. `spared` are file groups that the
    metadata names and the commit leaves unchanged: they conflict with no other write.
    """

    metadata: CommitMetadata
    work: Work = field(default_factory=Work)
    possible: Sequence[OtherWrite] | None = None
    spared: frozenset[FileGroup] = frozenset()

    def groups(self) -> frozenset[FileGroup]:
        """The file groups that no other write may have changed."""
        return (self.metadata.file_groups() | self.metadata.replaced_file_groups()) - self.spared


@dataclass(frozen=True)
class Changed:
    """The commit to make has changed; the next check is given the new one."""

    staged: Staged


@dataclass(frozen=True)
class Cancel:
    """These plans have to be cancelled first, or the part of each that is named; None is the whole of it."""

    plans: tuple[tuple[ServicePlan, frozenset[FileGroup] | None], ...]


@dataclass(frozen=True)
class Retry:
    """Nothing can be decided here: the log has gone on, or is asked again under the lock."""

    why: str
    needs_lock: bool = False


@dataclass(frozen=True)
class Blocked:
    """Nobody may add a slot yet: the last one is a part of a transaction over several tables that is not decided."""

    event: Event


@dataclass(frozen=True)
class Counted:
    """The transaction is committed: another writer has put its event into the log."""

    event: Event


@dataclass(frozen=True)
class GivenUp(Generic[T]):
    """No event is to be added, for a reason of the caller's."""

    why: T


#: What an intent is once it has its slot.
Added: TypeAlias = Event | Committed

#: The decision of a check. The loop turns a `Conflict` into `Conflicted`, whose error says what was lost.
Verdict: TypeAlias = Conflict | Conflicted | Displaced | Ended | Cancel | Retry | Blocked | Counted | GivenUp[Any]

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
