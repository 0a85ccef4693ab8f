"""How much a clean keeps, when one is due, and how long tombstones of failed attempts stay."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import Option, ParsedOptions, flag, one_of, option, regex, whole

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
PARTITION_REGEX = "hoodie.clean.partition.filter.regex"
PARTITIONS_SELECTED = "hoodie.clean.partition.filter.selected"
TOMBSTONE_HOURS = "lakelatch.clean.tombstone.hours"
_MOST = 1_000_000


def _regex(key: str, text: str) -> str | None:
    """None for an empty one, which selects nothing in particular."""
    try:
        return regex(key, text.strip()) or None
    except InvalidRequest as error:
        way_out = (
            "write one that matches whole paths of partitions, as 'day=2026-.*' does, or name the partitions in "
            f"{PARTITIONS_SELECTED}"
        )
        raise InvalidRequest(f"{error.message}: {way_out}", option=key) from None


def _partitions(key: str, text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(","))
    if text.strip() and any(not name or name.startswith("/") or name.endswith("/") for name in names):
        raise InvalidRequest(
            f"{key}={text!r}: use paths of partitions below the table with commas between them, as "
            "'day=2026-11-22,day=2026-11-23'",
            option=key,
        )
    return names - {""}


def _retained(key: str, text: str) -> int:
    """At least one: what a reader of this moment needs is never cleaned."""
    number = whole(-_MOST, _MOST)(key, text)
    if number < 1:
        raise InvalidRequest(
            f"{key}={number} keeps nothing for readers that are at work: use 1 to {_MOST}, and more than the longest "
            "read takes",
            option=key,
        )
    return number


@dataclass(frozen=True)
class CleaningOptions(ParsedOptions):
    """How much a clean keeps: the files for readers of the last commits, versions or hours.

    `policy` decides which of `commits`, `versions` and `hours` counts. A clean is due `trigger_commits` commits after
    the last one. Tombstones of writes that ended without a commit stay for `tombstone_hours`; plans younger than
    `cancel_delay_minutes` are not cancelled. If partitions are selected, by name or by a regular expression for their
    whole paths, only these are cleaned; names win.
    """

    also = (Option("hoodie.clean.trigger.strategy", one_of(NUM_COMMITS), NUM_COMMITS),)
    automatic: bool = option(AUTOMATIC, flag, True)
    asynchronous: bool = option(ASYNCHRONOUS, flag, False, "hoodie.clean.async")
    policy: str = option(POLICY, one_of(*POLICIES), KEEP_LATEST_COMMITS, "hoodie.cleaner.policy")
    commits: int = option(COMMITS_RETAINED, _retained, 10, "hoodie.cleaner.commits.retained")
    versions: int = option(VERSIONS_RETAINED, _retained, 3, "hoodie.cleaner.fileversions.retained")
    hours: int = option(HOURS_RETAINED, _retained, 24, "hoodie.cleaner.hours.retained")
    trigger_commits: int = option("hoodie.clean.trigger.max.commits", whole(1, _MOST), 1, "hoodie.clean.max.commits")
    incremental: bool = option(
        "hoodie.clean.incremental.enabled",
        flag,
        True,
        "hoodie.cleaner.incremental.mode",
        "hoodie.clean.incremental.enable",
    )
    partition_regex: str | None = option(PARTITION_REGEX, _regex)
    partitions_selected: frozenset[str] = option(PARTITIONS_SELECTED, _partitions, frozenset())
    parallelism: int = option("hoodie.clean.parallelism", whole(1, 1000), 16, "hoodie.cleaner.parallelism")
    tombstone_hours: float = option(TOMBSTONE_HOURS, whole(1, _MOST), 24)
    cancel_delay_minutes: int = option("lakelatch.clean.cancel.delay", whole(0, _MOST), 5)

    @property
    def is_filtered(self) -> bool:
        """Whether only some partitions are cleaned."""
        return bool(self.partitions_selected) or self.partition_regex is not None

    def takes(self, partition: str) -> bool:
        """Whether a partition is cleaned."""
        if self.partitions_selected:
            return partition in self.partitions_selected
        return self.partition_regex is None or re.fullmatch(self.partition_regex, partition) is not None
