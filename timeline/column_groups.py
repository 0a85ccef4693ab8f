"""Column groups: which columns of a table are filled together, each group ordered by a column of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest

COLUMN_GROUPS = "lakelatch.table.column.groups"
# For other readers: log files need a merger of ours, which they lack, so they refuse those files and read only what has
# been compacted. The id stands for `lakelatch.format.merge.column_groups`.
COLUMN_GROUPS_MODE = "CUSTOM"
COLUMN_GROUPS_MERGER = "8d1b1c1e-6c61-4a4b-8c1a-7c2f0e6d9a10"
COLUMN_GROUPS_PAYLOAD = "lakelatch.ColumnGroups"
_FORM = "write 'ordering: column, column; other_ordering: other_column'"


@dataclass(frozen=True)
class ColumnGroup:
    """Columns that one stream fills. Of two writes of them to one row, that with the greater `ordering` value wins.

    `ordering` belongs to the group, and is None only for columns outside of every group in a table that is ordered by
    commit.
    """

    ordering: str | None
    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of the group, the ordering column first."""
        return self.columns if self.ordering is None else (self.ordering, *self.columns)


def parse_column_groups(text: str) -> tuple[ColumnGroup, ...]:
    """The groups that an option's value names; none for an empty one. Errors: `InvalidRequest`."""
    groups = []
    for part in (part.strip() for part in text.split(";")):
        if not part:
            continue
        ordering, colon, rest = part.partition(":")
        columns = tuple(name.strip() for name in rest.split(","))
        if not colon or not ordering.strip() or not all(columns):
            raise InvalidRequest(
                f"{COLUMN_GROUPS}={text!r}: {part!r} is no group of an ordering column and others: {_FORM}",
                option=COLUMN_GROUPS,
            )
        groups.append(ColumnGroup(ordering.strip(), columns))
    names = [name for group in groups for name in group.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(
            f"{COLUMN_GROUPS}={text!r} names the column(s) {', '.join(twice)} more than once: a column has one order",
            option=COLUMN_GROUPS,
        )
    return tuple(groups)


def show_column_groups(groups: Iterable[ColumnGroup]) -> str:
    """The text that `parse_column_groups` takes."""
    return "; ".join(f"{group.ordering}: {', '.join(group.columns)}" for group in groups)
