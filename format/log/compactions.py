"""What log compactions have rewritten: log files that others repeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelatch.format.names import COMPACTED_MARK
from lakelatch.storage.contract import path_below


@dataclass(frozen=True)
class LogCompactions:
    """Log files that others repeat (by partition and name), and the paths of those that repeat them.

    File groups of different partitions have the same file ids, and so their files may have the same names.
    """

    absorbed: frozenset[tuple[str, str]]
    compacted_logs: frozenset[str]

    def hidden(self, partition: str, names: Iterable[str]) -> frozenset[str]:
        """Files of a partition that do not count: what was absorbed, and compacted logs that no commit names yet."""
        return frozenset(
            name
            for name in names
            if (partition, name) in self.absorbed
            or (COMPACTED_MARK in name and path_below(partition, name) not in self.compacted_logs)
        )
