"""How long an instant stays on the active timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.engine.options.table_services.cleaning import TOMBSTONE_HOURS
from lakelatch.errors import InvalidRequest
from lakelatch.option_values import Option, ParsedOptions, flag, option, whole

AUTOMATIC = "hoodie.archive.automatic"
MIN_COMMITS = "hoodie.keep.min.commits"
MAX_COMMITS = "hoodie.keep.max.commits"


def _not_beyond(key: str, text: str) -> None:
    if flag(key, text):
        raise InvalidRequest(
            f"{key}=true is not supported: Hudi's writers take a savepoint's commit for the first one then, and lose "
            "rows that were written after it; remove the option, or the savepoint",
            option=key,
        )


def _hours(key: str, text: str) -> int:
    return whole(1, 1_000_000)(key, text) * 3600


@dataclass(frozen=True)
class ArchivingOptions(ParsedOptions):
    """How much stays on the active timeline, and when files of the history are merged.

    Once there are more than `max_commits` completed writes, all but the last `min_commits` may be archived, but none
    whose file is younger than `minimum_age_s`: a request that creates it again may still be in flight. Files left by
    failed writes hold archiving up until they are `orphan_age_s` old, and are removed then. `merged_files` level files
    of the history are merged into one.
    """

    also = (Option("hoodie.archive.beyond.savepoint", _not_beyond, None),)
    automatic: bool = option(AUTOMATIC, flag, True)
    min_commits: int = option(MIN_COMMITS, whole(1, 1_000_000), 20)
    max_commits: int = option(MAX_COMMITS, whole(2, 10_000_000), 30)
    merged_files: int = option("hoodie.timeline.compaction.batch.size", whole(2, 1000), 10)
    minimum_age_s: int = option("lakelatch.archive.minimum.age.seconds", whole(0, 31_536_000), 60)
    orphan_age_s: int = option(TOMBSTONE_HOURS, _hours, 86_400)

    def completed(self, values: Mapping[str, str]) -> ArchivingOptions:
        if self.max_commits <= self.min_commits:
            raise InvalidRequest(
                f"{MAX_COMMITS}={self.max_commits} is not above {MIN_COMMITS}={self.min_commits}: raise it",
                option=MAX_COMMITS,
            )
        return self
