"""The conflict strategies, and how they are found by name.

None of them knows of keys: two writers that insert the same new key into *different* file groups do not conflict. Under
a bucket index, the only one that is written here, one key has one bucket and so that cannot happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lakelatch.errors import InvalidRequest
from lakelatch.plugins import find_component
from lakelatch.timeline.actions import SERVICES_THAT_ADD_A_SLICE, SERVICES_THAT_REPLACE, TABLE_SERVICES
from lakelatch.transactions.conflicts.contract import Conflict, ConflictStrategy, Contender, Others, OtherWrite

CONFLICT_STRATEGIES = "lakelatch.conflict_strategies"
STRATEGY_OPTION = "hoodie.write.lock.conflict.resolution.strategy"
BUCKET_STRATEGY = "bucket"
SIMPLE_STRATEGY = "simple"
_BUCKET = re.compile(r"[0-9]{8}(?=-)")


class SimpleConflictStrategy(ConflictStrategy):
    """File groups must not intersect; the first to complete wins.

    A compaction conflicts with no write, whenever it was planned: slices are cut by completion time, so a write that
    completes after the plan is in the next slice. Nor do log compactions, for the same reason. This holds for foreign
    compactions, too.
    """

    equal_start_length = 8

    def find(self, contender: Contender, others: Others) -> Conflict | None:
        if contender.action in SERVICES_THAT_ADD_A_SLICE:
            return None
        return self.first(contender, others.completed())

    def first(self, contender: Contender, writes: Iterable[OtherWrite]) -> Conflict | None:
        """The conflict with the first of the writes that has one, or None."""
        for write in writes:
            if write.operation_type in SERVICES_THAT_ADD_A_SLICE.values():
                continue
            common = self.common(contender.file_groups, write.file_groups)
            if common:
                return Conflict(write, common)
        return None


class BucketConflictStrategy(SimpleConflictStrategy):
    """Partition and bucket must not intersect: Java writers give the file groups of one bucket different ids.

    A file id that names no bucket counts whole.
    """

    def group_part(self, file_id: str) -> str:
        found = _BUCKET.match(file_id)
        return found.group() if found else file_id


class PreferWriterConflictStrategy(BucketConflictStrategy):
    """As `bucket`, and a table service that replaces file groups yields to live writers that are at work on them.

    A writer still loses to a service that completed first.
    """

    def find(self, contender: Contender, others: Others) -> Conflict | None:
        conflict = super().find(contender, others)
        if conflict is None and contender.action in SERVICES_THAT_REPLACE:
            return self.first(contender, others.inflight(contender.file_groups))
        return conflict


class NonBlockingConflictStrategy(SimpleConflictStrategy):
    """Only replaced file groups conflict: everything else is resolved by ordering values when it is read.

    A service that rewrites what it has read must not replace what completed meanwhile.
    """

    def find(self, contender: Contender, others: Others) -> Conflict | None:
        if contender.action in TABLE_SERVICES:
            return super().find(contender, others)
        return self.first(contender, (write for write in others.completed() if write.action == "replacecommit"))


def open_strategy(name: str) -> ConflictStrategy:
    """The conflict strategy of this name, a short one or Hudi's class name.

    Errors: `InvalidRequest`, with the nearest known name and what is installed.
    """
    strategy = find_component(CONFLICT_STRATEGIES, name, "conflict strategy", STRATEGY_OPTION)()
    if not isinstance(strategy, ConflictStrategy):
        raise InvalidRequest(
            f"{STRATEGY_OPTION}={name!r} made a {type(strategy).__name__}, which is no ConflictStrategy: choose "
            "another one",
            option=STRATEGY_OPTION,
        )
    return strategy
