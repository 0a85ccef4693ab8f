"""Which table services run automatically, after a commit or during a streaming query, and what makes them due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakelatch.engine.options.table_services.clustering import INLINE, INLINE_COMMITS
from lakelatch.engine.options.table_services.compaction import LOG_COMPACTION_ENABLE, MIN_DELTA_COMMITS
from lakelatch.errors import InvalidRequest
from lakelatch.option_values import Option, ParsedOptions, flag, one_of, option, whole

SERVICES_ENABLED = "hoodie.table.services.enabled"
COMPACT_INLINE = "hoodie.compact.inline"
COMPACT_ASYNC = "hoodie.datasource.compaction.async.enable"
LOG_COMPACT_INLINE = "hoodie.log.compaction.inline"
CLUSTER_ASYNC = "hoodie.clustering.async.enabled"
ARCHIVE_ASYNC = "hoodie.archive.async"
REWRITE_AUTOMATIC = "lakelatch.rewrite.automatic"
REWRITE_COMMITS = "lakelatch.rewrite.commits"

NUM_COMMITS, AFTER_LAST_REQUEST = "NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST"
TIME_ELAPSED, NUM_AND_TIME, NUM_OR_TIME = "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME"
TRIGGERS = (NUM_COMMITS, AFTER_LAST_REQUEST, TIME_ELAPSED, NUM_AND_TIME, NUM_OR_TIME)

_MANY, _MOST = 1_000_000, 10**12
_YEAR_S = 365 * 86_400

# For each service: run it after a commit, only schedule it there, run it during a streaming query.
_COMPACTION = (
    Option(COMPACT_INLINE, flag, False),
    Option("hoodie.compact.schedule.inline", flag, False),
    Option(COMPACT_ASYNC, flag, True),
)
_CLUSTERING = (
    Option(INLINE, flag, False, ("hoodie.datasource.clustering.inline.enable",)),
    Option("hoodie.clustering.schedule.inline", flag, False),
    Option(CLUSTER_ASYNC, flag, False, ("hoodie.datasource.clustering.async.enable",)),
)


@dataclass(frozen=True)
class Mode:
    """How one service runs automatically: `run` or `schedule` after a commit, or in the `background` of a stream."""

    run: bool = False
    schedule: bool = False
    background: bool = False

    @classmethod
    def of(cls, values: Mapping[str, str], options: tuple[Option[bool], Option[bool], Option[bool]]) -> Mode:
        """Reads the three options. Errors: `InvalidRequest` if the first two are both set, as in Hudi."""
        run, schedule, background = (one.of(values) for one in options)
        if run and schedule:
            key = options[0].key
            raise InvalidRequest(
                f"{key}=true carries out what {options[1].key}=true leaves to others: set one of them", option=key
            )
        return cls(run, schedule, background and not run)


@dataclass(frozen=True)
class CompactionTrigger(ParsedOptions):
    """When a compaction is due: `commits` delta commits, or `seconds`, after the last one."""

    strategy: str = option("hoodie.compact.inline.trigger.strategy", one_of(*TRIGGERS), NUM_COMMITS)
    commits: int = option(MIN_DELTA_COMMITS, whole(1, _MANY), 5)
    seconds: int = option("hoodie.compact.inline.max.delta.seconds", whole(1, _YEAR_S), 3600)


@dataclass(frozen=True)
class PayingOptions(ParsedOptions):
    """The rewriting of files that nobody has asked for, where it saves reads more than it costs.

    After each `commits` delta commits a writer looks for what pays, and plans for at most `daily_mb` in a day of UTC.
    """

    automatic: bool = option(REWRITE_AUTOMATIC, flag, True)
    commits: int = option(REWRITE_COMMITS, whole(1, _MANY), 5)
    daily_mb: int = option("lakelatch.rewrite.daily.mb", whole(0, _MOST), 51_200)


@dataclass(frozen=True)
class InlineOptions(ParsedOptions):
    """The services that run automatically, with Hudi's defaults. Cleaning and archiving have options of their own.

    What Hudi's options say of inline compactions and clusterings, on or off, goes before `paying`.

    `archive_in_background` moves archiving to the thread of a streaming query, where there is one. A file index is made
    after about `index_commits` writes, or never if that is 0.
    """

    also = (*_COMPACTION, *_CLUSTERING)
    enabled: bool = option(SERVICES_ENABLED, flag, True)
    compaction: Mode = Mode(background=True)
    clustering: Mode = Mode()
    log_compaction: bool = option(LOG_COMPACT_INLINE, flag, False)
    archive_in_background: bool = option(ARCHIVE_ASYNC, flag, False)
    trigger: CompactionTrigger = field(default_factory=CompactionTrigger)
    clustering_commits: int = option(INLINE_COMMITS, whole(1, _MANY), 4)
    clustering_commits_in_background: int = option("hoodie.clustering.async.max.commits", whole(1, _MANY), 4)
    index_commits: int = option("lakelatch.index.commits", whole(0, _MANY), 16)
    paying: PayingOptions = field(default_factory=PayingOptions)
    compacts_what_pays: bool = True
    joins_what_pays: bool = True

    def completed(self, values: Mapping[str, str]) -> InlineOptions:
        if self.log_compaction and not flag(LOG_COMPACTION_ENABLE, values.get(LOG_COMPACTION_ENABLE, "true")):
            raise InvalidRequest(
                f"{LOG_COMPACT_INLINE}=true, and {LOG_COMPACTION_ENABLE}=false: remove one", option=LOG_COMPACT_INLINE
            )
        return replace(
            self,
            compaction=Mode.of(values, _COMPACTION),
            clustering=Mode.of(values, _CLUSTERING),
            compacts_what_pays=self.paying.automatic and not _is_said(values, _COMPACTION),
            joins_what_pays=self.paying.automatic and not _is_said(values, _CLUSTERING),
        )


def _is_said(values: Mapping[str, str], options: tuple[Option[bool], ...]) -> bool:
    """Whether a service is turned on or off after a commit."""
    return any(one.key in values for one in options[:2])
