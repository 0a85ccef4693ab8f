"""When file groups are compacted, and what becomes of their deletes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.option_values import flag, whole_number

MIN_DELTA_COMMITS = "hoodie.compact.inline.max.delta.commits"
KEEP_DELETES = "lakelatch.compact.keep.deletes"
LOG_COMPACTION_ENABLE = "hoodie.log.compaction.enable"
LOG_BLOCKS_THRESHOLD = "hoodie.log.compaction.blocks.threshold"
KEYS = frozenset({MIN_DELTA_COMMITS, KEEP_DELETES, LOG_COMPACTION_ENABLE, LOG_BLOCKS_THRESHOLD})


@dataclass(frozen=True)
class CompactionOptions:
    """When a file group is due for a table service, and what becomes of its deletes.

    `least_logs` is the number of logs from which on a file group is compacted, and `least_logs_of_run` that from which
    on its logs are, if `log_compaction` is on. `keep_deletes` keeps deletes that won for rows that complete later.
    """

    least_logs: int = 1
    keep_deletes: bool = True
    log_compaction: bool = False
    least_logs_of_run: int = 5

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> CompactionOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        default = cls()
        return cls(
            least_logs=whole_number(values, MIN_DELTA_COMMITS, default.least_logs, 1, 1_000_000),
            keep_deletes=flag(values, KEEP_DELETES, default.keep_deletes),
            log_compaction=flag(values, LOG_COMPACTION_ENABLE, default.log_compaction),
            least_logs_of_run=whole_number(values, LOG_BLOCKS_THRESHOLD, default.least_logs_of_run, 2, 1_000_000),
        )
