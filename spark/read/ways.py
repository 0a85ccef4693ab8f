"""Which slices Spark reads by itself, wholly or but for what few logs change, and which are read in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelatch.format.file_slices import FileSlice
from lakelatch.spark.read.changed import RESERVED, have_few_logs
from lakelatch.spark.read.native import split_by_types

if TYPE_CHECKING:
    from lakelatch.spark.read.reader import ReadPlan


@dataclass(frozen=True)
class Ways:
    """The slices of a plan: `native` ones without logs, those read `beside_logs`, and all others, `in_python`.

    Where Spark has no connector for the place, all are read in Python, and so are those whose files others may clean
    meanwhile: of a file that is gone, Spark says only that.
    """

    native: tuple[FileSlice, ...]
    beside_logs: tuple[FileSlice, ...]
    in_python: tuple[FileSlice, ...]

    @classmethod
    def of(cls, plan: ReadPlan) -> Ways:
        """As slices and their sizes have it, which are asked for where they decide."""
        native, _ = split_by_types(plan.table, plan.schema, [one for one in plan.slices if not one.fresh_logs])
        beside: list[FileSlice] = []
        if _may_be_joined(plan):
            beside = [
                found
                for found in plan.slices
                if found.base_file and found.fresh_logs and (found.partition, found.file_id) not in plan.wider
            ]
        beside = split_by_types(plan.table, plan.schema, beside)[0] if have_few_logs(plan.table.storage, beside) else []
        taken = {*native, *beside}
        return cls(tuple(native), tuple(beside), tuple(found for found in plan.slices if found not in taken))


def _may_be_joined(plan: ReadPlan) -> bool:
    """Whether slices with logs may be read beside these at all.

    Not those of tables that others made, of whose base files nobody knows the types before they are opened.
    """
    config = plan.table.config
    is_plain = plan.instants is None and plan.keys is None and config.made_here and not config.column_groups
    return is_plain and RESERVED.isdisjoint(name.lower() for name in plan.schema.names)
