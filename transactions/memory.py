"""What a process remembers of a table between two managers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import System
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.transactions.base.elision import QueuedCommits
from lakelatch.transactions.next_write import NextWrite


@dataclass
class TableMemory:
    """What a process remembers of a table from one manager to the next: what it has read of the log and the timeline.

    For managers of one storage and one kind of locks, one after the other. It holds no connection. Whether it is still
    of the table that lies there, a `MemoryCheck` tells.
    """

    log: CommitLog
    queue: QueuedCommits = field(default_factory=QueuedCommits)
    folders: tuple[str, ...] = ()  # of the partitions that were written last, if they were known before
    next_write: NextWrite | None = None  # of a table that stays open
    recovered_ns: int | None = None
    cleared_ns: int | None = None  # when somebody looked for everything that others leave

    @classmethod
    def new(
        cls,
        storage: Storage,
        system: System,
        slots_kept: int,
        lock_domain: str,
        open_table: Callable[[str], Storage] = open_storage,
    ) -> TableMemory:
        return cls(CommitLog(storage, system, slots_kept, lock_domain, open_table))
