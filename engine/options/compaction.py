"""When file groups are compacted, which come first, and what becomes of their deletes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import flag, whole_number

MIN_DELTA_COMMITS = "hoodie.compact.inline.max.delta.commits"
KEEP_DELETES = "lakelatch.compact.keep.deletes"
LOG_COMPACTION_ENABLE = "hoodie.log.compaction.enable"
LOG_BLOCKS_THRESHOLD = "hoodie.log.compaction.blocks.threshold"
STRATEGY = "hoodie.compaction.strategy"
TARGET_IO_MB = "hoodie.compaction.target.io"
LEAST_LOG_BYTES = "hoodie.compaction.logfile.size.threshold"
LEAST_LOG_FILES = "hoodie.compaction.logfile.num.threshold"
LATEST_PARTITIONS = "hoodie.compaction.daybased.target.partitions"
REGEX = "hoodie.compaction.partition.path.regex"
LOG_PERCENT = "lakelatch.compact.least.log.percent"
KEYS = frozenset(
    {
        *(MIN_DELTA_COMMITS, KEEP_DELETES, LOG_COMPACTION_ENABLE, LOG_BLOCKS_THRESHOLD),
        *(STRATEGY, TARGET_IO_MB, LEAST_LOG_BYTES, LEAST_LOG_FILES, LATEST_PARTITIONS, REGEX, LOG_PERCENT),
    }
)

UNBOUNDED, BOUNDED_IO = "UnBoundedCompactionStrategy", "BoundedIOCompactionStrategy"
LOG_SIZE, LOG_COUNT = "LogFileSizeBasedCompactionStrategy", "LogFileNumBasedCompactionStrategy"
DAY_BASED, PARTITION_REGEX = "DayBasedCompactionStrategy", "PartitionRegexBasedCompactionStrategy"
STRATEGIES = (LOG_SIZE, LOG_COUNT, BOUNDED_IO, UNBOUNDED, DAY_BASED, PARTITION_REGEX)
_PACKAGE = "org.apache.hudi.table.action.compact.strategy."
_MOST = 10**15


@dataclass(frozen=True)
class CompactionOptions:
    """When a file group is due for a table service, and what becomes of its deletes.

    `least_logs` is the number of logs from which on a file group is compacted, and `least_logs_of_run` that from which
    on its logs are, if `log_compaction` is on. `keep_deletes` keeps deletes that won for rows that complete later.

    `strategies` take from those that are due, one after the other. A plan of those that are bounded reads and writes
    about `target_io_mb`. `least_log_ratio` is of the logs' bytes to those of the base file.
    """

    least_logs: int = 1
    keep_deletes: bool = True
    log_compaction: bool = False
    least_logs_of_run: int = 5
    strategies: tuple[str, ...] = (LOG_SIZE,)
    target_io_mb: int | None = None
    least_log_bytes: int = 0
    least_log_files: int = 0
    latest_partitions: int = 10
    partition_regex: str = ""
    least_log_ratio: float = 0.0

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> CompactionOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        default = cls()
        return cls(
            least_logs=whole_number(values, MIN_DELTA_COMMITS, default.least_logs, 1, 1_000_000),
            keep_deletes=flag(values, KEEP_DELETES, default.keep_deletes),
            log_compaction=flag(values, LOG_COMPACTION_ENABLE, default.log_compaction),
            least_logs_of_run=whole_number(values, LOG_BLOCKS_THRESHOLD, default.least_logs_of_run, 2, 1_000_000),
            strategies=_strategies(values),
            target_io_mb=whole_number(values, TARGET_IO_MB, 1, 1, _MOST) if TARGET_IO_MB in values else None,
            least_log_bytes=whole_number(values, LEAST_LOG_BYTES, default.least_log_bytes, 0, _MOST),
            least_log_files=whole_number(values, LEAST_LOG_FILES, default.least_log_files, 0, 1_000_000),
            latest_partitions=whole_number(values, LATEST_PARTITIONS, default.latest_partitions, 1, 1_000_000),
            partition_regex=_regex(values),
            least_log_ratio=whole_number(values, LOG_PERCENT, 0, 0, 1_000_000) / 100,
        )


def _strategies(values: Mapping[str, str]) -> tuple[str, ...]:
    """Their names without the package; Hudi chains several of them."""
    if STRATEGY not in values:
        return (LOG_SIZE,)
    names = tuple(name.strip().removeprefix(_PACKAGE) for name in values[STRATEGY].split(","))
    for name in names:
        if name not in STRATEGIES:
            raise InvalidRequest(f"{STRATEGY}={name!r} is not supported: use {', '.join(STRATEGIES)}", option=STRATEGY)
    if PARTITION_REGEX in names and not values.get(REGEX):
        raise InvalidRequest(f"{STRATEGY}={PARTITION_REGEX} needs {REGEX}: which partitions it takes", option=REGEX)
    return names


def _regex(values: Mapping[str, str]) -> str:
    text = values.get(REGEX, "")
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequest(f"{REGEX}={text!r} is no regular expression ({error})", option=REGEX) from None
    return text
