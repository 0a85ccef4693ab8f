"""How long an instant stays on the active timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.engine.options.cleaning import CleaningOptions
from lakelatch.errors import InvalidRequest
from lakelatch.option_values import flag, whole_number

AUTOMATIC = "hoodie.archive.automatic"
MIN_COMMITS = "hoodie.keep.min.commits"
MAX_COMMITS = "hoodie.keep.max.commits"
MERGED_FILES = "hoodie.timeline.compaction.batch.size"
BEYOND_SAVEPOINT = "hoodie.archive.beyond.savepoint"
MINIMUM_AGE = "lakelatch.archive.minimum.age.seconds"
KEYS = frozenset({AUTOMATIC, MIN_COMMITS, MAX_COMMITS, MERGED_FILES, BEYOND_SAVEPOINT, MINIMUM_AGE})


@dataclass(frozen=True)
class ArchivingOptions:
    """What stays on the active timeline, and what becomes of the history.

    Once there are more than `max_commits` completed writes, all but the last `min_commits` may leave, but none whose
    file is younger than `minimum_age_s`: a request that makes it once more may still be on its way. Files that failed
    writes have left behind are in the way until they are `orphan_age_s` old, and are removed then. `merged_files` level
    files of the history become one.
    """

    automatic: bool = True
    min_commits: int = 20
    max_commits: int = 30
    merged_files: int = 10
    minimum_age_s: int = 60
    orphan_age_s: int = 86_400

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> ArchivingOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        default = cls()
        found = cls(
            automatic=flag(values, AUTOMATIC, default.automatic),
            min_commits=whole_number(values, MIN_COMMITS, default.min_commits, 1, 1_000_000),
            max_commits=whole_number(values, MAX_COMMITS, default.max_commits, 2, 10_000_000),
            merged_files=whole_number(values, MERGED_FILES, default.merged_files, 2, 1000),
            minimum_age_s=whole_number(values, MINIMUM_AGE, default.minimum_age_s, 0, 31_536_000),
            orphan_age_s=int(CleaningOptions.from_options(values).tombstone_hours * 3600),
        )
        if found.max_commits <= found.min_commits:
            raise InvalidRequest(
                f"{MAX_COMMITS}={found.max_commits} is not above {MIN_COMMITS}={found.min_commits}: raise it",
                option=MAX_COMMITS,
            )
        if flag(values, BEYOND_SAVEPOINT):
            raise InvalidRequest(
                f"{BEYOND_SAVEPOINT}=true is not supported: Hudi's writers take a savepoint's commit for the first one "
                "then, and lose rows that were written after it; remove the option, or the savepoint",
                option=BEYOND_SAVEPOINT,
            )
        return found
