"""Which file groups are clustered, and how their rows are sorted."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from lakelatch.engine.options.write import BUCKET_COUNT
from lakelatch.errors import InvalidRequest
from lakelatch.format.sorting.row_order import HILBERT, LINEAR, Z_ORDER
from lakelatch.option_values import ParsedOptions, flag, names, one_of, option, regex, whole
from lakelatch.timeline.plans.clustering_plan import LAYOUT, SORT_COLUMNS

INLINE = "hoodie.clustering.inline"
INLINE_COMMITS = "hoodie.clustering.inline.max.commits"

_STRATEGY = "hoodie.clustering.plan.strategy."
NO_FILTER, RECENT_DAYS, SELECTED_PARTITIONS = "NONE", "RECENT_DAYS", "SELECTED_PARTITIONS"
_LAYOUTS = {LINEAR: LINEAR, "zorder": Z_ORDER, Z_ORDER: Z_ORDER, HILBERT: HILBERT}
_INLINE_COMMITS = 4  # Hudi's default
_MANY, _MOST = 1_000_000, 2**62
CURVE_COLUMNS_MAX = 8


def _layout(key: str, text: str) -> str:
    return _LAYOUTS[one_of(*_LAYOUTS)(key, text)]


@dataclass(frozen=True)
class ClusteringOptions(ParsedOptions):
    """The options of a clustering plan.

    A file group is planned if its slice is smaller than `small_bytes` and is not sorted this way already. Nothing is
    planned until `least_commits` writes have completed since the last clustering: Hudi's 4 if it is `inline`. Without
    `columns`, rows are sorted by record key. `buckets` is the number that the caller expects the table to have.
    """

    inline: bool = option(INLINE, flag, False)
    least_commits: int = option(INLINE_COMMITS, whole(1, _MANY), 0)
    columns: tuple[str, ...] = option(SORT_COLUMNS, names, ())
    layout: str = option(LAYOUT, _layout, LINEAR)
    small_bytes: int = option(f"{_STRATEGY}small.file.limit", whole(0, _MOST), 300 * 1024 * 1024)  # Hudi's default
    groups_max: int = option(f"{_STRATEGY}max.num.groups", whole(1, _MANY), 30)
    partition_filter: str = option(
        "hoodie.clustering.plan.partition.filter.mode", one_of(NO_FILTER, RECENT_DAYS, SELECTED_PARTITIONS), NO_FILTER
    )
    selected: tuple[str, ...] = option(f"{_STRATEGY}partition.selected", names, ())
    pattern: str = option(f"{_STRATEGY}partition.regex.pattern", regex, "")
    recent: int = option(f"{_STRATEGY}daybased.lookback.partitions", whole(1, _MANY), 2)
    skipped: int = option(f"{_STRATEGY}daybased.skipfromlatest.partitions", whole(0, _MANY), 0)
    buckets: int | None = option(BUCKET_COUNT, whole(1, 10**8))

    def completed(self, values: Mapping[str, str]) -> ClusteringOptions:
        if self.layout != LINEAR and not 1 < len(self.columns) <= CURVE_COLUMNS_MAX:
            raise InvalidRequest(
                f"{LAYOUT}={self.layout} is for 2 to {CURVE_COLUMNS_MAX} columns, and {SORT_COLUMNS} names "
                f"{len(self.columns)}: name some, or use {LINEAR}",
                option=LAYOUT,
            )
        return replace(self, least_commits=_INLINE_COMMITS) if self.inline and not self.least_commits else self

    def params(self) -> dict[str, str]:
        """The sort order as parameters of a plan, under Hudi's keys."""
        return {SORT_COLUMNS: ",".join(self.columns), LAYOUT: self.layout}

    def chosen(self, partitions: Collection[str]) -> list[str]:
        """The partitions that may be clustered, in the order in which file groups are taken from them."""
        found = sorted(partitions)
        if self.partition_filter == RECENT_DAYS:
            found = found[::-1][self.skipped : self.skipped + self.recent]
        elif self.partition_filter == SELECTED_PARTITIONS:
            found = [name for name in found if name in self.selected]
        return [name for name in found if not self.pattern or re.fullmatch(self.pattern, name)]

    def check_buckets(self, buckets: int | None) -> None:
        """`InvalidRequest` for another number of buckets than the table has."""
        if self.buckets is not None and self.buckets != buckets:
            raise InvalidRequest(
                f"{BUCKET_COUNT}={self.buckets}, and the table has {buckets}: a clustering keeps each row in its "
                "bucket, and so the number of them. Leave the option out, or write the rows to a new table",
                option=BUCKET_COUNT,
            )
