"""What a check says of an event at a place in the log. Each verdict says what the loop of attempts does next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.timeline.plans.service_plan import ServicePlan
from lakelatch.transactions.base.outcome import Conflicted, Displaced, Ended
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.conflicts.report import Work

T = TypeVar("T")


@dataclass(frozen=True)
class Staged:
    """What is to be committed, as far as checks have decided it, and the work that is lost without it.

    `possible` are the completed writes that a strategy is shown, None for all. `spared` are file groups that the
    metadata names and that the commit leaves alone: they are in nobody's way.
    """

    metadata: CommitMetadata
    work: Work = field(default_factory=Work)
    possible: Sequence[OtherWrite] | None = None
    spared: frozenset[FileGroup] = frozenset()

    def groups(self) -> frozenset[FileGroup]:
        """The file groups that nobody else may have changed."""
        return (self.metadata.file_groups() | self.metadata.replaced_file_groups()) - self.spared


@dataclass(frozen=True)
class Changed:
    """Something else is committed from here on; the next check is given that."""

    staged: Staged


@dataclass(frozen=True)
class Cancel:
    """These plans have to be cancelled first, or the part of each that is named; None is the whole of it."""

    plans: tuple[tuple[ServicePlan, frozenset[FileGroup] | None], ...]


@dataclass(frozen=True)
class Retry:
    """Nothing can be decided here: the log has gone on, or is asked again under the lock."""

    why: str


@dataclass(frozen=True)
class GivenUp(Generic[T]):
    """No event is wanted, for a reason of the caller's own."""

    why: T


#: What a check decides, and what the loop does of it: `Conflict` becomes `Conflicted`, an error with what was lost.
Verdict: TypeAlias = Conflict | Conflicted | Displaced | Ended | Cancel | Retry | GivenUp[Any]
