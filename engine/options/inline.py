"""Which table services run by themselves: after a commit, or beside a streaming query; and what makes them due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelatch.engine.options.compaction import LOG_COMPACTION_ENABLE, MIN_DELTA_COMMITS
from lakelatch.errors import InvalidRequest
from lakelatch.option_values import flag, one_of, whole_number

SERVICES_ENABLED = "hoodie.table.services.enabled"
COMPACT_INLINE = "hoodie.compact.inline"
COMPACT_SCHEDULE = "hoodie.compact.schedule.inline"
COMPACT_ASYNC = "hoodie.datasource.compaction.async.enable"
COMPACT_TRIGGER = "hoodie.compact.inline.trigger.strategy"
COMPACT_SECONDS = "hoodie.compact.inline.max.delta.seconds"
LOG_COMPACT_INLINE = "hoodie.log.compaction.inline"
CLUSTER_INLINE = "hoodie.clustering.inline"
CLUSTER_SCHEDULE = "hoodie.clustering.schedule.inline"
CLUSTER_ASYNC = "hoodie.clustering.async.enabled"
CLUSTER_COMMITS = "hoodie.clustering.inline.max.commits"
CLUSTER_ASYNC_COMMITS = "hoodie.clustering.async.max.commits"
ARCHIVE_ASYNC = "hoodie.archive.async"
INDEX_COMMITS = "lakelatch.index.commits"

NUM_COMMITS, AFTER_LAST_REQUEST = "NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST"
TIME_ELAPSED, NUM_AND_TIME, NUM_OR_TIME = "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"
TRIGGERS = (NUM_COMMITS, AFTER_LAST_REQUEST, TIME_ELAPSED, NUM_AND_TIME, NUM_OR_TIME)

KEYS = frozenset(
    {
        SERVICES_ENABLED,
        COMPACT_INLINE,
        COMPACT_SCHEDULE,
        COMPACT_ASYNC,
        COMPACT_TRIGGER,
        COMPACT_SECONDS,
        LOG_COMPACT_INLINE,
        CLUSTER_INLINE,
        CLUSTER_SCHEDULE,
        CLUSTER_ASYNC,
        CLUSTER_COMMITS,
        CLUSTER_ASYNC_COMMITS,
        ARCHIVE_ASYNC,
        INDEX_COMMITS,
    }
)
_MANY = 1_000_000
_YEAR_S = 365 * 86_400


@dataclass(frozen=True)
class Mode:
    """How one service runs by itself: `run` after a commit, only `schedule` there, or `beside` a streaming query."""

    run: bool = False
    schedule: bool = False
    beside: bool = False

    @classmethod
    def from_options(cls, values: Mapping[str, str], keys: tuple[str, str, str], beside: bool) -> Mode:
        """From the keys of the three. Errors: `InvalidRequest` for the first two at once, as in Hudi."""
        run, schedule = flag(values, keys[0]), flag(values, keys[1])
        if run and schedule:
            raise InvalidRequest(
                f"{keys[0]}=true carries out what {keys[1]}=true leaves to others: set one of them", option=keys[0]
            )
        asked = flag(values, keys[2], beside)
        return cls(run, schedule, asked and not run)


@dataclass(frozen=True)
class CompactionTrigger:
    """When a table is due for a compaction: `commits` delta commits, or `seconds`, after the last one."""

    strategy: str = NUM_COMMITS
    commits: int = 5
    seconds: int = 3600

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> CompactionTrigger:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        default = cls()
        return cls(
            one_of(values, COMPACT_TRIGGER, TRIGGERS, default.strategy),
            whole_number(values, MIN_DELTA_COMMITS, default.commits, 1, _MANY),
            whole_number(values, COMPACT_SECONDS, default.seconds, 1, _YEAR_S),
        )


@dataclass(frozen=True)
class InlineOptions:
    """What runs by itself, with Hudi's defaults. Cleaning and archiving have their own options, and are on.

    `archive_beside` moves archiving to the thread beside a streaming query, where there is one. `index_commits`: a file
    index is made after about so many writes, 0 for never.
    """

    enabled: bool = True
    compaction: Mode = Mode(beside=True)
    clustering: Mode = Mode()
    log_compaction: bool = False
    archive_beside: bool = False
    trigger: CompactionTrigger = field(default_factory=CompactionTrigger)
    clustering_commits: int = 4
    clustering_commits_beside: int = 4
    index_commits: int = 16

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> InlineOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        default = cls()
        log_compaction = flag(values, LOG_COMPACT_INLINE)
        if log_compaction and not flag(values, LOG_COMPACTION_ENABLE, True):
            raise InvalidRequest(
                f"{LOG_COMPACT_INLINE}=true, and {LOG_COMPACTION_ENABLE}=false: remove one", option=LOG_COMPACT_INLINE
            )
        return cls(
            enabled=flag(values, SERVICES_ENABLED, default.enabled),
            compaction=Mode.from_options(values, (COMPACT_INLINE, COMPACT_SCHEDULE, COMPACT_ASYNC), beside=True),
            clustering=Mode.from_options(values, (CLUSTER_INLINE, CLUSTER_SCHEDULE, CLUSTER_ASYNC), beside=False),
            log_compaction=log_compaction,
            archive_beside=flag(values, ARCHIVE_ASYNC, default.archive_beside),
            trigger=CompactionTrigger.from_options(values),
            clustering_commits=whole_number(values, CLUSTER_COMMITS, default.clustering_commits, 1, _MANY),
            clustering_commits_beside=whole_number(values, CLUSTER_ASYNC_COMMITS, default.clustering_commits, 1, _MANY),
            index_commits=whole_number(values, INDEX_COMMITS, default.index_commits, 0, _MANY),
        )
