"""What a write returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommitResult:
    """What was committed: visible to every reader from `completion` on. Counts are rows of this write.

    `file_groups_replaced` is what an overwrite or a deletion of partitions took away. `repeated` says that the batch
    was committed before: this is the result of that commit, and nothing was written now.
    """

    instant: str
    completion: str
    operation: str
    rows_written: int
    rows_deleted: int
    files: tuple[str, ...]
    bytes_written: int
    conflicts_retried: int = 0
    file_groups_replaced: int = 0
    repeated: bool = False
