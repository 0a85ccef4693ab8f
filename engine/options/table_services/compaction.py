"""When file groups are compacted, which come first, and whether their deletes are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import ParsedOptions, flag, option, regex, whole

MIN_DELTA_COMMITS = "hoodie.compact.inline.max.delta.commits"
KEEP_DELETES = "lakelatch.compact.keep.deletes"
LOG_COMPACTION_ENABLE = "hoodie.log.compaction.enable"
STRATEGY = "hoodie.compaction.strategy"
REGEX = "hoodie.compaction.partition.path.regex"

UNBOUNDED, BOUNDED_IO = "UnBoundedCompactionStrategy", "BoundedIOCompactionStrategy"
LOG_SIZE, LOG_COUNT = "LogFileSizeBasedCompactionStrategy", "LogFileNumBasedCompactionStrategy"
DAY_BASED, PARTITION_REGEX = "DayBasedCompactionStrategy", "PartitionRegexBasedCompactionStrategy"
STRATEGIES = (LOG_SIZE, LOG_COUNT, BOUNDED_IO, UNBOUNDED, DAY_BASED, PARTITION_REGEX)
_PACKAGE = "org.apache.hudi.table.action.compact.strategy."
_MANY, _MOST = 1_000_000, 10**15


def _strategies(key: str, text: str) -> tuple[str, ...]:
    """Their names without the package; Hudi chains several of them."""
    names = tuple(name.strip().removeprefix(_PACKAGE) for name in text.split(","))
    for name in names:
        if name not in STRATEGIES:
            raise InvalidRequest(f"{key}={name!r} is not supported: use {', '.join(STRATEGIES)}", option=key)
    return names


def _percent(key: str, text: str) -> float:
    return whole(0, _MANY)(key, text) / 100


@dataclass(frozen=True)
class CompactionOptions(ParsedOptions):
    """When a file group is due for compaction, and whether its deletes are kept.

    A file group with logs of `least_logs` commits is compacted; with `log_compaction` on, so is a run of those of
    `least_logs_of_run`. `keep_deletes` keeps winning deletes, for rows that complete later.

    `strategies` filter the due file groups one after the other. A plan of a bounded strategy reads and writes about
    `target_io_mb`. `least_log_ratio` is the logs' bytes relative to those of the base file.
    """

    least_logs: int = option(MIN_DELTA_COMMITS, whole(1, _MANY), 1)
    keep_deletes: bool = option(KEEP_DELETES, flag, True)
    log_compaction: bool = option(LOG_COMPACTION_ENABLE, flag, False)
    least_logs_of_run: int = option("hoodie.log.compaction.blocks.threshold", whole(2, _MANY), 5)
    strategies: tuple[str, ...] = option(STRATEGY, _strategies, (LOG_SIZE,))
    target_io_mb: int | None = option("hoodie.compaction.target.io", whole(1, _MOST))
    least_log_bytes: int = option("hoodie.compaction.logfile.size.threshold", whole(0, _MOST), 0)
    least_log_files: int = option("hoodie.compaction.logfile.num.threshold", whole(0, _MANY), 0)
    latest_partitions: int = option("hoodie.compaction.daybased.target.partitions", whole(1, _MANY), 10)
    partition_regex: str = option(REGEX, regex, "")
    least_log_ratio: float = option("lakelatch.compact.least.log.percent", _percent, 0.0)

    def completed(self, values: Mapping[str, str]) -> CompactionOptions:
        if PARTITION_REGEX in self.strategies and not self.partition_regex:
            raise InvalidRequest(f"{STRATEGY}={PARTITION_REGEX} needs {REGEX}: which partitions it takes", option=REGEX)
        return self
