"""A commit that others can put into the log, of files that need no checks of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.transactions.attempts.checks import Check, in_order
from lakelatch.transactions.attempts.ready_commit import ReadyCommit, Unfit
from lakelatch.transactions.base.outcome import Staged


class PlainMember:
    """A member of a group for which nothing but the checks of all commits is to be looked at."""

    def __init__(self, metadata: CommitMetadata) -> None:
        self._metadata = metadata

    def facts(self) -> dict[str, Any]:
        return {"operation": self._metadata.operation_type, "stats": [asdict(stat) for stat in self._metadata.stats]}

    def staged_of(self, record: ReadyCommit) -> Staged:
        if "stats" not in record.facts:
            raise Unfit("it is of another kind of writer")
        stats = tuple(WriteStat(**stat) for stat in record.facts["stats"])
        return Staged(CommitMetadata(stats, record.facts["operation"]))

    def checks_of(self, record: ReadyCommit) -> Sequence[Check]:
        return in_order()
