"""What a write returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommitResult:
    """What was committed: visible to every reader from `completion` on. Counts are rows of this write.

    `deletes_written` counts the rows that asked for a deletion, whether or not the table had their keys: a delete reads
    nothing of the table, so that it cannot know how many rows are fewer afterwards.
    `file_groups_replaced` is what an overwrite or a deletion of partitions took away. `repeated` says that the batch
    was committed before: this is the result of that commit, and nothing was written now.
    """

    instant: str
    completion: str
    operation: str
    rows_written: int
    deletes_written: int
    files: tuple[str, ...]
    bytes_written: int
    conflicts_retried: int = 0
    file_groups_replaced: int = 0
    repeated: bool = False
