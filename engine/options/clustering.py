"""Which file groups are clustered, and how their rows are sorted."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.format.sorting.row_order import HILBERT, LINEAR, Z_ORDER
from lakelatch.option_values import flag, one_of, whole_number
from lakelatch.timeline.plans.clustering_plan import LAYOUT, SORT_COLUMNS

INLINE = "hoodie.clustering.inline"
INLINE_COMMITS = "hoodie.clustering.inline.max.commits"
SMALL_FILE_LIMIT = "hoodie.clustering.plan.strategy.small.file.limit"
GROUPS_MAX = "hoodie.clustering.plan.strategy.max.num.groups"
FILTER_MODE = "hoodie.clustering.plan.partition.filter.mode"
SELECTED = "hoodie.clustering.plan.strategy.partition.selected"
PATTERN = "hoodie.clustering.plan.strategy.partition.regex.pattern"
RECENT = "hoodie.clustering.plan.strategy.daybased.lookback.partitions"
SKIPPED = "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions"
BUCKETS = "hoodie.bucket.index.num.buckets"
KEYS = frozenset(
    {
        *(INLINE, INLINE_COMMITS, SORT_COLUMNS, SMALL_FILE_LIMIT, GROUPS_MAX, LAYOUT),
        *(FILTER_MODE, SELECTED, PATTERN, RECENT, SKIPPED),
    }
)

NO_FILTER, RECENT_DAYS, SELECTED_PARTITIONS = "NONE", "RECENT_DAYS", "SELECTED_PARTITIONS"
_LAYOUTS = {LINEAR: LINEAR, "zorder": Z_ORDER, Z_ORDER: Z_ORDER, HILBERT: HILBERT}
_INLINE_COMMITS = 4  # Hudi's default
_SMALL_BYTES = 300 * 1024 * 1024  # Hudi's default
_MOST = 2**62
CURVE_COLUMNS_MAX = 8


@dataclass(frozen=True)
class ClusteringOptions:
    """What a clustering is planned by.

    A file group is planned if its slice is smaller than `small_bytes` and is not sorted like this already. Nothing is
    planned before `least_commits` writes have completed since the last clustering: Hudi's 4 where it is `inline`.
    Without `columns` rows are sorted by record key. `buckets` is what the caller believes the table to have.
    """

    inline: bool = False
    least_commits: int = 0
    columns: tuple[str, ...] = ()
    layout: str = LINEAR
    small_bytes: int = _SMALL_BYTES
    groups_max: int = 30
    partition_filter: str = NO_FILTER
    selected: tuple[str, ...] = ()
    pattern: str = ""
    recent: int = 2
    skipped: int = 0
    buckets: int | None = None

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> ClusteringOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        default = cls()
        inline = flag(values, INLINE, default.inline)
        columns = tuple(name.strip() for name in values.get(SORT_COLUMNS, "").split(",") if name.strip())
        layout = _LAYOUTS[one_of(values, LAYOUT, tuple(_LAYOUTS), default.layout)]
        if layout != LINEAR and not 1 < len(columns) <= CURVE_COLUMNS_MAX:
            raise InvalidRequest(
                f"{LAYOUT}={layout} is for 2 to {CURVE_COLUMNS_MAX} columns, and {SORT_COLUMNS} names {len(columns)}: "
                f"name some, or use {LINEAR}",
                option=LAYOUT,
            )
        return cls(
            inline=inline,
            least_commits=(
                whole_number(values, INLINE_COMMITS, _INLINE_COMMITS, 1, 1_000_000)
                if inline or INLINE_COMMITS in values
                else default.least_commits
            ),
            columns=columns,
            layout=layout,
            small_bytes=whole_number(values, SMALL_FILE_LIMIT, default.small_bytes, 0, _MOST),
            groups_max=whole_number(values, GROUPS_MAX, default.groups_max, 1, 1_000_000),
            partition_filter=one_of(
                values, FILTER_MODE, (NO_FILTER, RECENT_DAYS, SELECTED_PARTITIONS), default.partition_filter
            ),
            selected=tuple(name.strip() for name in values.get(SELECTED, "").split(",") if name.strip()),
            pattern=_pattern(values.get(PATTERN, "")),
            recent=whole_number(values, RECENT, default.recent, 1, 1_000_000),
            skipped=whole_number(values, SKIPPED, default.skipped, 0, 1_000_000),
            buckets=whole_number(values, BUCKETS, 1, 1, 10**8) if BUCKETS in values else None,
        )

    def params(self) -> dict[str, str]:
        """How rows are sorted, as a plan has it under Hudi's keys."""
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
                f"{BUCKETS}={self.buckets}, and the table has {buckets}: a clustering keeps each row in its bucket, "
                "and so the number of them. Leave the option out, or write the rows to a new table",
                option=BUCKETS,
            )


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequest(f"{PATTERN}={text!r} is no regular expression ({error})", option=PATTERN) from None
    return text
