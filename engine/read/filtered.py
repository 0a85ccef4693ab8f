"""Reads whose rows are filtered in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.read.plan import ReadPlan, all_columns, plan_read, selected
from lakelatch.engine.sql.expressions import Expression, check_condition, holding
from lakelatch.format.merge.conditions import Condition
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.staged import StagedStorage


@dataclass(frozen=True)
class FilteredRead:
    """A planned read of the rows that fulfil a condition, which its plan may have more columns for."""

    plan: ReadPlan
    names: tuple[str, ...]
    where: Expression | None

    @classmethod
    def of(
        cls,
        path: str,
        options: Mapping[str, object],
        where: Expression | None = None,
        conditions: Iterable[Condition] = (),
        system: System = REAL_SYSTEM,
        staged: StagedStorage | None = None,
    ) -> FilteredRead:
        """Errors: those of `plan_read`, and `InvalidRequest` for a condition that is not understood.

        Rows that do not fulfil `conditions` may be left out.
        """
        call = Call(options)
        if where is None or isinstance(where, str):
            plan = plan_read(path, call, system, conditions, where or "", staged)
        else:
            plan = plan_read(path, all_columns(call), system, staged=staged)
        check_condition(where, plan.schema)
        return cls(plan, tuple(selected(plan.table.full_schema, call.read()).names), where)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self.plan.schema.field(name) for name in self.names])

    def parts(self) -> Iterator[pa.Table]:
        """The rows, part by part: one file slice is in memory at a time."""
        for file_slice in self.plan.slices:
            for batch in self.plan.read(file_slice):
                rows = pa.Table.from_batches([batch]).cast(self.plan.schema)
                yield holding(self.where, rows).select(list(self.names))

    def reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        batches = (batch for part in self.parts() for batch in part.to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches)
