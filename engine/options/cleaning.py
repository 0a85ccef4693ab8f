"""What a clean keeps, when one is due, and how long failed attempts bar their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import flag, one_of, whole_number

KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
POLICIES = (KEEP_LATEST_COMMITS, KEEP_LATEST_FILE_VERSIONS, KEEP_LATEST_BY_HOURS)
NUM_COMMITS = "NUM_COMMITS"

AUTOMATIC = "hoodie.clean.automatic"
ASYNCHRONOUS = "hoodie.clean.async.enabled"
POLICY = "hoodie.clean.policy"
COMMITS_RETAINED = "hoodie.clean.commits.retained"
VERSIONS_RETAINED = "hoodie.clean.fileversions.retained"
HOURS_RETAINED = "hoodie.clean.hours.retained"
TRIGGER_STRATEGY = "hoodie.clean.trigger.strategy"
TRIGGER_COMMITS = "hoodie.clean.trigger.max.commits"
INCREMENTAL = "hoodie.clean.incremental.enabled"
PARTITION_REGEX = "hoodie.clean.partition.filter.regex"
PARTITIONS_SELECTED = "hoodie.clean.partition.filter.selected"
PARALLELISM = "hoodie.clean.parallelism"
TOMBSTONE_HOURS = "lakelatch.clean.tombstone.hours"
CANCEL_DELAY_MINUTES = "lakelatch.clean.cancel.delay"
OTHER_NAMES = {  # Hudi's older ones
    "hoodie.clean.async": ASYNCHRONOUS,
    "hoodie.cleaner.policy": POLICY,
    "hoodie.cleaner.commits.retained": COMMITS_RETAINED,
    "hoodie.cleaner.fileversions.retained": VERSIONS_RETAINED,
    "hoodie.cleaner.hours.retained": HOURS_RETAINED,
    "hoodie.clean.max.commits": TRIGGER_COMMITS,
    "hoodie.cleaner.incremental.mode": INCREMENTAL,
    "hoodie.clean.incremental.enable": INCREMENTAL,
    "hoodie.cleaner.parallelism": PARALLELISM,
}
KEYS = frozenset(
    {
        *(AUTOMATIC, ASYNCHRONOUS, POLICY, COMMITS_RETAINED, VERSIONS_RETAINED, HOURS_RETAINED),
        *(TRIGGER_STRATEGY, TRIGGER_COMMITS, INCREMENTAL, PARALLELISM, TOMBSTONE_HOURS, CANCEL_DELAY_MINUTES),
        *(PARTITION_REGEX, PARTITIONS_SELECTED),
    }
)
_MOST = 1_000_000


@dataclass(frozen=True)
class CleaningOptions:
    """What a clean keeps: what readers need that began within the last commits, versions or hours.

    Of `commits`, `versions` and `hours` the one counts that `policy` is about. `trigger_commits` is the number of
    commits since the last clean from which on the next one is due. Files of writes that have ended without a commit
    bar their names for `tombstone_hours`; plans that died are left alone for `cancel_delay_minutes`. If partitions are
    selected, by name or by a regular expression of their whole paths, the others are left alone; names go first.
    """

    automatic: bool = True
    asynchronous: bool = False
    policy: str = KEEP_LATEST_COMMITS
    commits: int = 10
    versions: int = 3
    hours: int = 24
    trigger_commits: int = 1
    incremental: bool = True
    partition_regex: str | None = None
    partitions_selected: frozenset[str] = frozenset()
    parallelism: int = 16
    tombstone_hours: float = 24
    cancel_delay_minutes: int = 5

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> CleaningOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        default = cls()
        one_of(values, TRIGGER_STRATEGY, (NUM_COMMITS,), NUM_COMMITS)
        return cls(
            automatic=flag(values, AUTOMATIC, default.automatic),
            asynchronous=flag(values, ASYNCHRONOUS, default.asynchronous),
            policy=one_of(values, POLICY, POLICIES, default.policy),
            commits=_retained(values, COMMITS_RETAINED, default.commits),
            versions=_retained(values, VERSIONS_RETAINED, default.versions),
            hours=_retained(values, HOURS_RETAINED, default.hours),
            trigger_commits=whole_number(values, TRIGGER_COMMITS, default.trigger_commits, 1, _MOST),
            incremental=flag(values, INCREMENTAL, default.incremental),
            partition_regex=_regex(values, PARTITION_REGEX),
            partitions_selected=_names(values, PARTITIONS_SELECTED),
            parallelism=whole_number(values, PARALLELISM, default.parallelism, 1, 1000),
            tombstone_hours=whole_number(values, TOMBSTONE_HOURS, int(default.tombstone_hours), 1, _MOST),
            cancel_delay_minutes=whole_number(values, CANCEL_DELAY_MINUTES, default.cancel_delay_minutes, 0, _MOST),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether only some partitions are cleaned."""
        return bool(self.partitions_selected) or self.partition_regex is not None

    def takes(self, partition: str) -> bool:
        """Whether a partition is cleaned."""
        if self.partitions_selected:
            return partition in self.partitions_selected
        return self.partition_regex is None or re.fullmatch(self.partition_regex, partition) is not None


def _regex(values: Mapping[str, str], key: str) -> str | None:
    """None for an empty one, which selects nothing in particular."""
    text = values.get(key, "").strip()
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidRequest(
            f"{key}={text!r} is no regular expression ({error}): write one that matches whole paths of partitions, as "
            f"'day=2026-.*' does, or name the partitions in {PARTITIONS_SELECTED}",
            option=key,
        ) from error
    return text or None


def _names(values: Mapping[str, str], key: str) -> frozenset[str]:
    text = values.get(key, "")
    names = frozenset(name.strip() for name in text.split(","))
    if text.strip() and any(not name or name.startswith("/") or name.endswith("/") for name in names):
        raise InvalidRequest(
            f"{key}={text!r}: use paths of partitions below the table with commas between them, as "
            "'day=2026-11-22,day=2026-11-23'",
            option=key,
        )
    return names - {""}


def _retained(values: Mapping[str, str], key: str, default: int) -> int:
    """At least one: what a reader of this moment needs is never cleaned."""
    number = whole_number(values, key, default, -_MOST, _MOST)
    if number < 1:
        raise InvalidRequest(
            f"{key}={number} keeps nothing for readers that are at work: use 1 to {_MOST}, and more than the longest "
            "read takes",
            option=key,
        )
    return number
