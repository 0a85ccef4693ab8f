"""What Spark's optimizer knows of a frame's plan: the kinds of its nodes, and how much each is thought to make.

It is read from the text of `explain(mode="cost")`, the only form in which Spark Connect has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CACHED = "InMemoryRelation"
_PLAN = re.compile(r"^== Optimized Logical Plan ==$(.*?)^== Physical Plan ==$", re.MULTILINE | re.DOTALL)
_NODE = re.compile(
    r"^[\s:|+-]*(\w+)\b.*, Statistics\(sizeInBytes=([\d.E+]+) ([KMGTPE]i)?B(?:, rowCount=([\d.E+]+))?\)$"
)
_DEPTH = re.compile(r"[\s:|+-]*")


@dataclass(frozen=True)
class PlanNode:
    """One node of an optimized plan. `rows` is None where Spark has no number for them."""

    kind: str
    size_bytes: float
    rows: float | None


def plan_nodes(df: DataFrame) -> list[PlanNode]:
    """The nodes of the frame's optimized plan, from the top; none if there is a line that is not understood.

    What a cached frame was made of is no part of it.
    """
    found = _PLAN.search(_explained(df))
    nodes: list[PlanNode] = []
    cached_at: int | None = None
    for line in found[1].strip("\n").split("\n") if found is not None else ():
        depth = _depth(line)
        if cached_at is not None and depth > cached_at:
            continue
        node = _NODE.match(line)
        if node is None:
            return []
        rows = None if node[4] is None else float(node[4])
        nodes.append(PlanNode(node[1], float(node[2]) * _unit_bytes(node[3]), rows))
        cached_at = depth if node[1] == CACHED else None
    return nodes


def _depth(line: str) -> int:
    found = _DEPTH.match(line)
    return found.end() if found is not None else 0


def _unit_bytes(prefix: str | None) -> int:
    return 1 if prefix is None else 1024 ** (1 + "KMGTPE".index(prefix[0]))


def _explained(df: Any) -> str:
    """The output of `explain(mode="cost")`, which no kind of session gives otherwise; empty if that has changed."""
    explained = getattr(df, "_explain_string", None)  # Spark Connect
    if explained is not None:
        return str(explained(mode="cost"))
    java = getattr(df, "_jdf", None)
    return "" if java is None else str(java.queryExecution().stringWithStats())
