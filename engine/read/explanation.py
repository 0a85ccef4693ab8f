"""Explains what a read leaves out, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.read import INCREMENTAL, QUERY_TYPE
from lakelatch.engine.read.by_reader import SlicesByReader
from lakelatch.engine.read.plan import ReadPlan, all_columns, plan_read
from lakelatch.engine.read.where import parts_of
from lakelatch.errors import InvalidRequest
from lakelatch.format.merge.conditions import understood
from lakelatch.notebook import Shown
from lakelatch.timegen.instant_time import readable


@dataclass(frozen=True, repr=False)
class ReadExplanation(Shown):
    """The partitions, file groups and slices that a read of one moment opens, and how many there are.

    `partitions_there` is None where the condition names the partitions, as the others are not listed then;
    `file_groups_there` counts those of the listed `partitions`. `left_out_by_buckets` and `left_out_by_statistics`
    count file groups; one that is neither read nor left out has no rows. Of the `slices`, Spark itself reads the
    `native` ones, which have no logs and only types that it reads, and those `beside_logs`, which have few logs, but
    for the rows that these change. All others are read in Python, where `merged` ones are merged with
    their logs. `index` is the moment of the file index that was used, with the commits since; it is empty if folders
    were listed. The parts of the condition that were `passed_over` leave nothing out: only Spark evaluates them.
    """

    uri: str
    index: str
    partitions: int
    partitions_there: int | None
    slices: int
    file_groups_there: int
    left_out_by_buckets: int
    left_out_by_statistics: int
    native: int
    beside_logs: int
    merged: int
    record_keys: int | None
    understood: tuple[str, ...]
    passed_over: tuple[str, ...]

    def __repr__(self) -> str:
        """Lines of text."""
        lines = self._lines()
        width = max(map(len, lines))
        return "\n".join(f"{name:{width}}  {text}" for name, text in lines.items())

    def _lines(self) -> dict[str, str]:
        there = "unknown" if self.partitions_there is None else f"{self.partitions_there:,}"
        left_out = {
            "left out by buckets": self.left_out_by_buckets,
            "left out by statistics": self.left_out_by_statistics,
            "with nothing to read": self.file_groups_there - self.slices - self._left_out,
        }
        without = "".join(f"; {count:,} {why}" for why, count in left_out.items() if count)
        others = self.slices - self.native - self.beside_logs - self.merged
        beside = f", {self.beside_logs:,} but for what their logs change" if self.beside_logs else ""
        by_arrow = f", {others:,} read by Arrow" if others else ""
        lines = {
            "table": self.uri,
            "files from": f"the file index of {readable(self.index)}" if self.index else "listings",
            "partitions": f"{self.partitions:,} of {there}",
            "file groups": f"{self.slices:,} of {self.file_groups_there:,} in these{without}",
            "slices": f"{self.native:,} read by Spark itself{beside}, {self.merged:,} merged with their logs{by_arrow}",
            "record keys": "" if self.record_keys is None else f"{self.record_keys:,} named",
            "understood": "; ".join(self.understood),
            "passed over": "; ".join(self.passed_over),
        }
        return {name: text for name, text in lines.items() if text}

    @property
    def _left_out(self) -> int:
        return self.left_out_by_buckets + self.left_out_by_statistics


def explain(path: str, options: Mapping[str, object], where: object = None) -> ReadExplanation:
    """Explains what `read` with the same arguments would open now; a condition that is no text leaves nothing out.

    Errors: as for `read`, and `InvalidRequest` for a window.
    """
    call = Call(options)
    asked = call.read()
    if asked.images or asked.query_type == INCREMENTAL:
        raise InvalidRequest(
            f"{QUERY_TYPE}={INCREMENTAL}: a window reads what its commits have written; explain a read without it",
            option=QUERY_TYPE,
        )
    if where is None or isinstance(where, str):
        return _of(plan_read(path, call, where=where or ""), where or "")
    plan = plan_read(path, all_columns(call))
    return _of(plan, "", (str(where),))


def _of(plan: ReadPlan, where: str, unread: tuple[str, ...] = ()) -> ReadExplanation:
    counts, full = plan.counts, plan.table.full_schema
    said = {text: bool(found) and understood(found, full) == found for text, found in parts_of(where, full)}
    by_reader = SlicesByReader.of(plan)
    return ReadExplanation(
        uri=plan.table.storage.uri,
        index=counts.index,
        partitions=counts.partitions,
        partitions_there=counts.partitions_there,
        slices=len(plan.slices),
        file_groups_there=counts.groups_there,
        left_out_by_buckets=counts.by_buckets,
        left_out_by_statistics=counts.by_statistics,
        native=len(by_reader.native),
        beside_logs=len(by_reader.beside_logs),
        merged=sum(bool(found.fresh_logs) for found in by_reader.in_python),
        record_keys=None if plan.keys is None else len(plan.keys),
        understood=tuple(text for text, is_clear in said.items() if is_clear),
        passed_over=(*(text for text, is_clear in said.items() if not is_clear), *unread),
    )
